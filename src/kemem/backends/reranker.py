"""A reranking model behind the API that Jina, Cohere, vLLM and Text Embeddings Inference share."""

import math
from collections.abc import Sequence
from typing import Any

from kemem.backends.endpoint import Endpoint, Refused
from kemem.errors import Unavailable

_SECONDS = 10.0  # a search does not wait longer
_FIELDS = ("documents", "texts")  # what servers call the texts, most common first


class HttpReranker:
    """Questions and texts to judgements of 0-1; logarithms of odds are turned into chances."""

    def __init__(self, model: str, endpoint: Endpoint) -> None:
        self._model = {"model": model} if model else {}
        self._endpoint = endpoint
        self._fields: tuple[str, ...] = _FIELDS

    async def rank(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers; whatever the server does wrong is Unavailable."""
        for position, name in enumerate(self._fields):
            body = {**self._model, "query": query, name: [*texts]}
            try:
                answer = await self._endpoint.post(body, seconds=_SECONDS, retries=1)
            except Refused:
                if position + 1 == len(self._fields):
                    raise
                continue
            self._fields = self._fields[position:]  # what is refused once is not sent again
            return self._read(answer, len(texts))
        raise AssertionError("the last field returns or raises")

    async def close(self) -> None:
        """Let go of the connections."""
        await self._endpoint.close()

    def _read(self, answer: Any, count: int) -> list[float]:
        """The judgements of an answer in the order of the texts."""
        try:
            results = answer["results"] if isinstance(answer, dict) else answer
            scores = {
                it["index"]: float(
                    it["relevance_score"] if "relevance_score" in it else it["score"]
                )
                for it in results
            }
            ordered = [scores[at] for at in range(len(results))]
        except (LookupError, TypeError, ValueError):
            raise self._fault("something that is not a list of results") from None
        if len(ordered) != count:
            raise self._fault(f"{len(ordered)} results for {count} texts")
        if not all(map(math.isfinite, ordered)):
            raise self._fault("a score that is not finite")
        if all(0 <= score <= 1 for score in ordered):
            return ordered
        return [(1 + math.tanh(score / 2)) / 2 for score in ordered]

    def _fault(self, what: str) -> Unavailable:
        return Unavailable(f"{self._endpoint.address}: it answered {what}")
