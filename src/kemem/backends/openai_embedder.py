"""An embedding model behind OpenAI's API: OpenAI, Ollama, vLLM, LM Studio, DashScope and others."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kemem.backends.endpoint import Endpoint, Refused
from kemem.errors import Unavailable
from kemem.records import Matrix

_BATCH = 10  # texts of one request: the least that a known service takes
_AT_ONCE = 4  # requests
_RETRIES = 2
_QUESTION_SECONDS = 10.0  # a search does not wait longer
_SHORTEST = 200  # characters; a shorter text is not refused for its length


class OpenAIEmbedder:
    """Texts to vectors of unit length; the first answer tells how wide they are.

    What a server refuses is sent in smaller portions, and a single text cut in half: its model may
    read less of a text than we send.
    """

    learns_width = True

    def __init__(self, model: str, endpoint: Endpoint, timeout: float) -> None:
        self.name = f"openai:{model}"
        self.width = 0  # not known yet
        self._model = model
        self._endpoint = endpoint
        self._timeout = timeout

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """A row for each text; whatever the server does wrong is Unavailable."""
        is_question = purpose == "query"
        limits = {
            "seconds": min(self._timeout, _QUESTION_SECONDS) if is_question else self._timeout,
            "retries": 0 if is_question else _RETRIES,
        }
        batches = [texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH)]
        parts: list[Matrix] = []
        for at in range(0, len(batches), _AT_ONCE):
            some = (self._embed(batch, limits) for batch in batches[at : at + _AT_ONCE])
            parts += await asyncio.gather(*some)
        return np.concatenate(parts) if parts else np.zeros((0, self.width), np.float32)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._endpoint.close()

    async def _embed(self, texts: Sequence[str], limits: Mapping[str, Any]) -> Matrix:
        body = {"model": self._model, "input": [*texts], "encoding_format": "float"}
        try:
            answer = await self._endpoint.post(body, **limits)
        except Refused:
            middle = len(texts) // 2
            if middle:
                halves = (texts[:middle], texts[middle:])
                return np.concatenate([await self._embed(half, limits) for half in halves])
            if len(texts[0]) <= _SHORTEST:
                raise
            return await self._embed([texts[0][: len(texts[0]) // 2]], limits)
        return self._read(answer, len(texts))

    def _read(self, answer: object, count: int) -> Matrix:
        """The vectors of an answer in the order of the texts."""
        try:
            rows = answer["data"]  # type: ignore[index]  # whatever it is
            vectors = {row.get("index", at): row["embedding"] for at, row in enumerate(rows)}
            matrix = np.array([vectors[at] for at in range(len(rows))], np.float32)
        except (AttributeError, LookupError, TypeError, ValueError):
            raise self._fault("something that is not a list of embeddings") from None
        if len(rows) != count or matrix.ndim != 2:
            raise self._fault(f"{len(rows)} vectors for {count} texts")
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not norms.all():
            raise self._fault("a vector that is zero or not finite")
        if self.width and matrix.shape[1] != self.width:
            fault = f"vectors of {matrix.shape[1]} numbers, where it had {self.width} before"
            raise self._fault(f"{fault}; if the model has changed, run kemem reindex")
        self.width = matrix.shape[1]
        return np.asarray(matrix / norms)

    def _fault(self, what: str) -> Unavailable:
        return Unavailable(f"{self._endpoint.address}, model {self._model!r}: it answered {what}")
