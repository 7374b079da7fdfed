"""Files of annotated conversations, and what a ranking of their messages is worth."""

import gzip
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

KS = (1, 5, 10, 20)
MAIN = "recall@10"
JUDGED = (MAIN, "hit@1", "ndcg@10")  # what decides
SAMPLES = 1_000  # of the bootstrap


def users(path: Path, datasets: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The users of a file, one by one; a set that it does not hold is refused before any work."""
    if not path.is_file():
        raise SystemExit(f"--data must be a file, not {path}")
    known = sorted({user["dataset"] for user in _read(path)}) if datasets else []
    if missing := sorted({*datasets} - {*known}):
        raise SystemExit(f"{path} has the sets {', '.join(known)}, not {', '.join(missing)}")
    return (user for user in _read(path) if not datasets or user["dataset"] in datasets)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def texts(user: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a user that say something."""
    return [it for it in user["messages"] if it["content"].strip()]


def evidence(query: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The groups of ids that answer a question, as far as they are stored; any of a group does."""
    ids = {it["message_id"] for it in messages}
    groups = query["evidence_groups"] if query["answerable"] else []
    return [known for group in groups if (known := [it for it in group if it in ids])]


def score(groups: Sequence[Sequence[str]], ranked: Sequence[str]) -> dict[str, float]:
    """What a ranking of message ids is worth."""
    places = [next((at for at, it in enumerate(ranked) if it in group), None) for group in groups]
    found = [place for place in places if place is not None]
    ideal = sum(1 / math.log2(at + 2) for at in range(min(len(groups), 10)))
    gained = sum(1 / math.log2(at + 2) for at in {*found} if at < 10)
    metrics = {"mrr": 1 / (1 + min(found)) if found else 0.0, "ndcg@10": gained / ideal}
    for k in KS:
        metrics[f"recall@{k}"] = sum(place < k for place in found) / len(groups)
        metrics[f"hit@{k}"] = float(any(place < k for place in found))
    return metrics


def mean(values: Sequence[float]) -> float:
    """The average; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean, by bootstrap."""
    chance, size = random.Random(0), len(values)
    means = sorted(mean(chance.choices(values, k=size)) for _ in range(SAMPLES))
    return means[int(0.025 * SAMPLES)], means[int(0.975 * SAMPLES)]


def with_interval(values: Sequence[float]) -> str:
    """A mean and its interval:  78.3, 75.3 … 81.3"""
    low, high = interval(values)
    return f"{mean(values):.1f}, {low:.1f} … {high:.1f}"
