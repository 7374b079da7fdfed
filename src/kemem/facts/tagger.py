"""Chinese words with their tags, by the neural tagger LAC of Baidu: embeddings, two GRUs, a CRF.

The weights are read from the package jieba, which carries them for PaddlePaddle; none of its code
runs. Tags: https://github.com/baidu/lac, such as PER, LOC, ORG, TIME, n, nz, v, a, r, p, w.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kemem.text.lexicon import load

_WIDTH = 128
_LONGEST = 120  # characters read at once; what stands farther away tells nothing
# More sentences, or rows of a product, at once would wake the threads of BLAS, which wait for each
# other in a busy loop: a hundred times slower on a machine that has other work.
_BATCH = 16
_ROWS = 8
_SENTENCE = re.compile(r"[^。！？!?；;\n]+[。！？!?；;\n]*|[。！？!?；;\n]+")
_FLOAT = np.dtype("<f4")

Floats = NDArray[np.float32]
Integers = NDArray[np.intp]


class Word(NamedTuple):
    """A word, where it stands, and its part of speech or kind of name.  ("北京", 1, 3, "LOC")"""

    text: str
    start: int
    end: int
    tag: str


class _Layer(NamedTuple):
    """A GRU that reads in both directions; the first axis of each is the direction."""

    inputs: Floats
    bias: Floats
    gates: Floats
    candidate: Floats


class _Model(NamedTuple):
    substitutes: dict[int, str]  # of characters that were not trained
    characters: dict[str, int]
    tags: list[str]
    embedding: Floats
    layers: list[_Layer]
    output: Floats
    output_bias: Floats
    first: Floats
    last: Floats
    transitions: Floats  # from a tag to a tag


def words(text: str) -> list[Word]:
    """The words of a Chinese text, in order; blanks belong to none.

    words("我住北京") -> [("我", 0, 1, "r"), ("住", 1, 2, "v"), ("北京", 2, 4, "LOC")]
    """
    places = [places for span in _SENTENCE.finditer(text) for places in _pieces(text, span)]
    tags: dict[int, str] = {}
    places.sort(key=len)  # a batch takes as many steps as its longest sentence
    for at in range(0, len(places), _BATCH):
        batch = places[at : at + _BATCH]
        for piece, labels in zip(
            batch, _tag(["".join(text[i] for i in it) for it in batch]), strict=True
        ):
            tags |= zip(piece, labels, strict=True)
    spans: list[tuple[int, int, str]] = []
    for i in sorted(tags):
        name, _, part = tags[i].partition("-")
        if spans and part == "I" and spans[-1][1] == i:
            spans[-1] = (spans[-1][0], i + 1, spans[-1][2])
        else:
            spans.append((i, i + 1, name))
    return [Word(text[start:end], start, end, tag) for start, end, tag in spans]


def _pieces(text: str, span: re.Match[str]) -> Iterator[list[int]]:
    """Places of the characters of a sentence, without blanks, a bounded number at a time."""
    places = [i for i in range(*span.span()) if not text[i].isspace()]
    yield from (places[at : at + _LONGEST] for at in range(0, len(places), _LONGEST))


def _tag(sentences: Sequence[str]) -> list[list[str]]:
    """The tag of each character: "PER-B" begins a name of a person, "PER-I" goes on."""
    model = _model()
    lengths = np.array([len(it) for it in sentences])
    steps, count = int(lengths.max()), len(sentences)
    ids = np.zeros((steps, count), np.intp)
    unknown = model.characters["OOV"]
    for column, sentence in enumerate(sentences):
        known = sentence.translate(model.substitutes)
        ids[: len(known), column] = [model.characters.get(it, unknown) for it in known]
    # The way back begins at the last character of each sentence; what follows it stays behind.
    step = np.arange(steps)[:, None]
    back = np.where(step < lengths, lengths - 1 - step, step), np.arange(count)
    states = model.embedding[ids]
    for layer in model.layers:
        states = _gru(states, back, layer)
    scores = states @ model.output + model.output_bias
    return [
        [model.tags[tag] for tag in _best_path(scores[:length, column], model)]
        for column, length in enumerate(lengths.tolist())
    ]


def _gru(inputs: Floats, back: tuple[Integers, Integers], layer: _Layer) -> Floats:
    """The states of a layer, (step, sentence, width), both directions side by side."""
    steps, count, _ = inputs.shape
    moves = np.stack(
        [_product(it, layer.inputs[at]) for at, it in enumerate((inputs, inputs[back]))], axis=1
    )
    moves += layer.bias
    states = np.zeros((steps + 1, 2, count, _WIDTH), np.float32)
    gates = np.empty((2, count, 2 * _WIDTH), np.float32)
    update, reset = gates[..., :_WIDTH], gates[..., _WIDTH:]
    candidate = np.empty((2, count, _WIDTH), np.float32)
    into_gates, into_candidate = moves[..., : 2 * _WIDTH], moves[..., 2 * _WIDTH :]
    for state, after, gate, content in zip(
        states, states[1:], into_gates, into_candidate, strict=False
    ):
        np.matmul(state, layer.gates, gates)
        np.add(gates, gate, gates)
        np.tanh(gates, gates)  # the weights are halved: sigmoid(x) = (tanh(x / 2) + 1) / 2
        np.add(gates, 1, gates)
        np.multiply(reset, state, reset)
        np.matmul(reset, layer.candidate, candidate)
        np.add(candidate, content, candidate)
        np.tanh(candidate, candidate)
        np.subtract(candidate, state, candidate)
        np.multiply(candidate, update, candidate)
        np.multiply(candidate, 0.5, candidate)
        np.add(state, candidate, after)
    states = states[1:]
    return np.concatenate([states[:, 0], states[:, 1][back]], axis=-1)


def _product(states: Floats, weights: Floats) -> Floats:
    """states @ weights, a few rows at a time."""
    rows = states.reshape(-1, states.shape[-1])
    even = len(rows) // _ROWS * _ROWS
    blocks = rows[:even].reshape(-1, _ROWS, rows.shape[-1]) @ weights
    product = np.concatenate([blocks.reshape(even, weights.shape[-1]), rows[even:] @ weights])
    return product.reshape(*states.shape[:-1], -1)


def _best_path(scores: Floats, model: _Model) -> list[int]:
    """The most likely tags of a sentence (Viterbi)."""
    total, totals = model.first + scores[0], []
    for row in scores[1:]:
        totals.append(total)
        total = (model.transitions + total[:, None]).max(0)
        total += row
    path = [int((total + model.last).argmax())]
    for before in reversed(totals):
        path.append(int((before + model.transitions[:, path[-1]]).argmax()))
    return path[::-1]


@cache
def _model() -> _Model:
    spec = find_spec("jieba")  # importing it would load a dictionary and log
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package jieba is not installed; it carries the tagger")
    folder = Path(spec.origin).parent / "lac_small"
    characters = {word: int(row) for row, word in _pairs(folder / "word.dic")}
    weights = {it.name: _weights(it) for it in (folder / "model_baseline").iterdir()}
    tables = load(__package__, "tagger.rules").tables
    pairs = [*tables["PUNCTUATION"], *tables["TRADITIONAL"]]
    layers = [_layer(weights, at) for at in (0, 2)]
    output_bias = weights["fc_4.b_0"]
    crf = weights["crfw"].reshape(-1, len(output_bias))
    return _Model(
        {ord(pair[0]): pair[1] for pair in pairs},
        characters,
        [tag for _, tag in _pairs(folder / "tag.dic")],
        weights["word_emb"].reshape(-1, _WIDTH),
        layers,
        weights["fc_4.w_0"].reshape(-1, len(output_bias)),
        output_bias,
        crf[0],
        crf[1],
        crf[2:],
    )


def _layer(weights: dict[str, Floats], at: int) -> _Layer:
    """The directions `at` and `at + 1` of the file as one layer."""
    inputs, biases, gates, candidates = [], [], [], []
    halves = np.repeat(np.array([0.5, 0.5, 1], np.float32), _WIDTH)
    for number in (at, at + 1):
        recurrent = weights[f"gru_{number}.w_0"]
        inputs.append(weights[f"fc_{number}.w_0"].reshape(-1, 3 * _WIDTH) * halves)
        biases.append([(weights[f"fc_{number}.b_0"] + weights[f"gru_{number}.b_0"]) * halves])
        # One buffer holds two matrices, one after the other.
        gates.append(recurrent[: 2 * _WIDTH**2].reshape(_WIDTH, -1) / 2)
        candidates.append(recurrent[2 * _WIDTH**2 :].reshape(_WIDTH, -1) / 2)
    return _Layer(*(np.array(it, np.float32) for it in (inputs, biases, gates, candidates)))


def _weights(path: Path) -> Floats:
    """A tensor as PaddlePaddle saves it, flat: 20 bytes, a description, the values."""
    with path.open("rb") as file:
        description = int.from_bytes(file.read(20)[16:], "little")
    values = np.fromfile(path, _FLOAT, offset=20 + description)
    values[np.abs(values) < 1e-30] = 0  # subnormal numbers are slow: a third of all time
    return values


def _pairs(path: Path) -> Iterator[list[str]]:
    lines = path.read_text("utf-8").split("\n")
    return (line.split("\t") for line in lines if line.count("\t") == 1)
