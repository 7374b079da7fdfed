"""Which of the user's own types a text is of, by the types' descriptions and examples.

A linear model compares the embedding and the words of a text with those of a type. It was learned
from types that it does not know by name (`bench/ontology.py`), so that it serves any others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from kemem.facts.worth import Vectors, Weights
from kemem.records import Matrix, Vector
from kemem.records.ontology import OwnType
from kemem.text.segment import STOPS, search_text

Typed = Mapping[tuple[str, ...], tuple[str, float]]  # by the notes of a clause, or of a sentence
_DRAWN = 1.0  # above the threshold: what becomes a note because of its type
_NEAREST = 10  # texts of everyday talk that tell how near any text is to others


@dataclass(frozen=True, slots=True)
class OwnTypes:
    """What of a reading is of which own types: as notes, and as what relations lead to."""

    notes: Typed = field(default_factory=dict)
    entities: Typed = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # folded names of entities -> types

    def of_note(self, clauses: Sequence[str], sentence: Sequence[str], alone: bool) -> str:
        """The type of a note of some clauses of a sentence, `alone` if it makes no other note."""
        return _of_clauses(self.notes, clauses, sentence, alone)

    def of_entity(self, name: str, clauses: Sequence[str], sentence: Sequence[str]) -> str:
        """The type of what a relation of these clauses leads to."""
        own = self.names.get(name.casefold())
        return own or _of_clauses(self.entities, clauses, sentence, True)

    def draws(self, sentence: Sequence[str]) -> bool:
        """Whether a sentence is so near to a type that it becomes a note."""
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
    matrix: Matrix  # a row for each example, and one for the description
    words: tuple[frozenset[str], ...]  # of each example


def texts_of(types: Mapping[str, OwnType]) -> list[str]:
    """What to embed of types."""
    return [text for it in types.values() for text in (*it.examples, it.description)]


def profiles(types: Mapping[str, OwnType], vectors: Vectors) -> tuple[TypeProfile, ...]:
    """Types with the embeddings of what `texts_of` names."""
    return tuple(
        TypeProfile(
            name,
            bool(own.examples),
            np.array([vectors[text] for text in (*own.examples, own.description)]),
            tuple(words_of(text) for text in own.examples or (own.description,)),
        )
        for name, own in types.items()
    )


def words_of(text: str) -> frozenset[str]:
    """The words of a text that carry meaning; of Chinese, characters and their pairs."""
    return frozenset(search_text(text).split()) - STOPS


def features(texts: Sequence[str], matrix: Matrix, own: TypeProfile, learned: Weights) -> Matrix:
    """A row for each text: how near it is to a type, and to everyday talk."""
    topics, center, talk = (
        learned[name].astype(np.float32) for name in ("topics", "center", "talk")
    )
    near_talk = np.sort(matrix @ _unit(talk).T, axis=1)[:, -_NEAREST:]
    columns: list[Vector] = [near_talk.mean(axis=1)]
    logits, own_logits = (matrix - center) @ topics, (own.matrix - center) @ topics
    for these, those in ((matrix, own.matrix), (logits, own_logits)):
        rows, others = _unit(these), _unit(those)
        columns += [rows @ _unit(others.mean(axis=0)), (rows @ others.T).max(axis=1)]
    mean = own_logits.mean(axis=0)
    columns += [mean[logits.argmax(axis=1)], np.abs(logits - mean).mean(axis=1)]
    every = frozenset[str]().union(*own.words)
    shares = [
        (_share(said, every), max((_share(said, it) for it in own.words), default=0.0))
        for said in map(words_of, texts)
    ]
    return np.column_stack([*columns, np.array(shares, np.float32).reshape(-1, 2)])


def match(
    texts: Sequence[str], vectors: Vectors, types: Sequence[TypeProfile], learned: Weights
) -> dict[str, tuple[str, float]]:
    """The type that each text is likeliest of, and by how much it is above the threshold."""
    known = [text for text in dict.fromkeys(texts) if text in vectors]
    if not known or not types:
        return {}
    matrix = np.array([vectors[text] for text in known])
    scores = np.column_stack([_scores(known, matrix, own, learned) for own in types])
    best = scores.argmax(axis=1)
    return {
        text: (types[at].name, float(scores[place, at]))
        for place, (text, at) in enumerate(zip(known, best, strict=True))
        if scores[place, at] >= 0
    }


def _scores(texts: Sequence[str], matrix: Matrix, own: TypeProfile, learned: Weights) -> Vector:
    weights = learned["with_examples" if own.has_examples else "without_examples"]
    rows = features(texts, matrix, own, learned)
    return np.asarray(rows @ weights[:-1] + weights[-1], np.float32)


def _share(words: frozenset[str], others: frozenset[str]) -> float:
    return len(words & others) / len(words) if words else 0.0


def _unit(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-9))


@cache
def weights() -> Weights:
    """The weights that come with the package."""
    with (files(__package__) / "types.npz").open("rb") as file, np.load(file) as arrays:
        return {name: arrays[name] for name in arrays.files}
