"""Learn the weights of `kemem.search.attention`, and say how well they hold for strangers.

python -m bench.train_attention [--truth FILE] [--processes N] [--device cuda] [--save]

Needs PyTorch, which nothing else of KeMem does. As in `python -m bench.train_judge`, lives are
stored through the public API, and what the judge sees of each question's candidates is recorded;
half of the lives are told once more without an assistant, message by message.
The lives of `bench/data/strangers` teach nothing: their figures are printed, by the linear judge
alone and with the network beside it. --truth adds a file in the format of the truth set to what
teaches. On two cores the recording takes some forty minutes, on a GPU the learning less than one.
"""

import argparse
import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.lives import STRANGERS, Life, read_lives, read_truth
from bench.merged import merged
from bench.train_judge import TOGETHER, Sample, collect, hidden, matrix, names_of
from kemem.search import attention, judge
from kemem.search.features import JUDGED, features, mirrored

WEIGHTS = Path(attention.__file__).with_name("attention.npz")
WIDTH, HEADS, LAYERS = 64, 4, 2
DROPOUT, RATE, DECAY, EPOCHS, BATCH = 0.3, 2e-3, 0.05, 35, 128
AVERAGED = 0.005  # what a step changes of the weights that are kept: their moving average
FEWER, WITHOUT = 0.35, 0.15  # shares of questions put to fewer candidates, and to none that answers
VARIES = 1e-3  # deviation of a feature from which on something can be learned of it
NEAREST = 0.05  # is added to deviations, so that rare features are not blown up


@dataclass(frozen=True)
class Data:
    """Questions with their candidates, padded to the same number."""

    names: list[str]
    rows: Tensor  # question, candidate, feature
    beside: Tensor  # question, candidate, candidate, relation
    mask: Tensor
    gold: Tensor
    stale: Tensor
    answered: Tensor

    def part(self, at: Tensor) -> "Data":
        """Some of the questions."""
        parts = (self.rows, self.beside, self.mask, self.gold, self.stale, self.answered)
        return Data(self.names, *(it[at] for it in parts))


def seen(sample: Sample) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What the network sees of a question's candidates, and of pairs of them."""
    candidates = list(sample.candidates[:JUDGED])
    if sample.question.of_assistant:
        candidates = [mirrored(it) for it in candidates]
    about = features(sample.question, sample.vector, candidates)
    own = about | attention.columns(sample.question, candidates)
    return own, attention.pairs(candidates)


def tensors(samples: Sequence[Sample], device: str) -> Data:
    """All samples; features that are always the same are left out."""
    views = [seen(it) for it in samples]
    names = names_of(own for own, _ in views)
    every = np.concatenate([matrix(own, names) for own, _ in views])
    names = sorted(
        name for name, column in zip(names, every.T, strict=True) if column.std() > VARIES
    )
    size = (len(samples), JUDGED)
    rows = np.zeros((*size, len(names)), np.float32)
    beside = np.zeros((*size, JUDGED, views[0][1].shape[-1]), np.float32)
    mask, gold, stale = (np.zeros(size, bool) for _ in range(3))
    for at, (sample, (own, pairs)) in enumerate(zip(samples, views, strict=True)):
        count = len(pairs)
        rows[at, :count] = matrix(own, names)
        beside[at, :count, :count] = pairs
        mask[at, :count] = True
        gold[at, :count] = sample.gold[:count] > 0
        stale[at, :count] = sample.stale[:count] > 0
    answered = np.array([bool(it.asked.hops) for it in samples])
    arrays = (rows, beside, mask, gold, stale, answered)
    return Data(names, *(torch.tensor(it, device=device) for it in arrays))


