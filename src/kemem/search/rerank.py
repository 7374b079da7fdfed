"""Last stage of search: a model that reads question and text together orders the best hits."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from kemem.errors import Unavailable
from kemem.ports import Reranker
from kemem.results import Hit

_RERANKED = 20  # hits that are worth the time of a large model
_SHARE = 0.6  # of the model in the new score; the rest is the old one's

log = logging.getLogger("kemem")


async def rerank(query: str, hits: Sequence[Hit], reranker: Reranker | None) -> Sequence[Hit]:
    """The head of a ranking in the order of a model that reads question and text together.

    Without a model, or when it fails, the ranking stays as it is.
    """
    if reranker is None or not hits:
        return hits
    head, better = hits[:_RERANKED], list[Hit]()
    try:
        scores = [float(it) for it in await reranker.rank(query, [hit.memory for hit in head])]
        for hit, judged in zip(head, scores, strict=True):
            judged = min(max(judged, 0.0), 1.0)
            score = round(_SHARE * judged + (1 - _SHARE) * hit.score, 6)
            better.append(replace(hit, score=score, why=(*hit.why, f"rerank {judged:.2f}")))
    except Exception as error:  # the model's code or network, which may raise anything
        told = error.message if isinstance(error, Unavailable) else type(error).__name__
        log.warning("the reranker failed: %s", told)
        return [replace(hit, why=(*hit.why, "rerank: unavailable")) for hit in hits]
    return sorted([*better, *hits[_RERANKED:]], key=lambda hit: -hit.score)
