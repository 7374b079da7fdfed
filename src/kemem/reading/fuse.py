"""Third stage of search: one ranking from all signals, led by words, scored 0-1."""

from kemem.reading.question import Asked, Gathered
from kemem.text.snippets import matches
from kemem.types import Hit, Message

WORDS = 0.6  # equal weights lose to words alone when the vectors are weak
IN_TIME = 0.25  # how far a message of the time asked for moves towards 1


def fuse(found: Gathered, asked: Asked, limit: int) -> list[Hit]:
    """The best messages with the reasons for their place."""
    words = {_key(hit.message): (rank, hit) for rank, hit in enumerate(found.words, 1)}
    meaning = {_key(hit.message): (rank, hit) for rank, hit in enumerate(found.meaning, 1)}
    weight = WORDS if not found.missing else 1.0
    ranked = []
    for key in dict.fromkeys((*words, *meaning)):
        why = []
        score = 0.0
        message: Message
        if key in meaning:
            rank, hit = meaning[key]
            message, score = hit.message, (1 - weight) * hit.score
            why.append(f"semantic#{rank} {hit.score:.2f}")
        if key in words:
            rank, hit = words[key]
            message, score = hit.message, score + weight * hit.score
            why.insert(0, f"lexical#{rank} {hit.score:.2f}")
        for time in asked.times:
            if time.since <= message.ts < time.until:
                score += IN_TIME * (1 - score)
                why.append(f"time: {time.phrase}")
                break
        if score > 0:
            ranked.append(Hit(message, round(score, 6), tuple(why)))
    ranked.sort(key=lambda hit: (-hit.score, -hit.message.ts, hit.message_id))
    return [_explained(hit, asked, found.missing) for hit in ranked[:limit]]


def _explained(hit: Hit, asked: Asked, missing: tuple[str, ...]) -> Hit:
    found = matches(hit.message.content, asked.query)
    why = (
        *hit.why,
        *((f"terms: {', '.join(found.terms)}",) if found.terms else ()),
        *(f"{signal}: unavailable" for signal in missing),
    )
    return Hit(hit.message, hit.score, why, found.snippets)


def _key(message: Message) -> tuple[str, str, str]:
    return message.agent_id, message.user_id, message.message_id
