"""Whom or what a speaker tells of as theirs: "my cousin", "our boat", 我上司."""

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from kemem.text.lexicon import Lexicon, load
from kemem.text.reading import NAMELESS, of_scripts
from kemem.text.segment import is_cjk

# Those of whom one has several: "my friend" may be another than "my oldest pal".
SEVERAL = frozenset(("friend", "colleague", "neighbour", "client", "teacher", "doctor", "cousin"))
# Those of whom one has one, by whatever word: 我妈 is 母亲, but 姑姑 and 舅妈 are two aunts.
_ONLY = frozenset(("mother", "father", "wife", "husband", "partner", "boss", "landlord"))
_AND = re.compile("[\"”'’」]?(?:,? (?:and|&) [A-Z]|, [A-Z]\\w+,? and |[和跟与、])")
_OTHER_NAME = re.compile(r",? ([A-Z][a-zà-ÿ]+)")
_EN_OWNER = r"\b(?P<owner>my|our|user['’]s|the) (?P<more>(?:[\w-]+ ){0,2}?)"
_ZH_OWNER = (
    r"(?P<owner>(?:我们?|咱们?|用户)家?(?:[那这][个位只辆台])?的?|(?<!\w))(?P<more>\w{0,4}?)"
)
_EN_END = r"(?![\w-])(?!['’]s? (?:%s)\b)"  # "my cousin's wife" is somebody else,
_ZH_END = r"(?!们|的?(?:%s))"  # and so is 我同事的老婆


@dataclass(frozen=True, slots=True)
class Thing:
    """Somebody or something of a speaker."""

    owner: str  # my, our, the, 我
    kind: str  # cousin, 上司
    more: str = ""  # that tells which: oldest

    @property
    def text(self) -> str:
        """How its owner says it.  "my oldest cousin" """
        if is_cjk(self.kind[0]):
            return f"{self.owner}{self.more}{self.kind}"
        return " ".join(filter(None, (self.owner, self.more, self.kind)))

    @property
    def kinds(self) -> tuple[str, ...]:
        """All words for it: others, too, where one has only one.  母亲 -> 母亲, 妈妈, 老妈 …"""
        words = _roles(is_cjk(self.kind[0]))
        role = words.get(self.kind)
        same = [word for word, it in words.items() if it == role] if role in _ONLY else ()
        return tuple(sorted({self.kind, *same}, key=len, reverse=True))

    @property
    def is_one_of_several(self) -> bool:
        """Whether one has more than one."""
        return _roles(is_cjk(self.kind[0])).get(self.kind) in SEVERAL


def thing_beside(sentence: str, start: int, end: int) -> tuple[Thing | None, str]:
    """What the name at a place is to the speaker, and the other name that it stands beside.

    "Pip is my cousin" -> my cousin; "my boss Ann goes by Pip" -> my boss, Ann
    """
    before, after = sentence[:start], sentence[end:]
    if _AND.match(after) or " and " in sentence[start:end]:  # "my kids Mia and Tom"
        return None, ""
    for language in of_scripts(sentence, ("EN", "ZH")):
        thing = _english if language == "EN" else _chinese
        match = _lexicon().pattern(f"{language}_THING_BEFORE").search(before)
        if match and _lexicon().pattern("ZH_OTHER").fullmatch(match["thing"]):
            return None, match["thing"]  # 我们管李志宏叫老李
        named = _lexicon().pattern(f"{language}_NAME_BEFORE").search(before)
        if match and not (named and match["thing"].lower().startswith("the ")):
            return thing(match), match["bearer"] or ""
        if match := _lexicon().pattern(f"{language}_THING_AFTER").search(after):
            return thing(match), ""
        if named:
            return None, named["bearer"] or named["object"]
    return None, ""


def _english(match: re.Match[str]) -> Thing | None:
    owner, _, words = match["thing"].lower().partition(" ")
    if owner == "the" and not _lexicon().pattern("EN_CALLED").search(match.string):
        return None  # "the winner is Pip"
    return thing_of(owner, words)


def thing_of(owner: str, nouns: str) -> Thing:
    """What English words tell of.  my, "old boss got" -> my old boss"""
    words = nouns.lower().split()
    people = [at for at, word in enumerate(words) if word in _roles(chinese=False)]
    *more, kind = words[: people[-1] + 1] if people else words  # "my boss got", before a name
    return Thing(owner if owner in ("our", "the") else "my", kind, " ".join(more))


def _chinese(match: re.Match[str]) -> Thing | None:
    words = match["thing"]
    people = re.findall(_people(chinese=True), words)
    if len(people) > 1:  # 我弟弟的老师
        return None
    kind = people[0] if people and words.endswith(people[0]) else words.rpartition("的")[2]
    owner = "我家" if match["home"] else "我"
    return Thing(owner, kind, words.removesuffix(kind)) if kind else None


def tells_of(thing: Thing, text: str, name: str, exact: bool = False) -> bool:
    """Whether a text tells of the thing that has a name, and of no other such thing.

    my cousin ~ "My cousin has a job" -> True; ~ "my cousin Tom", "my other cousin", "Tom's cousin"
    and "my cousin's wife" -> False
    """
    for match in _thing_pattern(thing).finditer(text):
        owner, more = match["owner"].lower(), match["more"].strip().lower()
        another = _OTHER_NAME.match(text, match.end())
        if another and another[1] not in NAMELESS and another[1] not in name:
            continue
        if (exact or thing.is_one_of_several) and (more != thing.more or owner in ("", "the")):
            continue
        if more in ("", thing.more):
            return True
    return False


@lru_cache(maxsize=256)
def _thing_pattern(thing: Thing) -> re.Pattern[str]:
    chinese = is_cjk(thing.kind[0])
    owner, end = (_ZH_OWNER, _ZH_END) if chinese else (_EN_OWNER, _EN_END)
    kinds = "|".join(map(re.escape, thing.kinds))
    return re.compile(f"{owner}(?:{kinds}){end % _people(chinese)}", re.IGNORECASE)


@cache
def _roles(chinese: bool) -> dict[str, str]:
    """Words for people around a speaker, and what those are."""
    table = _lexicon().tables["ZH_PEOPLE" if chinese else "EN_PEOPLE"]
    return {word.removeprefix("我"): role for word, role in table.items()}


@cache
def _people(chinese: bool) -> str:
    return "|".join(sorted(_roles(chinese), key=len, reverse=True))


def _lexicon() -> Lexicon:
    return load(__package__, "reading.rules")
