"""How well notes and relations get types that users define, without an LLM; and learned weights.

`python -m bench.ontology` reports precision and recall on the half of `bench/data/ontology` that
nothing was learned from; with `--write` it first learns the weights of notes from the other half.
"""

import argparse
import asyncio
import re
import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.extraction.turns import FILES, NOON, turns
from kemem.add.extract import extract
from kemem.backends.local import LocalEmbedder
from kemem.facts.types import (
    Said,
    TypeProfile,
    features,
    match,
    prepared,
    profiles,
    texts_of,
    weights,
)
from kemem.facts.worth import Vectors, Weights
from kemem.ports import Deps
from kemem.ports.ontology import CurrentOntology
from kemem.records import Message
from kemem.records.ontology import Ontology, OwnType
from kemem.testing import FakeClock
from kemem_conformance.ram import RamStore

HERE = Path(__file__).parent / "data" / "ontology"
WEIGHTS = Path(__file__).parents[1] / "src" / "kemem" / "facts" / "types.npz"
PRECISION = 0.83  # on the half that is learned from, each type by a model that has not seen it
_TALK = 600  # clauses of everyday talk that are kept
_RIDGE, _LEAST_SQUARES = 10.0, 10.0
Floats = npt.NDArray[np.float64]
Sentence = tuple[str, str]  # a type, or none, and a text


def sentences() -> tuple[list[Sentence], list[Sentence]]:
    """The half that is learned from, and the other."""
    halves: tuple[list[Sentence], list[Sentence]] = ([], [])
    count: dict[str, int] = {}
    for line in (HERE / "sentences.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, text = (part.strip() for part in line.split("|", 1))
        count[kind] = count.get(kind, 0) + 1
        halves[count[kind] % 2 == 0].append((kind, text))
    return halves


def embed(texts: Sequence[str]) -> dict[str, Any]:
    """The vectors of texts."""
    unique = list(dict.fromkeys(texts))
    return dict(
        zip(unique, asyncio.run(LocalEmbedder().embed(unique, purpose="passage")), strict=True)
    )


def learn_topics() -> dict[str, npt.NDArray[Any]]:
    """What everyday talk is about, by its labels; and a sample of it."""
    rows = [
        (text, it.kinds) for name in FILES for it in turns(name) for text in it.kept or (it.text,)
    ]
    vectors = embed([text for text, _ in rows])
    matrix = np.array([vectors[text] for text, _ in rows], np.float64)
    labels = sorted({kind for _, kinds in rows for kind in kinds})
    wanted = np.array([[(kind in kinds) / len(kinds) for kind in labels] for _, kinds in rows])
    center = matrix.mean(axis=0)
    moved = matrix - center
    square = moved.T @ moved + _LEAST_SQUARES * np.eye(matrix.shape[1])
    topics = np.linalg.solve(square, moved.T @ (wanted - wanted.mean(axis=0)))
    topics /= (moved @ topics).std(axis=0)
    chosen = np.random.default_rng(0).choice(len(matrix), _TALK, replace=False)
    talk = np.round(matrix[chosen] * 127 / np.abs(matrix[chosen]).max(axis=1, keepdims=True))
    return {
        "topics": topics.astype(np.float16),
        "center": center.astype(np.float16),
        "talk": talk.astype(np.int8),
    }


def logistic(rows: Floats, wanted: Floats) -> Floats:
    """Weights and bias of a logistic regression, for rows that are not normalised."""
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    x = np.column_stack([(rows - mean) / scale, np.ones(len(rows))])
    penalty = _RIDGE * np.diag([*[1.0] * (x.shape[1] - 1), 1e-6])
    b = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-x @ b))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + penalty
        b -= np.linalg.solve(hessian, x.T @ (p - wanted) + penalty @ b)
    plain = b[:-1] / scale
    return np.append(plain, b[-1] - plain @ mean)


Task = tuple[Sequence[TypeProfile], Sequence[Sentence]]  # types, and what to tell of them


