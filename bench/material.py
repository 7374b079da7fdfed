"""The texts, questions and vectors of a run, computed once and read by every process."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.corpus import questions, texts
from bench.vectors import Matrix, VectorTable, vectors_of

WARM_UP = 5  # questions asked before the clock starts


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    vector: list[float]


@dataclass(frozen=True, slots=True)
class Material:
    texts: list[str]
    vectors: Matrix  # of the texts, row by row
    questions: list[Question]
    table: VectorTable  # texts and questions -> vectors


def prepare(folder: Path, messages: int, queries: int) -> None:
    """Writes the corpus of a run into a folder."""
    said, asked = texts(messages), questions(queries + WARM_UP)
    (folder / "texts.json").write_text(json.dumps(said, ensure_ascii=False))
    (folder / "questions.json").write_text(json.dumps(asked, ensure_ascii=False))
    np.save(folder / "vectors.npy", vectors_of([*said, *asked]))


def read(folder: Path) -> Material:
    """Reads what `prepare` wrote."""
    said: list[str] = json.loads((folder / "texts.json").read_text())
    asked: list[str] = json.loads((folder / "questions.json").read_text())
    vectors: Matrix = np.load(folder / "vectors.npy")
    return Material(
        texts=said,
        vectors=vectors[: len(said)],
        questions=[
            Question(text, vector.tolist())
            for text, vector in zip(asked, vectors[len(said) :], strict=True)
        ],
        table=VectorTable([*said, *asked], vectors),
    )
