"""What a statement says to be over by its verb: an animal, a partner, a thing, an activity.

"Rex died", "Tom and I broke up", "I sold the Panda", 瑜伽课停了. What the verb is said of decides:
"I lost the charger of my Kindle" ends nothing that is told of the Kindle.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from kemem.facts.language import language
from kemem.facts.sentences import without_times
from kemem.text.lexicon import load
from kemem.text.reading import content

_OTHERS = r"(?<!\buser)'s (?:\w+ )?{0}\b|(?<!用户)的{0}"  # an animal of somebody else
_CHARACTER = 0.35  # what a Chinese character tells of a topic beside a pair of them
_REPORT = re.compile(r"\b(?:the |his |her )?\w+ (?:says?|said|thinks?)\b|医生[说讲]")
_HAN = re.compile("[\u3400-\u9fff]")


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "endings.rules").pattern(name)


def language_code(text: str) -> str:
    """The language of a text as the names of patterns have it: ZH or EN."""
    return "ZH" if _HAN.search(text) else "EN"


def animal_is_gone(text: str, note: str) -> bool:
    """Whether an animal that a note tells of is gone.  "Rex died", "User has a dog called Rex" """
    if not _pattern(f"{language_code(text)}_LOST").search(text.lower()):
        return False
    said = text.lower()
    animals = [it for it in _animals(language_code(note)) if re.search(_whole(it), note.lower())]
    names = _pattern("NAMES").findall(note)
    if not animals or re.search(_OTHERS.format(animals[0]), said):
        return False
    own = (f"user's {animals[0]}", f"用户的{animals[0]}")
    return said.startswith(own) or any(re.search(_whole(it.lower()), said) for it in names)


def _whole(word: str) -> str:
    """A name or a kind of animals, not what belongs to it."""
    return rf"\b{re.escape(word)}\b(?!'s)" if word.isascii() else rf"{re.escape(word)}(?!的)"


@cache
def _animals(code: str) -> tuple[str, ...]:
    return tuple(language(code.lower()).patterns.tables["PETS"])


def partner_is_gone(text: str, note: str) -> bool:
    """Whether somebody is no longer with the user.  "Tom and User broke up" """
    code = language_code(text)
    if not _pattern(f"PARTED_{code}").search(text) or code != language_code(note):
        return False
    if not _pattern(f"PARTNER_{code}").search(note):
        return False
    named, known = ({*_pattern("NAMED").findall(it)} for it in (text, note))
    return not named or not known or bool(named & known)


def is_paired(text: str, note: str) -> bool:
    """Whether somebody whom a note calls single has a partner.  "User got engaged to Marek" """
    told = _pattern(f"{language_code(text)}_PAIRED").search(text.lower())
    is_own = text.startswith(("User", "用户")) and not text.startswith(("User's", "用户的"))
    return bool(told and is_own and _pattern("SINGLE").search(note))


def is_of_another(text: str, note: str) -> bool:
    """Whether a statement opens with somebody whom a note does not name.  小王离婚了

    That a sentence opens with a name is seen by what only people do or have.
    """
    code = language_code(text)
    if _pattern("USER").search(text):
        return False
    for name in language(code.lower()).names:
        match = name.match(text)
        if not match or _is_no_name(match.group(), code):
            continue
        if _pattern(f"PERSONAL_{code}").match(text, match.end()):
            return match.group().lower() not in note.lower()
    return False


def _is_no_name(word: str, code: str) -> bool:
    """Whether the first word of a sentence is none, although it looks like a name."""
    no_names = language(code.lower()).patterns.tables.get("NOT_NAMES", {})
    return bool(no_names.keys() & word.split()) or _pattern("DAYS").fullmatch(word) is not None


def thing_is_gone(text: str, note: str) -> bool:
    """Whether a thing that a note says is had is sold, lost or given away."""
    code = language_code(text)
    if code != language_code(note) or not _pattern(f"HAD_{code}").search(note):
        return False
    return any(_is_in(it, note) for it in _objects(text, f"GONE_{code}"))


def is_given_up(text: str, note: str) -> bool:
    """Whether what a note tells of is given up, or replaced by name.  "User quit the choir" """
    code = language_code(text)
    objects = [it for name in ("STOPPED", "REPLACED") for it in _objects(text, f"{name}_{code}")]
    return code == language_code(note) and any(_is_in(it, note) for it in objects)


def is_of_something_else(text: str, note: str) -> bool:
    """Whether what a statement says to be over only belongs to what a note tells of.

    "User left the choir folder on the bus", "User is in a choir"
    """
    code, names = language_code(text), words_of(note)
    objects = [it for name in ("GONE", "STOPPED") for it in _objects(text, f"{name}_{code}")]
    return any(
        not _is_in(it, note) and bool(words_of(f"{it} {_belonging(it, text)}") & names)
        for it in objects
        if code == "EN" or "的" in it
    )


def _belonging(thing: str, text: str) -> str:
    """What a thing is part of.  ("charger", "User lost the charger of user's Kindle") -> Kindle"""
    match = re.search(rf"{re.escape(thing)} (?:of|for|from|to) (?P<whole>[^,.;]*)", text)
    return match["whole"] if match else ""


def _objects(text: str, name: str) -> Iterator[str]:
    """What is said to be over, in the words of a text."""
    bare = without_times(text) if name.endswith("ZH") else text
    for match in _pattern(name).finditer(bare):
        yield from (it.strip() for it in match.groups() if it)


def is_gone_in_part(text: str, note: str) -> bool:
    """Whether one of several that a note lists is gone.  "Rex died", "… dogs, Rex and Bella" """
    code, said = language_code(text), text.lower()
    if code != language_code(note):
        return False
    listed = _pattern("SO_FAR").match(note)  # what else is over already follows
    first, *rest = _pattern(f"LISTED_{code}").split(listed.group() if listed else note)
    if not rest or not all(_pattern(f"ITEM_{code}").fullmatch(it) for it in rest):
        return False
    items = [first, *rest]
    objects = [*_objects(text, f"GONE_{code}")] if _pattern(f"HAD_{code}").search(first) else []
    gone = [it for it in items if any(_is_in(thing, it) for thing in objects)]
    if not gone and _pattern(f"{code}_LOST").search(said):
        names = {it: _pattern("ITEM_NAME").search(it) for it in items}
        gone = [it for it, name in names.items() if name and _opens(text, name.group())]
    return 0 < len(gone) < len(items)


def _opens(text: str, name: str) -> bool:
    """Whether a clause of a text opens with a name, or says what had to be done with its bearer."""
    opening = r"(?:^|[,，;；] ?)(?:User and others (?:had to )?\w+ )?"
    return re.search(f"{opening}{_whole(name)}", text) is not None


def _is_in(thing: str, note: str) -> bool:
    """Whether a note tells of a thing: of its last word, or of what follows 的."""
    if _HAN.search(thing):
        head = thing.rpartition("的")[2] or thing
        pairs = [head[at : at + 2] for at in range(len(head) - 1)] or [head]
        return any(it in note for it in pairs if it != "用户")
    words = [it for it in thing.split() if not _pattern("GENERIC").fullmatch(it.lower())]
    return bool(words) and bool(words_of(words[-1]) & words_of(note))


def is_of_a_part(text: str, clauses: Sequence[str]) -> bool:
    """Whether a statement is about a lesser part of what some clauses say.

    "The doctor says the uric acid is down" is news of one of "uric acid 520, the doctor says gout".
    """
    words = words_of(_REPORT.sub("", text))
    shared = [bool(words_of(_REPORT.sub("", it)) & words) for it in clauses]
    return 0 < 2 * sum(shared) < len(shared)


@lru_cache(maxsize=4096)
def words_of(text: str) -> frozenset[str]:
    """The words of a text that tell of its topic."""
    return frozenset(content(text))


def size(words: frozenset[str]) -> float:
    """How much words tell; a Chinese character beside a pair of them tells little."""
    return sum(_CHARACTER if len(it) == 1 and not it.isascii() else 1.0 for it in words)