class Layer(nn.Module):
    """One layer of the network."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.taken = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.beside, self.drop = nn.Parameter(torch.zeros(HEADS, relations)), nn.Dropout(DROPOUT)

    def forward(self, tokens: Tensor, beside: Tensor, mask: Tensor) -> Tensor:
        count, size, _ = tokens.shape
        three = self.heads(self.first(tokens)).view(count, size, 3, HEADS, -1)
        asks, keys, told = three.permute(2, 0, 3, 1, 4)
        odds = asks @ keys.transpose(-1, -2) / math.sqrt(asks.shape[-1])
        odds = odds + torch.einsum("nijc,hc->nhij", beside, self.beside)
        shares = self.drop(odds.masked_fill(~mask[:, None, None], -1e4).softmax(-1))
        taken = (shares @ told).permute(0, 2, 1, 3).reshape(count, size, WIDTH)
        tokens = tokens + self.drop(self.taken(taken))
        wide = functional.gelu(self.wide(self.second(tokens)), approximate="tanh")
        return tokens + self.drop(self.narrow(wide))


class Network(nn.Module):
    """The network of `kemem.search.attention`, to learn its weights."""

    def __init__(self, data: Data) -> None:
        super().__init__()
        count, relations = data.rows.shape[-1], data.beside.shape[-1]
        told = data.rows[data.mask]
        self.register_buffer("mean", told.mean(0))
        self.register_buffer("scale", told.std(0) + NEAREST)
        self.question, self.candidate = nn.Linear(count, WIDTH), nn.Linear(count, WIDTH)
        self.layers = nn.ModuleList(Layer(relations) for _ in range(LAYERS))
        self.last, self.drop = nn.LayerNorm(WIDTH), nn.Dropout(DROPOUT)
        self.value, self.none = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)
        self.plain = nn.Parameter(torch.zeros(1, count))

    def forward(self, data: Data) -> Tensor:
        """Logarithms of the odds of all candidates, and of none of them at the end."""
        limit, present = attention.FARTHEST, data.mask[..., None]
        units = ((data.rows - self.mean) / self.scale).clamp(-limit, limit) * present
        mean = units.sum(1) / present.sum(1).clamp(min=1)
        each = self.candidate(self.drop(units))
        tokens = torch.cat([self.question(mean)[:, None], each], 1)
        tokens = self.drop(functional.gelu(tokens, approximate="tanh"))
        mask = functional.pad(data.mask, (1, 0), value=True)
        beside = functional.pad(data.beside, (0, 0, 1, 0, 1, 0))
        for layer in self.layers:
            tokens = layer(tokens, beside, mask)
        tokens = self.last(tokens)
        values = (self.value(tokens[:, 1:]) + units @ self.plain.T)[..., 0]
        return torch.cat([values.masked_fill(~data.mask, -1e4), self.none(tokens[:, 0])], 1)


def varied(data: Data) -> Data:
    """Questions, some of them put to fewer candidates, and some to none that answers."""
    chance = torch.rand(len(data.mask), 1, device=data.mask.device)
    share = 0.8 * torch.rand_like(chance)
    dropped = (torch.rand(data.mask.shape, device=data.mask.device) < share) & (chance < FEWER)
    without = chance > 1 - WITHOUT
    mask = data.mask & ~(dropped & ~data.gold) & ~(without & (data.gold | data.stale))
    answered = data.answered & ~without[:, 0]
    new = Data(
        data.names, data.rows, data.beside, mask, data.gold & mask, data.stale & mask, answered
    )
    return new.part(mask.any(1) & (~answered | (data.gold & mask).any(1)))


def learn(data: Data, seed: int = 0) -> dict[str, np.ndarray]:
    """The weights, by the names that `kemem.search.attention` reads."""
    torch.manual_seed(seed)
    network = Network(data).to(data.rows.device)
    steps = EPOCHS * math.ceil(len(data.mask) / BATCH)
    adam = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    pace = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=steps + 1, pct_start=0.1)
    mean = {name: it.detach().clone() for name, it in network.state_dict().items()}
    for _ in range(EPOCHS):
        for at in torch.randperm(len(data.mask), device=data.mask.device).split(BATCH):
            some = varied(data.part(at))
            right = torch.cat([some.gold & some.answered[:, None], ~some.answered[:, None]], 1)
            shares = network(some).log_softmax(1)
            loss = -shares.masked_fill(~right, -1e9).logsumexp(1).mean()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            adam.step()
            pace.step()
            for name, it in network.state_dict().items():
                mean[name].lerp_(it, AVERAGED)
    weights = {_name(name): it.cpu().numpy() for name, it in mean.items()}
    answered = float(data.answered.float().mean()) * (1 - WITHOUT)
    weights["none.bias"] = weights["none.bias"] + math.log(answered / (1 - answered))  # as many not
    exact = {"mean", "scale"}
    weights = {name: it if name in exact else it.astype(np.float16) for name, it in weights.items()}
    return weights | {"names": np.array(data.names), "layers": np.array(LAYERS)}


def _name(name: str) -> str:
    """layers.0.heads.weight -> 0.heads"""
    return name.removeprefix("layers.").removesuffix(".weight")


def report(name: str, samples: Sequence[Sample], weights: dict[str, np.ndarray] | None) -> None:
    """One line for each language: first hit right, one of three, and how well chances part."""
    exact = {"names"}
    read = {it: w if it in exact else w.astype(np.float64) for it, w in (weights or {}).items()}
    alone = attention.Attended(np.zeros(1), 0.0)  # changes neither order
    for language in ("en", "zh"):
        first, three, chances = [], [], defaultdict[bool, list[float]](list)
        for it in (it for it in samples if it.life.language == language):
            beside = patch.object(attention, "_weights", lambda: read)
            without = patch.object(judge, "attend", lambda *_: alone)
            with beside if weights else without:
                told = judge.judge(it.question, judge.Meant(it.vector), it.candidates, it.among)
            order = np.argsort(-told.scores, kind="stable")
            chances[bool(it.asked.hops)].append(told.chance)
            if it.asked.hops:
                first.append(it.gold[order[0]])
                three.append(it.gold[order[:3]].any())
        pairs = [(p > n) + 0.5 * (p == n) for p in chances[True] for n in chances[False]]
        figures = f"first {np.mean(first):.3f} three {np.mean(three):.3f} auc {np.mean(pairs):.3f}"
        sure, unsure = (np.mean([it >= 0.5 for it in chances[kind]]) for kind in (True, False))
        figures += f" sure {sure:.3f} unsure {1 - unsure:.3f}"
        print(f"{name:24} {language} {len(chances[True]):4} {figures}", flush=True)


def alone(life: Life) -> Life:
    """A life as one who tries a memory tells it: without an assistant, each message by itself."""
    told = [at for at, it in enumerate(life.messages) if it.role == "user"]
    places = {at: place for place, at in enumerate(told)}
    messages = [replace(life.messages[at], session=f"s{at}") for at in told]
    questions = []
    for asked in life.questions:
        hops = tuple(frozenset(places[at] for at in hop & {*told}) for hop in asked.hops)
        stale = frozenset(places[at] for at in asked.stale & {*told})
        if all(hops):
            questions.append(replace(asked, hops=hops, stale=stale))
    return replace(life, messages=messages, questions=questions, endings=[])


def _recorded(lives: Sequence[Life]) -> list[Sample]:
    return asyncio.run(collect(lives, "local"))


def record(lives: Sequence[Life], processes: int) -> list[Sample]:
    """What the judge sees of all questions of lives."""
    parts = [lives[at : at + 6] for at in range(0, len(lives), 6)]
    with ProcessPoolExecutor(processes) as pool:
        samples = [it for some in pool.map(_recorded, parts) for it in some]
    return [it for it in samples if it.vector is not None]


def main() -> None:
    """Learn, report, save."""
    parser = argparse.ArgumentParser(description="Learn the weights of the network.")
    parser.add_argument("--truth", type=Path, help="a file in the format of the truth set")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    lives = read_lives() + (read_truth(chosen.truth) if chosen.truth else [])
    more = [*hidden(read_lives()), *merged(read_lives(), TOGETHER, seed=13)]
    lives += [*map(alone, lives[::2]), *more]
    samples = record(lives, chosen.processes)
    print(f"{len(samples)} questions teach", flush=True)
    weights = learn(tensors(samples, chosen.device))
    strangers = record(read_lives(STRANGERS), chosen.processes)
    authors = sorted({it.life.name.split(":")[0][-1] for it in strangers})
    for author in authors:
        own = [it for it in strangers if it.life.name.split(":")[0][-1] == author]
        report(f"strangers {author}, linear", own, None)
        report(f"strangers {author}, with it", own, weights)
    own = record([*map(alone, read_lives(STRANGERS))], chosen.processes)
    report("told alone, linear", own, None)
    report("told alone, with it", own, weights)
    if chosen.save:
        np.savez_compressed(WEIGHTS, **weights)


if __name__ == "__main__":
    main()
