"""Learn the weights of the network that reads question and text together.

python -m bench.train_reader --lists DIRECTORY --teachers DIRECTORY --vocabularies DIRECTORY
    --save DIRECTORY [--language en]

The lists and vocabularies are those of `bench.reader_lists`, the teachers those of
`bench.reader_teachers`. The English teacher is a cross-encoder, whose values the network learns.
There is none for Chinese: an encoder of sentences first learns to be one, from the answers of the
lists. A few minutes on one GPU; needs torch.
"""

# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False
# torch is not among the development dependencies.

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.bert import Bert, Layer
from kemem.search.reader import BORDER, FIRST, LONGEST, PAD, UNKNOWN

WIDTH, LAYERS, HEADS, WIDER = 128, 2, 4, 4
STEPS = {"en": 3600, "zh": 2200}
TAUGHT = 320  # steps of the teacher of Chinese
LISTS, PER_LIST = 256, 20  # of one step, and texts of each that are looked at
FORGOTTEN = 0.04  # of the tokens, so that no single one counts for all
ANSWERS = 0.3  # weight of the known answers beside the teacher
SOFT = 2.0  # how much less sure the network has to be than the teacher
BATCH = 4096
GPU = torch.device("cuda")


class Teacher(Bert):
    """BERT with a value for the first token."""

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__(weights)
        self.pool, self.value = nn.Linear(self.width, self.width), nn.Linear(self.width, 1)
        self.load(weights)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        first = self.tokens(ids, kinds % 2)[:, 0]
        return self.value(torch.tanh(self.pool(first)))[:, 0]


