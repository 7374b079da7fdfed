"""Fourth stage of search: a model that reads question and text together orders the head anew."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from kemem.ports import Reranker
from kemem.results import Hit

HEAD = 20  # hits that are worth the time of a large model
_SHARE = 0.6  # of the model in the new score; the rest is the old one's

log = logging.getLogger("kemem")


async def rerank(query: str, hits: Sequence[Hit], reranker: Reranker | None) -> list[Hit]:
    """The head of a ranking in a better order; without a model, or when it fails, as it was."""
    if reranker is None or not hits:
        return list(hits)
    head = hits[:HEAD]
    try:
        judged = await reranker.rank(query, [hit.memory for hit in head])
        pairs = list(zip(head, map(float, judged), strict=True))
    except Exception as error:  # the model's code or network, which may raise anything
        log.warning("the reranker failed: %s", type(error).__name__)
        return [replace(hit, why=(*hit.why, "rerank: unavailable")) for hit in hits]
    better = [_blend(hit, min(max(score, 0.0), 1.0)) for hit, score in pairs]
    return sorted([*better, *hits[HEAD:]], key=lambda hit: -hit.score)


def _blend(hit: Hit, judged: float) -> Hit:
    score = round(_SHARE * judged + (1 - _SHARE) * hit.score, 6)
    return replace(hit, score=score, why=(*hit.why, f"rerank {judged:.2f}"))
