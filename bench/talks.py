"""Make conversations that teach from public data, in the format of `bench.retrieval`.

python -m bench.talks --clones DIRECTORY --save talks.jsonl.gz [--few]

DIRECTORY holds clones of these repositories, each under its own name; what is missing is left out:

| repository | what it has | licence |
|---|---|---|
| emorynlp/FriendsQA | questions about scenes of several speakers | Apache-2.0 |
| Yale-LILY/QMSum | questions about meetings | MIT |
| deepmind/xquad | questions about passages, English and Chinese | CC BY-SA 4.0 |
| ymcui/cmrc2018 | questions about passages, Chinese | CC BY-SA 4.0 |
| google-research-datasets/Synthetic-Persona-Chat | small talk of two people | CC BY 4.0 |
| thu-coai/CrossWOZ | people who plan a trip with an assistant, Chinese | Apache-2.0 |

None of them is among the sets that search is measured by. The last two hold no questions of their
own: what one side asked the other serves, after it was taken out of the conversation. With --few
there are a few users of each, and lives of `bench/data/lives` that are hidden among others: sets
that help to choose the numbers of a search (`bench.retrieval --leave-one-out --helpers FILE`).
"""

import argparse
import csv
import gzip
import io
import json
import random
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.lives import in_haystack, read_lives