def learn(tasks: Sequence[Task], vectors: Vectors, learned: Weights) -> Floats:
    """Weights of the model; its bias puts the threshold where `PRECISION` is reached."""
    rows = [it for types, half in tasks for it in _rows(types, half, vectors, learned)]
    names = list(dict.fromkeys(own for own, *_ in rows))
    scored = []
    for name in names:  # by a model that knows neither the type nor its sentences
        w = logistic(*_table([it for it in rows if name not in (it[0], it[1])]))
        scored += [
            (task, text, own, kind, x @ w[:-1] + w[-1])
            for own, kind, x, text, task in rows
            if own == name
        ]
    first = id(tasks[0][0])  # with as many examples as people give
    least = _threshold([it for it in scored if it[0] == first])
    w = logistic(*_table(rows))
    return np.append(w[:-1], w[-1] - least)


Row = tuple[str, str, Floats, str, int]


def _rows(
    types: Sequence[TypeProfile], half: Sequence[Sentence], vectors: Vectors, learned: Weights
) -> list[Row]:
    texts = [text for _, text in half]
    said = Said.of(texts, np.array([vectors[text] for text in texts]), learned)
    return [
        (own.name, kind, x, text, id(types))
        for own in types
        for (kind, text), x in zip(half, features(said, own).astype(np.float64), strict=True)
    ]


def _table(rows: Sequence[Row]) -> tuple[Floats, Floats]:
    return np.array([x for _, _, x, _, _ in rows]), np.array(
        [own == kind for own, kind, *_ in rows], float
    )


def _threshold(scored: Sequence[tuple[int, str, str, str, float]]) -> float:
    best: dict[tuple[int, str], tuple[float, bool, str]] = {}
    for task, text, own, kind, score in scored:
        best[task, text] = max(
            best.get((task, text), (-1e9, False, kind)), (score, own == kind, kind)
        )
    top = np.array([it[0] for it in best.values()])
    right = np.array([it[1] for it in best.values()])
    found = [(right[top >= it].mean(), right[top >= it].sum(), it) for it in np.unique(top)]
    precision, count, least = max((it for it in found if it[0] >= PRECISION), key=lambda it: it[1])
    wanted = sum(it[2] != "none" for it in best.values())
    print(f"learned half, unseen types: P {precision:.2f} R {count / wanted:.2f}")
    return float(least)


def report(
    title: str,
    half: Sequence[Sentence],
    types: Sequence[TypeProfile],
    vectors: Vectors,
    learned: Weights,
) -> None:
    """Precision and recall on sentences, of all and of each language."""
    found = match([text for _, text in half], vectors, types, learned)
    for language in ("all", "en", "zh"):
        own = [it for it in half if language in ("all", "en" if it[1].isascii() else "zh")]
        typed = [(kind, found[text][0]) for kind, text in own if text in found]
        right = sum(kind == given for kind, given in typed)
        wanted = sum(kind != "none" for kind, _ in own)
        precision, recall = right / max(len(typed), 1), right / wanted
        print(f"{title} {language}: P {precision:.2f} R {recall:.2f} ({len(own)} sentences)")


Edge = tuple[str, str, str]  # type, source and target


