"""Which stored note a statement makes untrue: a linear model of their words, form and embeddings.

The weights are learned from labelled conversations by `bench/extraction/endings.py`. What decides
is whether both are about the same thing, and whether the statement tells of a change: "The Octavia
is sold" ends "User drives a Skoda Octavia", and "The Octavia is worth 5,000" does not.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import numpy as np

from kemem.facts.frames import corrected_note, is_correction
from kemem.facts.kinds import VALUES, answers, moves_another, signs, tells_other_kind
from kemem.facts.losses import (
    animal_is_gone,
    is_given_up,
    is_gone_in_part,
    is_of_a_part,
    is_of_another,
    is_of_something_else,
    is_paired,
    language_code,
    partner_is_gone,
    size,
    thing_is_gone,
    words_of,
)
from kemem.records import Vector
from kemem.text.lexicon import load
from kemem.text.reading import is_about_others, named_people, people_of

CHANGES = frozenset({"CHANGED", "NOW", "OVER", "BACK", "WRONG"})
# That something may be over, or does not come.
TELLING = CHANGES | {"LOST", "GONE", "PARTED", "PAIRED", "TAKEN_BACK", "STAYS", "PUT_OFF"}

_INSTEAD = frozenset({"OVER", "WRONG"})  # signs of an end, not only of something new
_ENDING = frozenset({"OVER", "CHANGED", "BACK", "WRONG", "LOST", "GONE"})  # what a thing ends by
_PLANNED = frozenset({"plan", "event"})
_PERSONAL = frozenset(  # of the user alone: news and hearsay of others do not change it
    {"work", "residence", "education", "health", "relationship", "identity"}
    | {"user_preference", "possession"}
)
CERTAIN = 1.4  # log odds from which on a note is over
LIKELY = 0.9  # of one that says the same kind of thing as a clause that tells of a change itself
PLAUSIBLE = 0.0  # of one that somebody else, who has read both, says to be over
_LINKED = {"embedded": 0.0, "words": -0.7}  # of one that is preferred to another
NEAREST = 12  # notes that a statement is compared with
_PARTNERS = {"partner", "wife", "husband", "friend"}  # one of whom may have become another
_IS_OF_USER = re.compile("User (?!and )|用户(?![的和跟与])")
_COMPOUND = re.compile("[，；]|[,;] ")
_LONG = {"ZH": 40, "EN": 120}  # characters

Features = dict[str, float]


@dataclass(frozen=True, slots=True)
class Told:
    """A statement or a note, with what it is compared by."""

    text: str
    memory_type: str = "general"
    vector: Vector | None = None
    message: str = ""  # that it is part of; only of a new statement
    message_vector: Vector | None = None
    rating: float = 0.0  # how much it is worth keeping
    clauses: tuple[str, ...] = ()  # that it is made of, if there are several
    others: tuple[str, ...] = ()  # clauses of the message that are not part of it
    speaker: str | None = None  # whom the texts call by name; None: the user

    @property
    def compound(self) -> bool:
        """Whether it says more than one thing, all of which would end with it."""
        return _COMPOUND.search(self.text) is not None

    @property
    def adds(self) -> bool:
        """Whether it tells of one more, and not of one instead.  "I work at a bakery, too" """
        return "ADDS" in signs(self.text) and not signs(self.text) & _INSTEAD

    @property
    def changes(self) -> bool:
        """Whether it tells that something has changed, and not only that somebody wants it to."""
        told = signs(self.message) & TELLING or is_correction(self.message)
        return bool(told) and "HOPED" not in signs(self.text) and not self.adds


def as_of_user(told: Told, speaker: str) -> Told:
    """What a speaker with a name has told, as if the user had: so all rules are written."""
    name = re.compile(rf"(?<![A-Za-z]){re.escape(speaker)}(?![A-Za-z])")

    def renamed(text: str) -> str:
        return name.sub("用户" if language_code(text) == "ZH" else "User", text)

    return replace(
        told,
        text=renamed(told.text),
        clauses=tuple(map(renamed, told.clauses)),
        others=tuple(map(renamed, told.others)),
        speaker=None,
    )


def ended_notes(
    new: Told, notes: Sequence[Told], learned: "Weights | None" = None
) -> tuple[int, ...]:
    """The places of the notes that a statement makes untrue; none where that is not certain.

    It is the one that the model is most certain of, or all that tell of an animal that is gone. Of
    several clauses each may end one: that which says the same kind of thing.
    """
    if not new.changes:
        return ()
    own = [at for at, note in enumerate(notes) if may_end(new, note)]
    if gone := _by_verb(new, notes, own):
        return tuple(gone)
    texts = [note.text for note in notes]
    for text in new.clauses or (new.text,):
        if (wrong := corrected_note(text, new.message, texts)) is not None:
            return (wrong,)
    if not signs(new.message) & CHANGES:
        return ()
    weights = (learned or _weights())["words" if _bare(new, notes) else "embedded"]
    own = [at for at in own if _fits(new.text, new.others, notes[at])]
    ended = _most_certain(new, notes, own, weights)
    for clause in new.clauses:
        others = [it for it in new.clauses if it != clause]
        if ended and _fits(clause, others, notes[ended[0]]):
            continue
        part = replace(new, text=clause, memory_type="general")
        alike = [
            at
            for at, note in enumerate(notes)
            if at not in ended and answers(clause) & answers(note.text) and not note.compound
            if may_end(part, note) and not _had_once(new.text, note.text)
            if _fits(clause, [*others, *new.others], note)
        ]
        ended += _most_certain(part, notes, alike, weights)
    return tuple(ended)


def likely_ended(new: Told, notes: Sequence[Told]) -> int | None:
    """The place of the note that a statement likely makes untrue, where that is not certain.

    Such a note is not over, but what is told later is preferred to it.
    """
    if not new.changes or not signs(new.message) & CHANGES:
        return None
    own = [at for at, note in enumerate(notes) if may_end(new, note) and not note.compound]
    own = [at for at in own if _fits(new.text, new.others, notes[at])]
    kind = "words" if _bare(new, notes) else "embedded"
    values = _values(features(new, [notes[at] for at in own]), _weights()[kind])
    best = max(range(len(own)), key=values.__getitem__, default=None)
    return own[best] if best is not None and values[best] >= _LINKED[kind] else None


def is_lost_in_part(new: Told, note: str) -> bool:
    """Whether a change that is told is the end of one of several things that a note lists."""
    undone = signs(new.message) & {"FOUND", "UNDONE"} or signs(new.text) & {"OTHERS", "THEIRS"}
    return not undone and is_gone_in_part(new.text, note)


def says_instead(note: str, first: str, second: str) -> bool:
    """Whether the second of two statements says what holds instead of a note that the first ended.

    ("User's vet is Dr Huber", "Dr Huber is retired", "User's new vet is Dr Ng") -> True
    """
    words = words_of(note)
    more = words_of(second) & words - words_of(first)
    return answers(note) <= answers(second) and bool(more) and size(more) >= 1


def plausible(new: Told, notes: Sequence[Told], claimed: int) -> bool:
    """Whether a statement may have made one of some notes untrue, as a language model says.

    It tells of a change of the same person and thing, or it says why: by its verb, or by its words.
    """
    note = notes[claimed]
    if not new.changes or not may_end(new, note):
        return False
    if _by_verb(new, [note], [0]):
        return True
    weights = _weights()["words" if _bare(new, notes) else "embedded"]
    return _values(features(new, notes), weights)[claimed] >= PLAUSIBLE


def _most_certain(
    new: Told, notes: Sequence[Told], own: Sequence[int], weights: Mapping[str, float]
) -> list[int]:
    """The place of the note that a statement most certainly makes untrue, if it is certain."""
    rows = dict(zip(own, features(new, [notes[at] for at in own]), strict=True))
    values = dict(zip(rows, _values([*rows.values()], weights), strict=True))
    best = max(own, key=values.__getitem__, default=None)
    if best is None:
        return []
    same_kind, shown = answers(new.text) & answers(notes[best].text), signs(new.text)
    if rows[best]["long"] > 1 and not shown & _ENDING and not same_kind:
        return []  # in a long message a word like "now" may belong to anything
    if notes[best].compound and is_of_a_part(new.text, _COMPOUND.split(notes[best].text)):
        return []
    alike = rows[best]["thing"] and same_kind and shown & CHANGES and not notes[best].compound
    return [best] if values[best] >= (LIKELY if alike else CERTAIN) else []


def _values(rows: Sequence[Features], weights: Mapping[str, float]) -> list[float]:
    """The log odds of what features tell."""
    bias = weights["bias"]
    return [bias + sum(weights.get(name, 0.0) * it for name, it in row.items()) for row in rows]


def _fits(text: str, others: Sequence[str], note: Told) -> bool:
    """Whether none of some other clauses says more of what a note says than a text does."""
    kinds, words = answers(note.text), words_of(note.text)
    values = [(len(answers(it) & kinds), size(words_of(it) & words)) for it in (text, *others)]
    return values[0] >= max(values)


def may_end(new: Told, note: Told) -> bool:
    """Whether a statement can make a note untrue at all, whatever else they share.

    What is only planned changes plans; what a sister or an animal does changes neither its name
    nor that there is one; and what happens to somebody else changes nothing.
    """
    own, old = signs(new.text), signs(note.text)
    ahead = new.memory_type == "plan" or "AHEAD" in own
    if ahead and note.memory_type not in _PLANNED and "TIME" not in old:
        return False
    if note.memory_type == "identity" and new.memory_type != "identity":
        told = answers(new.text) & answers(note.text) and "CHANGED" in own and not note.compound
        if not told and "WRONG" not in own and not _loses(new, note):
            return False
    if note.memory_type == "possession" and not (own & _ENDING or new.memory_type == "possession"):
        return False
    introduced = load(__package__, "endings.rules").pattern("INTRODUCED").search
    if introduced(note.text) and not introduced(new.text) and "WRONG" not in own:
        return _loses(new, note)
    if "UNDONE" in own and note.memory_type not in _PLANNED:  # "User didn't sell the Panda"
        return False
    if _had_once(new.text, note.text) or _no_longer_elsewhere(new.text, note.text):
        return False
    if tells_other_kind(new.text, note.text) or moves_another(new.text, note.text):
        return False
    if _of_others(new, note):
        return False
    return _loses(new, note) or not is_of_something_else(new.text, note.text)


def _had_once(text: str, note: str) -> bool:
    """Whether a statement tells of what was over long ago, and is not what a note tells of.

    "User used to have a cat, kids still miss him" does not change how many kids there are.
    """
    once = load(__package__, "endings.rules").pattern("ONCE_EN").search(text)
    return once is not None and not words_of(once["once"]) & words_of(note)


def _no_longer_elsewhere(text: str, note: str) -> bool:
    """Whether a statement says that something else no longer does something else.

    "Search no longer depends on Redis" does not change what the checkout depends on.
    """
    rules = load(__package__, "endings.rules")
    said = rules.pattern(f"NO_LONGER_{language_code(text)}").search(text)
    told = words_of(note)
    return said is not None and not any(words_of(said[it]) <= told for it in ("who", "what"))


def _of_others(new: Told, note: Told) -> bool:
    """Whether a statement is about somebody whom a note does not speak of."""
    own = signs(new.text)
    of_user = _IS_OF_USER.match(note.text) is not None
    personal = note.memory_type in _PERSONAL or (of_user and not answers(note.text))
    if "HEARD" in own and personal:
        return True
    if "CLOSE" in own and "PARTED" not in own and of_user:
        return True
    if is_namesake(new.text, note.text):
        return True
    names = {*named_people(new.text), *named_people(note.text)}
    shared = people_of(new.text) & people_of(note.text)
    known = any(it[0] != "@" or it[1:] in names for it in shared)
    if _IS_OF_USER.match(new.text) and is_about_others(note.text) and not known:
        return not _loses(new, note)  # that the user moved to Oslo is no news of a brother there
    if "OTHERS" in own:
        return not known or "PARTED" in own
    return "THEIRS" in own or is_of_another(new.text, note.text)


def is_namesake(text: str, note: str) -> bool:
    """Whether two people have one name.  ("User's colleague Otto …", "User's brother Otto …")"""
    own, old = named_people(text), named_people(note)
    roles = [{own[name], old[name]} for name in own.keys() & old.keys()]
    return any(len(it) > 1 and not it <= _PARTNERS for it in roles)


def _by_verb(new: Told, notes: Sequence[Told], own: Sequence[int]) -> list[int]:
    """The places of the notes that the verb of a statement ends, if what it says so of is certain.

    Of activities it is one; an animal, a partner or a thing may be told of more than once.
    """
    gone = [at for at in own if _loses(new, notes[at])]
    alone = [at for at in own if not notes[at].compound]
    given_up = [at for at in alone if is_given_up(new.text, notes[at].text)]
    return gone or (given_up if len(given_up) == 1 else [])


def _loses(new: Told, note: Told) -> bool:
    parted = note.memory_type != "residence" and partner_is_gone(new.text, note.text)
    if parted or is_paired(new.text, note.text):
        return True
    if "FOUND" in signs(new.message):
        return False
    if animal_is_gone(new.text, note.text):
        return True
    return not note.compound and thing_is_gone(new.text, note.text)


Weights = Mapping[str, Mapping[str, float]]


def _bare(new: Told, notes: Sequence[Told]) -> bool:
    return new.message_vector is None or any(it.vector is None for it in notes)


def features(new: Told, notes: Sequence[Told]) -> list[Features]:
    """What speaks for and against each note's being over."""
    bare = _bare(new, notes)
    rows = [_pair(new, note, bare) for note in notes]
    near = [row["near"] + 0.3 * row["shared"] for row in rows]
    for at, row in enumerate(rows):
        others = max((it for place, it in enumerate(near) if place != at), default=0.0)
        row["first"] = float(near[at] > others)
        row["margin"] = max(-0.3, min(0.3, near[at] - others))
    return rows


