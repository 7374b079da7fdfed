"""Whether a fact that a model states is what was said: by whom, of whom, of what."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from kemem.add.rules import Extraction, Reading
from kemem.facts.endings import TELLING
from kemem.facts.kinds import signs
from kemem.facts.sentences import without_quotations
from kemem.facts.worth import MOST_CHARACTERS, Vectors
from kemem.records import Message, Note
from kemem.text.language import is_chinese
from kemem.text.reading import content, named_people, people_of

_SAID = 1 / 3  # of the words of a fact at least, which were said or known
_RELATED = 0.5  # likeness of a fact in other words and the message that it is drawn from
_NEGATED = re.compile(r"\b(?:not?|never|without|none)\b|n't\b|不|没|无|别|戒|未")
# What says no in a statement, and in a fact that keeps it in other words.
_DENIED = re.compile(
    r"\b(?:not?|never)\b|n't\b|从未|没(?![错准])|(?<![差])不(?![错过仅但少止久断时同])|别(?![的人处])"
)
_DENIES = re.compile(
    r"\b(?:cannot|dislik|hat(?:e|es|ed|ing)\b|avoid|unable|quit|stop|former|lack|refus|only|free)"
    r"|讨厌|拒|停|怕|只|非|反感|放弃|取消",
    re.IGNORECASE,
)
_ASSISTANT = re.compile(r"\bassistant\b|助手", re.IGNORECASE)
_DESCRIBED = re.compile(  # what an assistant is, beside what it did or promised
    r"(?:the )?assistant(?:'s\b| (?:is|was|has|have|likes?|loves|enjoys|can|does)\b)"
    r"|助手(?:是|有|喜欢|爱|会|能|没有?)",
    re.IGNORECASE,
)
_FIRST = re.compile(r"(?:I|I'm|My|We|Our)\b|我|咱")  # speaks as a user does of themself
# What asks, or tells of the talk instead of what was said in it.
_ASKS = re.compile(
    r"[?？]"
    r"|^(?:the )?user (?:is )?(?:ask|inquir|request|want(?:s|ed)? to know|need(?:s|ed)? to know)"
    r"|^(?:the )?assistant (?:repl|answer|respond|said|says)"
    r"|^用户[^，]{0,4}(?:询问|问(?!题)|请求|想知道|想了解|打听)|^助手[^，]{0,4}(?:回答|回复|说)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")
_WRITTEN = re.compile(r"\s*[(（][^()（）]*\d{4}[^()（）]*[)）]")  # a date that notes get
_OWN = re.compile(
    r"\b(?:my|our)\b|我[的家们爸妈爹娘哥姐弟妹老儿女太先对]|咱"
)  # told even in a question
# The speaker as one who does something, beside 我妈, my sister.
_SELF = re.compile(
    r"\b(?:I|we|me|us)\b|(?:我们?|咱们?)(?![的家爸妈爹娘爷奶姥公婆哥姐弟妹老儿女太先对同邻朋闺媳孙])",
    re.IGNORECASE,
)
_OF_USER = re.compile(r"(?:the )?user(?!'s)\b|用户(?!的|[爸妈哥姐弟妹])", re.IGNORECASE)
_POINTS = re.compile(  # to what was spoken of before
    r"\b(?:he|she|it|they|him|her|them|this|that|those|these|there|one|ones)\b|[他她它这那]",
    re.IGNORECASE,
)
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
AND = {True: "，", False: ", "}


@dataclass(frozen=True, slots=True)
class Heard:
    """A conversation: what KeMem reads in it, and the notes that a model was shown beside it."""

    messages: Sequence[Message]
    reading: Reading
    local: Extraction
    notes: Sequence[Note]
    name: str | None = None  # of the user
    earlier: Sequence[Message] = ()

    def told(self, message: Message) -> list[str]:
        """The clauses of a user's message that tell something, also of what a question is about.

        Where quotations leave no sentence to read, all that stands beside them.
        """
        parts = [
            part
            for each, _, sentences in self.reading.messages
            if each.message_id == message.message_id
            for sentence in sentences
            for part in sentence.parts
        ]
        if not parts and _quotes(message.content):
            return [without_quotations(message.content)]
        return [part.text for part in parts if not part.silent or _OWN.search(part.text)]

    def stated(self, message: Message) -> str:
        """What of a user's message tells something, without its questions and fillers."""
        told = [
            part.text
            for each, _, sentences in self.reading.messages
            if each.message_id == message.message_id
            for sentence in sentences
            if not sentence.asks
            for part in sentence.parts
            if not part.silent
        ]
        return AND[is_chinese(message.content)].join(told)


