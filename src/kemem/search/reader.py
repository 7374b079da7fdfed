"""Part of the fourth stage of search: a small network that reads question and text together.

Words and vectors compare a question with each message as a whole. "What instrument does Mia play?"
is answered by "I've had my violin since I was six": only who reads both sees that. The network
knows a word of one side by whether the other has it, and by which words usually answer it. It has
two layers, weights of its own for Chinese and English (`reader_zh.npz`, `reader_en.npz`), and reads
each candidate in two milliseconds. `python -m bench.train_reader` learns the weights;
`docs/models.md` says from what.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from kemem.search.features import Candidate, Column, speaker_of
from kemem.text.language import is_chinese
from kemem.text.passage import last_question, passage
from kemem.text.reading import content

READ = 16  # candidates that are read: more would find a little more, and take longer
SAY = 0.2  # of the network in the order: more takes what sounds like an answer for one
QUESTION, ASKED, LONGEST = 32, 16, 96  # tokens of a question, of what a text answers, of all
PAD, UNKNOWN, FIRST, BORDER = 0, 100, 101, 102  # places of these in both vocabularies
_CJK = r"\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+|[^\w\s]|_")
_LONG_WORD = 64  # characters of a word at most that is looked for in pieces

Floats = NDArray[np.float32]
Tokens = tuple[int, ...]


class Shown(NamedTuple):
    """What is read of a candidate."""

    speaker: str
    asked: str  # what it may answer: the last question of the message before
    text: str  # the part of it that the question is about


def read_together(query: str, candidates: Sequence[Candidate], scores: Column) -> Column:
    """Scores of candidates after the best of them were read; the best one's stays what it is.

    Texts in another language than the question's are not read: they count as the middle of those
    that are. Nothing that is not read rises above what it scored less than.
    """
    chinese, order = is_chinese(query), np.argsort(-scores, kind="stable")[:READ]
    words = frozenset(content(query))
    shown = [(at, _shown(candidates[at], words)) for at in order.tolist()]
    same = [(at, it) for at, it in shown if is_chinese(it.text) == chinese]
    if len(same) < 2 or scores[order[0]] <= 0:
        return scores
    values = _reader(chinese).values(query, [it for _, it in same])
    odds = np.full(len(candidates), values.min())
    odds[order] = np.median(values)
    odds[[at for at, _ in same]] = values
    read = scores * np.exp(SAY * (odds - odds.max()))
    return np.asarray(read * (scores.max() / read.max()))


def _shown(candidate: Candidate, words: frozenset[str]) -> Shown:
    row, before = candidate.row, candidate.context.before
    asked = last_question(before[0].content) if before else ""
    return Shown(speaker_of(row), asked, passage(row.content, words))


class Reader:
    """A network with its vocabulary."""

    def __init__(self, name: str) -> None:
        with (files(__package__) / name).open("rb") as file, np.load(file) as arrays:
            kept = {it: arrays[it] for it in arrays.files}
        words = kept.pop("vocabulary").tobytes().decode().split("\n")
        self._places = {word: at for at, word in enumerate(words)}
        self._words, self._scale = kept.pop("words"), kept.pop("scale")  # bytes, times a number
        self._weights = {it: kept[it].astype(np.float32) for it in kept}
        self._heads, self._layers = int(kept["heads"]), int(kept["layers"])
        self._pieces = lru_cache(maxsize=1 << 15)(self._split)
        self._limit = ThreadpoolController().limit

    def values(self, question: str, texts: Sequence[Shown]) -> Column:
        """How well each text answers, as a logarithm of odds."""
        rows = [self.row(question, it) for it in texts]
        lengths = [len(ids) for ids, _ in rows]
        values = np.zeros(len(rows))
        # Short texts and long ones apart: what fills up rows costs as much as what is said.
        by_length = np.argsort(lengths, kind="stable")
        with self._limit(limits=1):  # one thread: see `kemem.backends.encoder`
            for some in np.array_split(by_length, 1 + len(rows) // 8):
                longest = max(lengths[at] for at in some)
                ids, kinds = np.zeros((2, len(some), longest), np.intp)
                for row, at in enumerate(some):
                    ids[row, : lengths[at]], kinds[row, : lengths[at]] = rows[at]
                values[some] = self._network(ids, kinds)
        return values

    def tokens(self, text: str) -> list[int]:
        """The places of a text's words, or of their pieces, in the vocabulary."""
        folded = text.lower()
        if not text.isascii():  # é is e, full-width signs are plain ones
            marked = unicodedata.normalize("NFKD", folded)
            folded = "".join(it for it in marked if not unicodedata.combining(it))
        return [piece for word in _TOKEN.findall(folded) for piece in self._pieces(word)]

    def _split(self, word: str) -> Tokens:
        """The longest pieces of the vocabulary that make up a word; "##" marks a later one."""
        pieces, start = list[int](), 0
        while start < len(word) <= _LONG_WORD:
            mark = "##" if start else ""
            end = next(
                (it for it in range(len(word), start, -1) if mark + word[start:it] in self._places),
                None,
            )
            if end is None:
                return (UNKNOWN,)
            pieces.append(self._places[mark + word[start:end]])
            start = end
        return tuple(pieces) or (UNKNOWN,)

    def row(self, question: str, shown: Shown) -> tuple[list[int], list[int]]:
        """The tokens of question and text, and their kinds: 1 of the text, 2 more if in both."""
        asked = self.tokens(question)[:QUESTION]
        told = self.tokens(f"{shown.speaker}:") if shown.speaker else []
        told += [*self.tokens(shown.asked)[-ASKED:], *self.tokens(shown.text)]
        told = told[: LONGEST - len(asked) - 3]
        both = {*asked} & {*told}
        ids = [FIRST, *asked, BORDER, *told, BORDER]
        sides = [0] * (len(asked) + 2) + [1] * (len(told) + 1)
        return ids, [side + 2 * (it in both) for it, side in zip(ids, sides, strict=True)]

    def _network(self, ids: NDArray[np.intp], kinds: NDArray[np.intp]) -> Floats:
        is_said = ids != PAD
        tokens = self._words[ids] * self._scale[ids, None]
        tokens += self._weights["place"][: ids.shape[1]] + self._weights["kind"][kinds]
        tokens = self._normal("first", tokens)
        unsaid = np.where(is_said, np.float32(0), np.float32(-1e4))[:, None, None, :]
        for layer in range(self._layers):
            tokens = self._normal(f"{layer}.a", tokens + self._attention(layer, tokens, unsaid))
            wide = np.maximum(self._linear(f"{layer}.wide", tokens), 0)
            tokens = self._normal(f"{layer}.b", tokens + self._linear(f"{layer}.narrow", wide))
        said = is_said[..., None].astype(np.float32)
        mean = (tokens * said).sum(1) / said.sum(1)
        whole = np.maximum(self._linear("pool", np.concatenate([tokens[:, 0], mean], 1)), 0)
        return self._linear("value", whole)[:, 0]

    def _attention(self, layer: int, tokens: Floats, unsaid: Floats) -> Floats:
        rows, size, width = tokens.shape
        three = self._linear(f"{layer}.heads", tokens).reshape(rows, size, 3, self._heads, -1)
        asks, keys, told = three.transpose(2, 0, 3, 1, 4)
        odds = np.matmul(asks, keys.swapaxes(2, 3)) + unsaid  # "heads" has their scale in it
        odds -= odds.max(-1, keepdims=True)
        shares = np.exp(odds, out=odds)
        shares /= shares.sum(-1, keepdims=True)
        taken = np.matmul(shares, told).transpose(0, 2, 1, 3).reshape(rows, size, width)
        return self._linear(f"{layer}.taken", taken)

    def _linear(self, name: str, rows: Floats) -> Floats:
        weights = self._weights[name]
        flat = rows.reshape(-1, rows.shape[-1]) @ weights + self._weights[f"{name}.bias"]
        return np.asarray(flat.reshape(*rows.shape[:-1], -1))

    def _normal(self, name: str, rows: Floats) -> Floats:
        away = rows - rows.mean(-1, keepdims=True)
        away /= np.sqrt((away * away).mean(-1, keepdims=True) + np.float32(1e-5))
        away *= self._weights[name]
        away += self._weights[f"{name}.bias"]
        return np.asarray(away)


@cache
def _reader(chinese: bool) -> Reader:
    return Reader("reader_zh.npz" if chinese else "reader_en.npz")