def _pair(new: Told, note: Told, bare: bool) -> Features:
    said, own, old = signs(new.message), signs(new.text), signs(note.text)
    words, theirs = words_of(new.message), words_of(note.text)
    people, others = people_of(new.message), people_of(note.text)
    shared = words & theirs
    names = {it[1:] for it in others if it[0] == "@"}
    things = frozenset(it for it in shared if len(it) > 1 and it not in names)
    change, thing = float(bool(said & CHANGES)), float(bool(things))
    near = 0.0 if bare else _cosine(new.message_vector, note.vector)
    row = {
        "near": near,
        "near_own": 0.0 if bare else _cosine(new.vector, note.vector),
        "near_changed": change * near,
        "shared": min(size(shared), 4) / 4,
        "covered": size(shared) / (size(theirs) + 1),
        "covers": size(words_of(new.text) & theirs) / (size(words_of(new.text)) + 1),
        "thing": thing,
        "thing_changed": change * thing,
        "thing_over": thing * ("OVER" in said),
        "changed": change,
        "rating": max(-5.0, min(6.0, new.rating)) / 5,
        "long": min(len(new.message) / _LONG[language_code(new.message)], 2.0),
        "same_people": float(bool(people & others)),
        "other_people": float(bool(others) and not people & others),
        "more_people": float(bool(people) and not others),
        "same_type": float(new.memory_type == note.memory_type != "general"),
        "other_type": float("general" not in {new.memory_type, note.memory_type})
        * (new.memory_type != note.memory_type),
        "event": float(note.memory_type == "event"),
    }
    row |= {f"said_{name}": 1.0 for name in said}
    row |= {f"own_{name}": 1.0 for name in own}
    row |= {f"old_{name}": 1.0 for name in old}
    row |= {f"both_{name}": 1.0 for name in VALUES if name in said and name in old}
    return row


def _cosine(one: Vector | None, other: Vector | None) -> float:
    if one is None or other is None:
        return 0.0
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other) + 1e-9))


@cache
def _weights() -> Weights:
    weights: Weights = json.loads((files(__package__) / "endings.json").read_text("utf-8"))
    return weights