def is_grounded(text: str, heard: Heard, vectors: Vectors) -> bool:
    """Whether a fact is what was said: not asked, not denied, not only known from before."""
    if _DESCRIBED.match(text) or _ASKS.search(text):
        return False
    users = [it for it in heard.messages if it.role == "user" and heard.told(it)]
    others = [it for it in heard.messages if it.role != "user" and not _FIRST.match(text)]
    if not _ASSISTANT.search(text):  # what it says of a user counts once the user has answered
        last = max((heard.messages.index(it) for it in users), default=-1)
        others = [it for it in others if heard.messages.index(it) < last]
    told = [it for message in users for it in heard.told(message)]
    before = [it for it in heard.earlier if it.role != "user"] if users or others else []
    said = [*told, *(it.content for it in (*others, *before))]
    if not said or is_chinese(text) != is_chinese("\n".join(said)):
        return bool(said)
    words = words_of(DAY.sub("", text))
    spoken = {word for it in said for word in words_of(it)}
    noted = {word for it in heard.notes for word in words_of(it.content)}
    if _is_denied(text, told) or _is_known(text, words, spoken, noted, heard):
        return False
    if _is_of_another(text, told, heard) or _is_of_something_else(text, told, spoken, noted):
        return False
    near = (it.content[:MOST_CHARACTERS] for it in (*users, *others) if not _quotes(it.content))
    known = spoken | noted | {word for it in heard.earlier for word in words_of(it.content)}
    is_said = _count(words & known) >= _SAID * _count(words)
    return is_said or any(likeness(text, it, vectors) >= _RELATED for it in near)


def _is_of_another(text: str, told: Sequence[str], heard: Heard) -> bool:
    """Whether a fact tells of somebody what was said of somebody else."""
    known = [it.content for it in heard.notes]
    known += [it.content for it in (*heard.earlier, *heard.messages)]
    names = {f"@{name}": one for it in known for name, one in named_people(it).items()}

    def people(of: str) -> set[str]:
        return {one for it in people_of(of) if (one := names.get(it, it))[0] != "@"}

    words = words_of(text)
    clause = max(told, key=lambda it: _count(words & words_of(it)), default="")
    if _SELF.search(clause) or not (others := people(clause)):
        return False
    # "My parents moved" does not say that the user moved with them.
    of_user = _OWN.match(clause.lower()) and _OF_USER.match(text)
    return bool(others - people(text) or of_user)


def _is_of_something_else(
    text: str, told: Sequence[str], spoken: Set[str], noted: Set[str]
) -> bool:
    """Whether a fact tells that something known has changed which nobody has spoken of."""
    if not signs(text) & TELLING or any(_POINTS.search(it) for it in told):
        return False
    names = {name for it in told for name in people_of(it) if name[0] == "@"}
    if names & people_of(text):
        return False
    known = words_of(text) & noted
    return _count(known - spoken) >= max(_count(known & spoken), 1)


def _quotes(text: str) -> bool:
    """Whether a text has somebody's words in it."""
    return without_quotations(text) != text.replace("’", "'")


def _is_known(text: str, words: Set[str], spoken: Set[str], noted: Set[str], heard: Heard) -> bool:
    """Whether a fact says no more than shown notes, or more of what they say than of what was said.

    One that was said again in the same words counts as said: it cites the note.
    """
    earlier = {word for it in heard.earlier for word in words_of(it.content) if it.role == "user"}
    if _count((words & noted) - spoken - earlier) > _count(words & spoken):
        return True
    if (words & spoken) - noted - earlier:
        return False
    alike = [it for it in heard.notes if words & words_of(it.content)]
    again = any(words == words_of(it.content) for it in alike) and words <= spoken
    return not again and any(values_of(text) == values_of(it.content) for it in alike)


def _count(words: Set[str]) -> int:
    """How many words there are, of Chinese ones only the characters, not their pairs as well."""
    return sum(len(it) == 1 or it.isascii() for it in words)


def _is_denied(text: str, told: Sequence[str]) -> bool:
    """Whether a fact states what the clause that it is drawn from denies."""
    if _NEGATED.search(text.lower()) or _DENIES.search(text):
        return False
    words = words_of(text)
    shares = [(_count(words & words_of(it)), it) for it in told]
    most, clause = max(shares, default=(0, ""))
    return 2 * most >= _count(words) > 0 and _DENIED.search(clause.lower()) is not None


def likeness(text: str, other: str, vectors: Vectors) -> float:
    first, second = vectors.get(text), vectors.get(other)
    if first is None or second is None:
        return 0.0
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def values_of(text: str) -> frozenset[str]:
    """What must be equal in equal statements: numbers, and whether something is denied."""
    bare = _WRITTEN.sub("", text)
    return frozenset(_NUMBER.findall(bare)) | ({"not"} if _NEGATED.search(bare.lower()) else set())


def words_of(text: str) -> frozenset[str]:
    return frozenset(content(_WRITTEN.sub("", text)))
