"""Which of the user's own types a text is of, by the types' descriptions and examples.

A linear model compares the embedding and the words of a text with those of a type. It was learned
from types that it does not know by name (`bench/ontology.py`), so that it serves any others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from kemem.facts.grammar import Relation, Statement
from kemem.facts.worth import Vectors, Weights
from kemem.records import Matrix, Vector
from kemem.records.ontology import OwnType
from kemem.text.segment import STOPS, search_text

Typed = Mapping[tuple[str, ...], tuple[str, float]]  # by the notes of a clause, or of a sentence
_SURE = frozenset({"place", "occupation", "language", "field"})  # built-in types of entities
_DRAWN = 1.0  # above the threshold: what becomes a note because of its type
_NEAREST = 10  # texts of everyday talk that tell how near any text is to others


@dataclass(frozen=True, slots=True)
class OwnTypes:
    """What of a reading is of which own types: as notes, and as what relations lead to."""

    notes: Typed = field(default_factory=dict)
    entities: Typed = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # folded names of entities -> types
    relations: Mapping[str, tuple[Relation, ...]] = field(default_factory=dict)  # by clauses

    def of_note(self, clauses: Sequence[str], sentence: Sequence[str], alone: bool) -> str:
        """The type of a note of some clauses of a sentence, `alone` if it makes no other note."""
        return _of_clauses(self.notes, clauses, sentence, alone)

    def of_entity(
        self, name: str, known: str, clauses: Sequence[str], sentence: Sequence[str]
    ) -> str:
        """The type of what a relation of these clauses leads to, where its `known` one may be."""
        if own := self.names.get(name.casefold()):
            return own
        is_open = known not in _SURE  # "Rex lives in Leeds" tells nothing of Leeds
        return (is_open and _of_clauses(self.entities, clauses, sentence, True)) or known

    def related(self, statement: Statement, clauses: Sequence[str]) -> Statement:
        """A statement with the own relations of its clauses."""
        own = [it for clause in clauses for it in self.relations.get(clause, ())]
        return replace(statement, relations=(*statement.relations, *own)) if own else statement

    def draws(self, sentence: Sequence[str]) -> bool:
        """Whether a sentence becomes a note by its type: it is very near, or states a relation."""
        if any(it in self.relations for it in sentence):
            return True
        keys = ((*sentence,), *((it,) for it in sentence))
        return any(self.notes[it][1] >= _DRAWN for it in keys if it in self.notes)


def _of_clauses(typed: Typed, clauses: Sequence[str], sentence: Sequence[str], alone: bool) -> str:
    own = [typed[(it,)] for it in clauses if (it,) in typed]
    others = any((it,) in typed for it in sentence if it not in clauses)
    if not own and alone and not others and tuple(sentence) in typed:
        own = [typed[tuple(sentence)]]
    return max(own, key=lambda it: it[1])[0] if own else ""


@dataclass(frozen=True, slots=True)
class TypeProfile:
    """What texts are compared with to know whether they are of a type."""

    name: str
    has_examples: bool
    # By embeddings and by topics: a row for each example and for the description, and their mean.
    rows: tuple[Matrix, Matrix]
    means: tuple[Vector, Vector]
    topics: Vector  # their mean, not of unit length
    words: tuple[frozenset[str], ...]  # of each example
    every_word: frozenset[str]
    usual: Matrix  # how near everyday talk is to it in each way, and how much that varies


def texts_of(types: Mapping[str, OwnType]) -> list[str]:
    """What to embed of types."""
    return [text for it in types.values() for text in (*it.examples, it.description)]


def profiles(
    types: Mapping[str, OwnType], vectors: Vectors, learned: Weights
) -> tuple[TypeProfile, ...]:
    """Types with the embeddings of what `texts_of` names."""
    return tuple(_profile(name, own, vectors, learned) for name, own in types.items())


def _profile(name: str, own: OwnType, vectors: Vectors, learned: Weights) -> TypeProfile:
    matrix = np.array([vectors[text] for text in (*own.examples, own.description)])
    topics = (matrix - learned["center"]) @ learned["topics"]
    rows = (_unit(matrix), _unit(topics))
    first, second = (_unit(it.mean(axis=0)) for it in rows)
    words = tuple(words_of(text) for text in own.examples or (own.description,))
    every = frozenset[str]().union(*words)
    talk = np.column_stack(
        _nearness((learned["talk"], learned["talk_topics"]), rows, (first, second))
    )
    usual = np.array([talk.mean(axis=0), talk.std(axis=0) + 1e-6])
    center, known = topics.mean(axis=0), bool(own.examples)
    return TypeProfile(name, known, rows, (first, second), center, words, every, usual)


Both = tuple[Matrix, Matrix]  # by embeddings and by topics


def _nearness(texts: Both, rows: Both, means: tuple[Vector, Vector]) -> list[Vector]:
    """How near texts are to a type: to the mean of its examples, and to the nearest of them."""
    return [
        column
        for these, others, mean in zip(texts, rows, means, strict=True)
        for column in (these @ mean, (these @ others.T).max(axis=1))
    ]


def words_of(text: str) -> frozenset[str]:
    """The words of a text that carry meaning; of Chinese, characters and their pairs."""
    return frozenset(search_text(text).split()) - STOPS


@dataclass(frozen=True, slots=True)
class Said:
    """Texts with what they are compared by, whatever the type."""

    rows: tuple[Matrix, Matrix]  # by embeddings and by topics
    near_talk: Vector  # how near each is to everyday talk
    topics: Matrix
    words: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, texts: Sequence[str], matrix: Matrix, learned: Weights) -> "Said":
        """Texts with their embeddings."""
        near = np.sort(matrix @ learned["talk"].T, axis=1)[:, -_NEAREST:].mean(axis=1)
        topics = (matrix - learned["center"]) @ learned["topics"]
        return cls((_unit(matrix), _unit(topics)), near, topics, tuple(map(words_of, texts)))


def features(said: Said, own: TypeProfile) -> Matrix:
    """A row for each text: how near it is to a type, and to everyday talk."""
    near = _nearness(said.rows, own.rows, own.means)
    # A type may be near to everything: what is nearer than everyday talk is tells more.
    columns: list[Vector] = [said.near_talk, *near]
    columns += [*((np.column_stack(near) - own.usual[0]) / own.usual[1]).T]
    columns += [own.topics[said.topics.argmax(axis=1)]]
    columns += [np.abs(said.topics - own.topics).mean(axis=1)]
    shares = [
        (_share(words, own.every_word), max((_share(words, it) for it in own.words), default=0.0))
        for words in said.words
    ]
    return np.column_stack([*columns, np.array(shares, np.float32).reshape(-1, 2)])


def match(
    texts: Sequence[str],
    vectors: Vectors,
    types: Sequence[TypeProfile],
    learned: Weights,
    least: float = 0.0,
) -> dict[str, tuple[str, float]]:
    """The type that each text is likeliest of, and by how much it is above the threshold.

    Those with less than the `least` are left out.
    """
    known = [text for text in dict.fromkeys(texts) if text in vectors]
    if not known or not types:
        return {}
    said = Said.of(known, np.array([vectors[text] for text in known]), learned)
    scores = np.column_stack([_scores(said, own, learned) for own in types])
    best = scores.argmax(axis=1)
    return {
        text: (types[at].name, float(scores[place, at]))
        for place, (text, at) in enumerate(zip(known, best, strict=True))
        if scores[place, at] >= least
    }


def _scores(said: Said, own: TypeProfile, learned: Weights) -> Vector:
    weights = learned["with_examples" if own.has_examples else "without_examples"]
    return np.asarray(features(said, own) @ weights[:-1] + weights[-1], np.float32)


def _share(words: frozenset[str], others: frozenset[str]) -> float:
    return len(words & others) / len(words) if words else 0.0


def _unit(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-9))


def prepared(arrays: Mapping[str, npt.NDArray[Any]]) -> Weights:
    """Weights as they are computed with, from those that are stored in fewer bits."""
    learned = {name: it.astype(np.float32) for name, it in arrays.items()}
    talk = _unit(learned["talk"])
    topics = _unit((talk - learned["center"]) @ learned["topics"])
    return learned | {"talk": talk, "talk_topics": topics}


@cache
def weights() -> Weights:
    """The weights that come with the package."""
    with (files(__package__) / "types.npz").open("rb") as file, np.load(file) as arrays:
        return prepared({name: arrays[name] for name in arrays.files})