class Student(nn.Module):
    """The network of `kemem.search.reader`; its words begin as the teacher's, in fewer numbers."""

    def __init__(self, words: Tensor) -> None:
        super().__init__()
        words = words - words.mean(0)
        _, _, axes = torch.linalg.svd(
            words[torch.randperm(len(words))[:12_000]], full_matrices=False
        )
        words = words @ axes[:WIDTH].T
        self.word = nn.Embedding(*words.shape, _weight=words / words.std())
        self.place, self.kind = nn.Embedding(LONGEST, WIDTH), nn.Embedding(4, WIDTH)
        self.place.weight.data *= 0.02
        self.kind.weight.data *= 0.1
        self.first = nn.LayerNorm(WIDTH)
        layers = (Layer(WIDTH, HEADS, WIDER * WIDTH, smooth=False) for _ in range(LAYERS))
        self.layers = nn.ModuleList(layers)
        for layer in self.layers:
            for name, it in layer.named_children():
                if isinstance(it, nn.Linear):
                    nn.init.normal_(
                        it.weight, std=0.02 if name in "qk" or name == "narrow" else 0.04
                    )
                    nn.init.zeros_(it.bias)
                if name in ("q", "k"):  # it begins by looking for the same word on the other side
                    it.weight.data += torch.eye(WIDTH)
        self.drop, self.pool, self.value = (
            nn.Dropout(0.1),
            nn.Linear(2 * WIDTH, WIDTH),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        said = (ids != PAD)[..., None]
        tokens = self.word(ids) + self.place.weight[: ids.shape[1]] + self.kind(kinds)
        tokens = self.drop(self.first(tokens))
        for layer in self.layers:
            tokens = layer(tokens, said[:, None, None, :, 0])
        mean = (tokens * said).sum(1) / said.sum(1)
        whole = self.drop(F.relu(self.pool(torch.cat([tokens[:, 0], mean], 1))))
        return self.value(whole)[:, 0]


class Lists:
    """Lists on the GPU."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.ids = torch.tensor(arrays["ids"].astype(np.int32)).to(GPU)
            self.kinds, self.starts, self.sizes, self.answers = (
                torch.tensor(arrays[it]).to(GPU) for it in ("kinds", "starts", "sizes", "answers")
            )
        self.lengths = (self.ids != PAD).sum(1)

    def sample(self, answered: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of some lists, those that are there, and those that answer; answers come first."""
        some = torch.nonzero(self.answers)[:, 0] if answered else torch.arange(len(self.starts))
        chosen = some[torch.randint(len(some), (LISTS,))].to(GPU)
        sizes = self.sizes[chosen][:, None]
        begin = (torch.rand(LISTS, 1, device=GPU) * sizes).long()
        places = (begin + torch.arange(PER_LIST, device=GPU)) % sizes
        places[:, 0] = 0
        there = torch.arange(PER_LIST, device=GPU) < sizes
        gold = (places < self.answers[chosen][:, None]) & there
        return self.starts[chosen][:, None] + places, there, gold

    def rows(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens and kinds of pairs."""
        longest = int(self.lengths[places].max())
        return self.ids[places, :longest].long(), self.kinds[places, :longest].long()


def values(model: nn.Module, lists: Lists) -> Tensor:
    """What a model says of all pairs."""
    order, found = torch.argsort(lists.lengths), torch.zeros(len(lists.ids), device=GPU)
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for some in order.split(BATCH):
            found[some] = model(*lists.rows(some)).float()
    return found


def fit(model: nn.Module, lists: Lists, taught: Tensor | None, steps: int, rate: float) -> None:
    """Learn from the values of a teacher, and from the answers that are known."""
    model.train()
    learner = torch.optim.AdamW(model.parameters(), rate, (0.9, 0.98), weight_decay=0.01)

    def pace(step: int) -> float:
        return min(1.0, step / (0.06 * steps)) * max(
            0.02, (1 + math.cos(math.pi * step / steps)) / 2
        )

    plan, total = torch.optim.lr_scheduler.LambdaLR(learner, pace), 0.0
    for step in range(1, steps + 1):
        places, there, gold = lists.sample(answered=taught is None)
        ids, kinds = lists.rows(places.flatten())
        words = (ids != FIRST) & (ids != BORDER) & (ids != PAD)
        ids = torch.where(words & (torch.rand(ids.shape, device=GPU) < FORGOTTEN), UNKNOWN, ids)
        with torch.autocast("cuda", torch.bfloat16):
            said = model(ids, kinds)
        said = said.float().view(places.shape)
        shares = torch.log_softmax(said.masked_fill(~there, -1e4), -1)
        known = gold.any(-1)
        of_answers = torch.logsumexp(shares.masked_fill(~gold, -1e4), -1)
        loss = -(of_answers * known).sum() / known.sum().clamp(min=1)
        if taught is not None:
            wanted = taught[places]
            near = (F.smooth_l1_loss(said, wanted, reduction="none") * there).sum() / there.sum()
            own, other = (
                torch.log_softmax((it / SOFT).masked_fill(~there, -1e4), -1)
                for it in (said, wanted)
            )
            loss = ANSWERS * loss + near / 2 + 2 * (other.exp() * (other - own)).sum(-1).mean()
        learner.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        learner.step()
        plan.step()
        total += loss.item()
        if step % (steps // 4) == 0:
            print(step, f"{4 * total / steps:.3f}", flush=True)
            total = 0.0


def arrays(student: Student, vocabulary: Mapping[str, int]) -> dict[str, Any]:
    """The weights as `kemem.search.reader` reads them: words in bytes, the others in halves."""
    kept = {it: value.detach().cpu().float().numpy() for it, value in student.state_dict().items()}
    words = kept["word.weight"]
    scale = np.abs(words).max(1) / 127
    named: dict[str, np.ndarray[Any, Any]] = {
        "place": kept["place.weight"],
        "kind": kept["kind.weight"],
        "first": kept["first.weight"],
        "first.bias": kept["first.bias"],
    }
    for at in range(LAYERS):
        own = {
            it: kept[f"layers.{at}.{it}"]
            for it in (
                f"{n}.{w}"
                for n in ("q", "k", "v", "o", "wide", "narrow", "a", "b")
                for w in ("weight", "bias")
            )
        }
        root = math.sqrt(WIDTH / HEADS)
        for part, end in (("weight", ""), ("bias", ".bias")):
            three = [own[f"q.{part}"] / root, own[f"k.{part}"], own[f"v.{part}"]]
            named[f"{at}.heads{end}"] = np.concatenate(three).T
            named[f"{at}.taken{end}"] = own[f"o.{part}"].T
            for name in ("wide", "narrow", "a", "b"):
                named[f"{at}.{name}{end}"] = own[f"{name}.{part}"].T
    for name in ("pool", "value"):
        named |= {name: kept[f"{name}.weight"].T, f"{name}.bias": kept[f"{name}.bias"]}
    halves = {it: value.astype(np.float16) for it, value in named.items()}
    in_order = sorted(vocabulary, key=vocabulary.__getitem__)
    return {
        **halves,
        "words": np.round(words / scale[:, None]).astype(np.int8),
        "scale": scale.astype(np.float32),
        "vocabulary": np.frombuffer("\n".join(in_order).encode(), np.uint8),
        "heads": np.array(HEADS),
        "layers": np.array(LAYERS),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--lists", "--teachers", "--vocabularies", "--save"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--language", choices=[*STEPS], nargs="+", default=[*STEPS])
    given = parser.parse_args()
    for language in given.language:
        torch.manual_seed(1)
        lists = Lists(given.lists / f"{language}.npz")
        with np.load(given.teachers / f"{language}.npz") as weights:
            teacher = Teacher(weights).to(GPU)
        if language == "zh":
            fit(teacher, lists, None, TAUGHT, 6e-5)
        taught = values(teacher, lists)
        student = Student(teacher.word.weight.data).to(GPU)
        fit(student, lists, taught, STEPS[language], 1e-3)
        alike = torch.corrcoef(torch.stack([values(student, lists), taught]))[0, 1]
        print(language, "alike in training", f"{alike:.3f}", flush=True)
        vocabulary = json.loads((given.vocabularies / f"{language}.json").read_text("utf-8"))
        np.savez_compressed(
            given.save / f"reader_{language}.npz", **arrays(student, vocabulary["model"]["vocab"])
        )


if __name__ == "__main__":
    main()
