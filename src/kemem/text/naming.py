"""Which names a text gives, and to what: "my cousin goes by Pip", 房东姓蒲，都叫他蒲叔."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from kemem.text.given import given_in, is_name, may_begin_with_name
from kemem.text.lexicon import Lexicon, load
from kemem.text.reading import NAMELESS, of_scripts
from kemem.text.segment import STOP_WORDS
from kemem.text.summary import sentences
from kemem.text.things import Thing, thing_beside

# What a name is given to stands right beside it, somewhere before it, or after it.
_BESIDE = ("EN_NAMED", "EN_IS_NAMED", "EN_APPOSED", "EN_BESIDE", "ZH_NAMED", "ZH_IS_NAMED")
_BEFORE = ("EN_SHORT", "EN_OR", "ZH_NAMING", "ZH_QUOTED")
_AFTER = ("EN_NAME_IS", "EN_NAME_APPOSED", "ZH_NAME_IS")
_PLACE = ("EN_AT", "ZH_AT")  # a company or a school, which is what it is to somebody
_PATTERNS = (*_BESIDE, *_BEFORE, *_AFTER, *_PLACE)
_CUES = {  # what a sentence has where a pattern matches: faster than to try
    "EN_SHORT": (" for short", " to "),
    "EN_OR": ("or ",),
    "EN_NAME_APPOSED": (", my ", ", our ", ", user's "),
}
_A_TITLE = r"(?:Mrs?|Ms|Miss|Dr|Prof)\.? "
_TITLE = re.compile(f"^{_A_TITLE}")
_CAPITALISED = re.compile("[A-Z][a-z]*")
_UNCAPITALISED = re.compile("\\s[\"“'‘]|[\u3400-\u9fff]")
# A name of an English sentence, but at its beginning.
_LATER = re.compile(r"""[ (](?:(?!I(?![\w-]))[A-Z]|["“'‘])""")
# "Ann's cousin is", before a name
_OWNED_BY_OTHERS = re.compile(
    r"\b(?:[Hh]is|[Hh]er|[Tt]heir|(?!User)[A-Z][\w-]+['’]s) "
    r"(?:[a-z-]+ )*?([a-z-]+),?(?: is| was)? $"
)
_CLAUSE = re.compile(r"[^,，;；:：]*")
_NO_NAMES = frozenset(("Here", "There", "Today", "Tonight", "Tomorrow", "Yesterday", "Now", "Then"))
_LONGEST = 400  # characters of a text that introduces somebody or something


class Naming(NamedTuple):
    """A name, and the words that say whose it is."""

    name: str  # as it may be said later: Okafor, not Mr Okafor
    said: str
    before: str  # the sentence before: "The puppy is here. We named her Waffle."
    is_place: bool  # of a company, school …: "my first job was at Halden"
    full: str  # the name as it is given
    thing: Thing | None  # what it stands for, where the speaker has it: "my cousin",
    bearer: str  # and another name beside it: Tom, whom everybody calls Bear
    of: str = ""  # what it is to somebody else: the cousin of Ann

    @property
    def names(self) -> frozenset[str]:
        """The names that it tells of, in lower case."""
        given = (self.name, self.full, bare(self.bearer))
        return frozenset(name.casefold() for name in given if name)

    @property
    def known(self) -> str:
        """All names as they are given."""
        return f"{self.full} {self.bearer}"


@lru_cache(maxsize=8192)
def namings(text: str) -> tuple[Naming, ...]:
    """The names that a text gives.  "our landlord is a Mr Okafor" -> Okafor"""
    if len(text) > _LONGEST:
        return ()
    found, before = list[Naming](), ""
    for sentence in sentences(text.replace("a.k.a.", "aka")):
        own = _in_sentence(sentence)
        found += (it._replace(before=before) for it in own if not _is_cut(it, own))
        before = sentence
    return tuple(found)


def _in_sentence(sentence: str) -> list[Naming]:
    languages = of_scripts(sentence, ("EN", "ZH"))
    is_later = _LATER.search(sentence) is not None
    english = given_in(sentence) if is_later or may_begin_with_name(sentence) else ()
    given = [
        Naming(bare(it.name), it.said, "", False, it.name, it.thing, it.bearer, it.of)
        for it in english
    ]
    others = _by_pattern(sentence, is_later, _patterns(*languages))
    return [*given, *(it for it in others if not _is_known(it, given))]


def _is_known(naming: Naming, given: Sequence[Naming]) -> bool:
    """Whether a name, or a part of it, is one of those given, or the one that they belong to."""
    names = [name for it in given for name in (it.full, it.bearer) if name]
    return any(naming.full in name or name in naming.full for name in names)


def _by_pattern(
    sentence: str, is_later: bool, patterns: Iterable[tuple[str, re.Pattern[str]]]
) -> Iterator[Naming]:
    for kind, pattern in patterns:
        if not (is_later or kind in _AFTER or kind[:2] == "ZH"):
            continue
        if not any(map(sentence.__contains__, _CUES.get(kind, ("",)))):
            continue
        for match in pattern.finditer(sentence):
            name = match["name"].strip("\"'“”‘’ ")
            first, *_ = name.split() or [""]
            if (
                len(name) < 2
                or _TITLE.fullmatch(f"{name} ")
                or first in NAMELESS | _NO_NAMES
                or first.lower() in STOP_WORDS
                or (kind[:2] == "EN" and not is_name(name))
                or (kind == "EN_NAMED" and " called " in match[0])  # maybe by telephone
            ):
                continue
            if kind == "ZH_NAMED":  # how long the name is cannot be seen: 李芳退休 may go on
                name = name[:2]
                said = sentence[match.start() : match.start("name") + 2]
            elif kind in _BESIDE:
                said = match[0]
            elif kind in (*_BEFORE, *_PLACE):
                said = sentence[: match.end("name")]
            else:
                rest = _CLAUSE.match(sentence, match.end())
                said = sentence[match.start("name") : rest.end() if rest else None]
            # 我妈高中毕业 names nobody 高中.
            sure = kind not in _PLACE and (kind != "ZH_NAMED" or name[0] in "小老阿")
            thing, bearer = thing_beside(sentence, *match.span("name")) if sure else (None, "")
            of = ""
            if kind in ("EN_NAMED", "EN_IS_NAMED"):
                owned = _OWNED_BY_OTHERS.search(sentence, 0, match.start("name"))
                of = owned[1] if owned else ""
            yield Naming(bare(name), said, "", kind in _PLACE, name, thing, bearer, of)


def _is_cut(naming: Naming, others: Sequence[Naming]) -> bool:
    """Whether a Chinese name goes on: another pattern has seen where it ends.  沈慧, of 沈慧珍"""
    name = naming.full
    return not name.isascii() and any(it.full != name and it.full.startswith(name) for it in others)


def bare(name: str) -> str:
    """A name as it may be said later, without title and surname.  "Mr Okafor" -> Okafor"""
    full = _lexicon().pattern("ZH_FULL_NAME").fullmatch(name)
    return name[1:] if full else _TITLE.sub("", name)


def may_share_name(text: str, question: str) -> bool:
    """Whether a question may use a name that a text gives: faster than to look for the names.

    A name has a word with a capital letter, unless it is Chinese or quoted, or the question has
    none of these letters at all.
    """
    if question.islower() or _UNCAPITALISED.search(text):
        return True
    return any(word in text for word in _capitalised(question))


@lru_cache(maxsize=64)  # many texts are compared with one question
def _capitalised(text: str) -> frozenset[str]:
    """The words of a text that begin with a capital letter."""
    return frozenset(_CAPITALISED.findall(text))


def is_named(name: str, text: str) -> bool:
    """Whether a text uses a name.  "Pip" ~ "Pip's job" -> True; ~ "a pipe" -> False

    A Latin name has its capital, where the text has any: who cannot bear crowds is not Bear.
    """
    any_case = name.islower() or text.islower()
    return _name_pattern(name, any_case).search(text) is not None


def unnamed(naming: Naming, text: str) -> str | None:
    """A text with what a name stands for in its place.  "Pip's job" -> "my cousin's job"

    None where it does not use the name: "a pip", and of 李志宏 孙志宏.
    """
    if naming.thing is None:
        return None
    instead = naming.thing.text
    if naming.bearer and instead.isascii():
        instead = f"{instead} {naming.bearer}"
    return renamed(text, naming.full, instead)


def renamed(text: str, name: str, other: str) -> str | None:
    """A text with another name in the place of one.  "Mr Shaw's wife" -> "the Colonel's wife"

    None where it does not use the name.
    """
    if name.isascii():
        pattern = _whole(rf"(?:{_A_TITLE})?(?:{re.escape(name)}|{re.escape(bare(name))})")
    else:
        surnames = _lexicon().lines["ZH_SURNAMES"].text
        pattern = f"{re.escape(name)}|(?<!{surnames}){re.escape(bare(name))}"
    changed, count = re.subn(pattern, other, text, flags=re.IGNORECASE if text.islower() else 0)
    return changed if count else None


@lru_cache(maxsize=256)
def _name_pattern(name: str, any_case: bool) -> re.Pattern[str]:
    whole = re.escape(name) if any_case else f"{re.escape(name[0])}(?i:{re.escape(name[1:])})"
    flags = re.IGNORECASE if any_case else 0
    return re.compile(_whole(whole) if name.isascii() else whole, flags)


def _whole(pattern: str) -> str:
    """A pattern of Latin letters that others of them stand on no side of; Chinese ones may."""
    return rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])"


def institutions(text: str) -> str:
    """The words of a text for companies, schools and the like.  "my son's school" -> school"""
    patterns = (_lexicon().pattern(name) for name in ("EN_INSTITUTION", "ZH_INSTITUTION"))
    return " ".join(match[0] for pattern in patterns for match in pattern.finditer(text))


@cache
def _patterns(*languages: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((it, _lexicon().pattern(it)) for it in _PATTERNS if it[:2] in languages)


def _lexicon() -> Lexicon:
    return load(__package__, "reading.rules")
