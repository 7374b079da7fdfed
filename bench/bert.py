"""BERT in torch, with the weights that `bench.reader_teachers` writes. Needs torch."""

# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False
# torch is not among the development dependencies.

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kemem.search.reader import PAD

EMBEDDINGS = ("word", "place", "kind")


class Layer(nn.Module):
    """A layer of attention, normalised after each half."""

    def __init__(self, width: int, heads: int, inner: int, *, smooth: bool) -> None:
        super().__init__()
        self.heads, self.act = heads, F.gelu if smooth else F.relu
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        epsilon = 1e-12 if smooth else 1e-5
        self.a, self.b = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.drop = nn.Dropout(0.0 if smooth else 0.1)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        rows, size, width = tokens.shape
        three = (it(tokens).view(rows, size, self.heads, -1) for it in (self.q, self.k, self.v))
        q, k, v = (it.transpose(1, 2) for it in three)
        taken = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        taken = self.o(taken.transpose(1, 2).reshape(rows, size, width))
        tokens = self.a(tokens + self.drop(taken))
        return self.b(tokens + self.drop(self.narrow(self.act(self.wide(tokens)))))


class Bert(nn.Module):
    """The vectors of tokens."""

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__()
        given = {it: torch.tensor(weights[it].astype(np.float32)) for it in weights}
        self.width = given["norm.weight"].shape[0]
        heads, inner = 12 if self.width == 384 else self.width // 64, len(given["0.wide.bias"])
        layers = 1 + max(int(it.split(".")[0]) for it in given if it[0].isdigit())
        self.word, self.place, self.kind = (
            nn.Embedding(*given[it].shape, _weight=given[it]) for it in EMBEDDINGS
        )
        self.norm = nn.LayerNorm(self.width, 1e-12)
        self.layers = nn.ModuleList(
            Layer(self.width, heads, inner, smooth=True) for _ in range(layers)
        )
        self.load(weights)

    def load(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Take the weights of all parts that this network has."""
        own = {
            f"layers.{it}" if it[0].isdigit() else it: torch.tensor(weights[it].astype(np.float32))
            for it in weights
            if it not in EMBEDDINGS
        }
        self.load_state_dict(own, strict=False)

    def tokens(self, ids: Tensor, kinds: Tensor) -> Tensor:
        """A vector for each token."""
        mask = (ids != PAD)[:, None, None, :]
        tokens = self.word(ids) + self.place.weight[: ids.shape[1]] + self.kind(kinds)
        tokens = self.norm(tokens)
        for layer in self.layers:
            tokens = layer(tokens, mask)
        return tokens