SCENES, PASSAGES, CHATS, TRIPS = 4, 12, 7, 6  # that make up one user's memory
LONGEST = 600  # characters of what is said at once in a meeting
TELLING = 40  # characters of what can answer a question about a meeting,
MOST = 6  # and how many of its turns may
PER_USER = 24
FEW, FEW_QUESTIONS, FEW_LIVES, HAY = 20, 12, 36, 40  # users, questions, lives, sessions of others
NAMES = (
    "Mia",
    "Tom",
    "Priya",
    "Jonas",
    "Carla",
    "Wei",
    "Olga",
    "Ben",
    "Fatima",
    "Liam",
    "Noor",
    "Greta",
    "Diego",
    "Hannah",
    "Kofi",
    "Ines",
)
# A question that was asked of somebody, as they would ask it of their memory.
MINE = (
    (r"\bare you\b", "am I"),
    (r"\bwere you\b", "was I"),
    (r"\byou are\b", "I am"),
    (r"\byours\b", "mine"),
    (r"\byour\b", "my"),
    (r"\byourself\b", "myself"),
    (r"\byou\b", "I"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody says."""

    text: str
    session: int
    role: str = "user"
    speaker: str = ""


@dataclass(slots=True)
class Talk:
    """What one user's memory holds, and questions with the places of what answers them."""

    set: str
    language: str
    turns: list[Turn] = field(default_factory=list)
    questions: list[tuple[str, list[int]]] = field(default_factory=list)


def friends(home: Path) -> Iterator[Talk]:
    """Scenes of an episode; every answer names the turn that it is in."""
    scenes: dict[str, list[Any]] = defaultdict(list)
    for path in sorted((home / "dat").glob("friendsqa_*.json")):
        for it in _json(path)["data"]:
            scenes[it["title"].rpartition("_")[0]].append(it)
    for some in (part for own in scenes.values() for part in _parts(own, SCENES)):
        talk = Talk("friends-en", "en")
        for number, scene in enumerate(some):
            for part in scene["paragraphs"]:
                first = len(talk.turns)
                for it in part["utterances:"]:
                    name = (it["speakers"] or [""])[0].split(" ")[0]
                    talk.turns.append(Turn(it["utterance"], number, speaker=name))
                for asked in part["qas"]:
                    places = {first + it["utterance_id"] for it in asked["answers"]}
                    talk.questions.append((asked["question"], sorted(places)))
        yield talk


def meetings(home: Path) -> Iterator[Talk]:
    """Meetings; of every question the turns are known that are about it."""
    for path in sorted((home / "data" / "ALL").rglob("*.json")):
        data, talk = _json(path), Talk("qmsum-en", "en")
        for it in data["meeting_transcripts"]:
            talk.turns.append(Turn(it["content"][:LONGEST], 0, speaker=it["speaker"]))
        for asked in data["specific_query_list"]:
            spans = (range(int(a), int(b) + 1) for a, b in asked["relevant_text_span"])
            places = sorted({at for span in spans for at in span if at < len(talk.turns)})
            places = [at for at in places if len(talk.turns[at].text) > TELLING]
            if len(places) <= MOST:
                talk.questions.append((asked["query"], places))
        yield talk


def passages(paths: Iterable[Path], name: str, language: str) -> Iterator[Talk]:
    """The sentences of several passages as messages."""
    ends = r".+?(?:[.!?](?=\s+[A-Z\"(])|\Z)" if language == "en" else r"[^。！？!?\n]+[。！？!?]*"
    own = [part for path in paths for it in _json(path)["data"] for part in it["paragraphs"]]
    random.Random(5).shuffle(own)
    for some in _parts(own, PASSAGES):
        talk = Talk(f"{name}-{language}", language)
        for number, part in enumerate(some):
            spans = [it for it in re.finditer(ends, part["context"], re.S) if it[0].strip()]
            first = len(talk.turns)
            talk.turns += [Turn(it[0].strip(), number) for it in spans]
            for asked in part["qas"]:
                start = asked["answers"][0]["answer_start"]
                places = [
                    at for at, it in enumerate(spans, first) if it.start() <= start < it.end()
                ]
                talk.questions.append((asked["question"], places))
        yield talk


def small_talk(home: Path) -> Iterator[Talk]:
    """Chats of two people who get to know each other."""
    chance, chats = random.Random(5), list[list[tuple[str, str, str]]]()
    for path in sorted((home / "data").glob("*.csv")):
        for row in csv.DictReader(io.StringIO(path.read_text("utf-8"))):
            two = dict(zip("12", chance.sample(NAMES, 2), strict=True))
            lines = re.findall(r"(?m)^User ?([12]): ?(.+)$", row["Best Generated Conversation"])
            chats.append([(text, "user", two[who]) for who, text in lines])
    yield from _asked(chats, "spc-en", "en", CHATS)


def trips(home: Path) -> Iterator[Talk]:
    """Chats with an assistant about sights, restaurants and hotels."""
    chats = list[list[tuple[str, str, str]]]()
    roles = {"usr": "user", "sys": "assistant"}
    for path in sorted((home / "data" / "crosswoz").glob("*.json.zip")):
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read(archive.namelist()[0]))
        chats += [
            [(turn["content"], roles[turn["role"]], "") for turn in it["messages"]]
            for it in data.values()
        ]
    yield from _asked(chats, "crosswoz-zh", "zh", TRIPS)


def _asked(
    chats: list[list[tuple[str, str, str]]], name: str, language: str, size: int
) -> Iterator[Talk]:
    """Chats with the questions that were asked in them, which are taken out."""
    chance = random.Random(5)
    chance.shuffle(chats)
    for some in _parts(chats, size):
        talk = Talk(name, language)
        said = [(*turn, number) for number, chat in enumerate(some) for turn in chat]
        asks = [
            at
            for at, (one, two) in enumerate(pairwise(said))
            if one[3] == two[3] and _is_answered(one[0], two[0], language)
        ]
        hidden = {*chance.sample(asks, min(PER_USER, len(asks)))}
        hidden -= {at + 1 for at in hidden}  # what answers one question may be another
        for at, (text, role, speaker, session) in enumerate(said):
            if at in hidden:
                continue
            if at - 1 in hidden:
                question = _as_mine(_last(said[at - 1][0]), language, chance)
                talk.questions.append((question, [len(talk.turns)]))
            talk.turns.append(Turn(text, session, role, speaker))
        yield talk


def _is_answered(question: str, answer: str, language: str) -> bool:
    least, most, told = (8, 140, 18) if language == "en" else (4, 50, 6)
    asks = _last(question).endswith(("?", "？")) and least <= len(_last(question)) <= most
    return asks and len(answer) >= told and not answer.endswith(("?", "？"))


def _last(text: str) -> str:
    """The last sentence."""
    return next(reversed(re.findall(r"[^.!?。！？；\n]+[.!?。！？；]*", text)), "").strip()


def _as_mine(question: str, language: str, chance: random.Random) -> str:
    """A question about whoever was asked; some stay as they were put."""
    if chance.random() < 0.4:
        return question
    if language == "zh":
        return question.replace("你们", "我们").replace("您", "我").replace("你", "我")
    for old, new in MINE:
        question = re.sub(old, new, question, flags=re.I)
    return question[:1].upper() + question[1:]


def _parts(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def talks(clones: Path) -> Iterator[Talk]:
    """All that the clones hold."""
    yield from friends(clones / "FriendsQA")
    yield from meetings(clones / "QMSum")
    for language in ("en", "zh"):
        yield from passages((clones / "xquad").glob(f"xquad.{language}.json"), "xquad", language)
    squads = sorted((clones / "cmrc2018" / "squad-style-data").glob("*.json"))
    yield from passages(squads, "cmrc", "zh")
    yield from small_talk(clones / "Synthetic-Persona-Chat")
    yield from trips(clones / "CrossWOZ")


def user(talk: Talk, number: int) -> dict[str, Any]:
    """A talk as one user: sessions lie three days apart, turns less than a minute."""
    when, session, messages = datetime(2025, 1, 1, 9, tzinfo=UTC), -1, []
    for at, turn in enumerate(talk.turns):
        when += timedelta(days=3 * (turn.session != session), seconds=40)
        session = turn.session
        messages.append(
            {
                **{"message_id": f"m{at}", "ts": when.isoformat(), "role": turn.role},
                **{"speaker": turn.speaker or None, "session": f"s{turn.session}"},
                "content": turn.text,
            }
        )
    asked = {"ts": (when + timedelta(days=2)).isoformat(), "until": None, "answerable": True}
    queries = [
        {"qid": f"q{at}", "query": text, "evidence_groups": [[f"m{it}" for it in places]], **asked}
        for at, (text, places) in enumerate(talk.questions)
        if places
    ]
    random.Random(number).shuffle(queries)
    own = {"dataset": talk.set, "lang": talk.language, "user": f"{talk.set}/{number}"}
    return {**own, "messages": messages, "queries": queries}


def few(users: Sequence[dict[str, Any]], chance: random.Random) -> Iterator[dict[str, Any]]:
    """A few users of each set, and of their questions; passages are one family."""
    families = {"xquad-en": "passages-en", "xquad-zh": "passages-zh", "cmrc-zh": "passages-cmrc"}
    for name in dict.fromkeys(it["dataset"] for it in users):
        own = [it for it in users if it["dataset"] == name]
        for it in chance.sample(own, min(FEW, len(own))):
            asked = chance.sample(it["queries"], min(FEW_QUESTIONS, len(it["queries"])))
            queries = [query for query in asked if query["query"].strip()]
            yield it | {"dataset": families.get(name, name), "queries": queries}


def hidden(language: str, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Lives among sessions of other lives."""
    lives = [it for it in read_lives() if it.language == language]
    for life in chance.sample(lives, FEW_LIVES):
        told = in_haystack(life, lives, HAY, chance).messages
        messages = [
            {
                **{"message_id": f"m{at}", "ts": it.at.isoformat(), "role": it.role},
                **{"speaker": it.role, "session": it.session, "content": it.content},
            }
            for at, it in sorted(enumerate(told), key=lambda pair: (pair[1].at, pair[0]))
        ]
        queries = [
            {
                **{"qid": f"{life.name}#{at}", "query": it.text, "ts": it.now.isoformat()},
                **{"until": None, "answerable": True},
                "evidence_groups": [[f"m{place}" for place in sorted(hop)] for hop in it.hops],
            }
            for at, it in enumerate(life.questions)
            if it.hops
        ]
        own = {"dataset": f"hidden-{language}", "lang": language, "user": life.name}
        yield {**own, "messages": messages, "queries": queries}


def main() -> None:
    """Read clones, write talks."""
    parser = argparse.ArgumentParser(description="Make conversations that teach.")
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--few", action="store_true", help="a few of each, and hidden lives")
    chosen = parser.parse_args()
    users = [user(it, at) for at, it in enumerate(talks(chosen.clones)) if it.questions]
    random.Random(5).shuffle(users)
    if chosen.few:
        chance = random.Random(5)
        users = [*few(users, chance), *hidden("en", chance), *hidden("zh", chance)]
    with gzip.open(chosen.save, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(it, ensure_ascii=False) + "\n" for it in users)
    for name in dict.fromkeys(it["dataset"] for it in users):
        own = [it for it in users if it["dataset"] == name]
        print(name, len(own), "users", sum(len(it["queries"]) for it in own), "questions")


if __name__ == "__main__":
    main()