def relations(half: str) -> Iterator[tuple[str, frozenset[Edge]]]:
    """Sentences of a half, and the edges that they state."""
    for line in (HERE / f"relations_{half}.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            kind, text, stated = (part.strip() for part in line.split("|"))
            ends = [it.split(" > ") for it in stated.split(";") if " > " in it]
            yield text, frozenset((kind, _plain(one), _plain(other)) for one, other in ends)


def _plain(end: str) -> str:
    """An end as it is compared: without articles, and with its speaker as "user"."""
    end = re.sub(r"^(?:i|we|我们?)$", "user", end.strip().casefold())
    end = re.sub(r"^(?:my|our) ", "user's ", re.sub("^我们?的?", "user的", end))
    return re.sub(r"^(?:the|an?) ", "", re.sub("(?<=[^a-z.]) | (?=[^a-z\\d])", "", end))


def _is_same(found: Edge, stated: Edge) -> bool:
    """Whether both are of one type and between the same; one more word is no harm."""
    more = r"(?: [\w.]+|的[^的]{1,2})?"
    ends = zip(found[1:], stated[1:], strict=True)
    return found[0] == stated[0] and all(re.fullmatch(f"{re.escape(b)}{more}", a) for a, b in ends)


def report_relations(title: str, half: str, types: Mapping[str, OwnType]) -> None:
    """Precision and recall of edges on a half, of each language with all its types at once."""
    sentences, counts = list(relations(half)), np.zeros(3, int)
    for language in ("en", "zh", "all"):
        own = [it for it in sentences if language == ("en" if it[0].isascii() else "zh")]
        counts += (counted := _counted(own, types))
        right, given, wanted = counts if language == "all" else counted
        print(f"{title} {language}: P {right / given:.2f} R {right / wanted:.2f} ({wanted} edges)")


def _counted(
    sentences: Sequence[tuple[str, frozenset[Edge]]], types: Mapping[str, OwnType]
) -> tuple[int, int, int]:
    """How many edges are right, how many there are, and how many there should be."""
    names = {kind for _, edges in sentences for kind, _, _ in edges}
    ontology = Ontology(relations={name: own for name, own in types.items() if name in names})
    deps = Deps(RamStore(), LocalEmbedder(), FakeClock(NOON), ontology=CurrentOntology(ontology))
    found = [(asyncio.run(_edges(text, names, deps)), edges) for text, edges in sentences]
    right = sum(any(_is_same(it, one) for one in edges) for some, edges in found for it in some)
    return right, sum(len(some) for some, _ in found), sum(len(edges) for _, edges in found)


async def _edges(text: str, names: Container[str], deps: Deps) -> frozenset[Edge]:
    message = Message("m", "bench", "user", "talk", "user", text, NOON, NOON)
    extraction = await extract([message], [], None, deps)
    edges = (it for fact in extraction.facts for it in fact.relations if it.relationship in names)
    return frozenset((it.relationship, _plain(it.source), _plain(it.destination)) for it in edges)


def bare(types: Mapping[str, OwnType]) -> dict[str, OwnType]:
    """Types that have a description only."""
    return {name: OwnType(it.description) for name, it in types.items()}


def with_more_examples(
    types: Mapping[str, OwnType], half: Sequence[Sentence]
) -> tuple[list[Sentence], dict[str, OwnType]]:
    """Types to which every second sentence of a half is an example, and the other sentences."""
    own = {name: [text for kind, text in half if kind == name][::2] for name in types}
    given = {text for texts in own.values() for text in texts}
    more = {name: OwnType(it.description, (*it.examples, *own[name])) for name, it in types.items()}
    return [it for it in half if it[1] not in given], more


def learn_all(
    types: Mapping[str, OwnType], half: Sequence[Sentence], vectors: Vectors
) -> dict[str, npt.NDArray[Any]]:
    """All weights, as they are stored."""
    stored = learn_topics()
    learned = prepared(stored)
    rest, more = with_more_examples(types, half)
    tasks = [(profiles(types, vectors, learned), half), (profiles(more, vectors, learned), rest)]
    stored["with_examples"] = learn(tasks, vectors, learned).astype(np.float32)
    tasks = [(profiles(bare(types), vectors, learned), half)]
    stored["without_examples"] = learn(tasks, vectors, learned).astype(np.float32)
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="learn the weights again, and write them"
    )
    write = parser.parse_args().write
    ontology = Ontology.parse(tomllib.loads((HERE / "types.toml").read_text("utf-8")))
    types = ontology.notes
    first, second = sentences()
    vectors = embed([*texts_of(types), *(text for _, text in (*first, *second))])
    if write:
        np.savez_compressed(WEIGHTS, **learn_all(types, first, vectors))
    found = weights()
    rich, poor = profiles(types, vectors, found), profiles(bare(types), vectors, found)
    report("with examples", second, rich, vectors, found)
    _, more = with_more_examples(types, first)
    report("with 8 examples", second, profiles(more, vectors, found), vectors, found)
    report("description only", second, poor, vectors, found)
    report_relations("relations", "unseen", ontology.relations)


if __name__ == "__main__":
    main()
