"""The texts and vectors of a run, computed once and read by both processes."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.corpus import questions, texts
from bench.material import WARM_UP
from bench.remember.figures import Plan
from bench.remember.talk import Told, conversation
from bench.vectors import VectorTable, vectors_of


@dataclass(frozen=True, slots=True)
class Material:
    texts: list[str]  # to be loaded
    questions: list[str]
    messages: list[str]  # of the talk
    table: VectorTable


def prepare(folder: Path, plan: Plan) -> list[Told]:
    """Writes the texts of a run into a folder; what a model should note of them is returned."""
    told = conversation(plan.told)
    kept = {
        "texts": texts(plan.memories),
        "questions": questions(plan.queries + WARM_UP),
        "messages": [each.message for each in told],
        # What the systems embed besides: facts, and messages as mem0 looks them up.
        "others": [
            *dict.fromkeys(fact for each in told for fact in each.facts),
            *(f"user: {each.message}\n" for each in told),
        ],
    }
    (folder / "texts.json").write_text(json.dumps(kept, ensure_ascii=False))
    np.save(folder / "vectors.npy", vectors_of(text for part in kept.values() for text in part))
    return told


def read(folder: Path) -> Material:
    """Reads what `prepare` wrote."""
    kept: dict[str, list[str]] = json.loads((folder / "texts.json").read_text())
    return Material(
        texts=kept["texts"],
        questions=kept["questions"],
        messages=kept["messages"],
        table=VectorTable(
            [text for part in kept.values() for text in part], np.load(folder / "vectors.npy")
        ),
    )
