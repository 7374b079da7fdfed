"""Embeddings and rankings of the scripted server, by hashed words: alike means sharing words."""

from typing import Any

import numpy as np

from kemem.testing.doubles import hashed
from kemem.testing.openai_server.rules import Request

_WIDTH = 32


def embeddings(request: Request) -> dict[str, Any]:
    """Vectors in an order of their own; "hashing-48" is a model whose vectors are 48 wide."""
    width = request["model"].rpartition("-")[2]
    matrix = hashed(request["input"], int(width) if width.isdecimal() else _WIDTH)
    data = [
        {"object": "embedding", "index": at, "embedding": row}
        for at, row in enumerate(matrix.tolist())
    ]
    return {"object": "list", "model": request["model"], "data": data[::-1]}


def ranking(request: Request) -> dict[str, Any] | list[dict[str, Any]]:
    """Judgements, best first, in the shape that goes with the name of the texts."""
    texts = request["documents"] if "documents" in request else request["texts"]
    query, *rows = hashed([request["query"], *texts], _WIDTH)
    scores = [float(np.vecdot(query, row)) for row in rows]
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    if "documents" not in request:
        return [{"index": at, "score": scores[at]} for at in order]
    return {"results": [{"index": at, "relevance_score": scores[at]} for at in order]}


VECTORS = {"/v1/embeddings": embeddings, "/v1/rerank": ranking}
