"""Vectors for stored messages. A model may fail in any way: the messages stay, a job remembers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import structlog

from kemem.errors import Unavailable
from kemem.ports import Parts
from kemem.types import Batch, Embedded, Job, Matrix, Message, Micros, Scope

MAX_CHARACTERS = 2_000  # a vector cannot say more about a text than its beginning does
MAX_ATTEMPTS = 8
_FIRST_PAUSE: Micros = 10_000_000
_LONGEST_PAUSE: Micros = 3_600_000_000

log = structlog.get_logger("kemem")


async def embed(messages: Sequence[Message], job: Job, parts: Parts) -> bool:
    """Store the vectors of one scope's messages and finish the job, or put the job off."""
    try:
        vectors = await _vectors(messages, parts)
    except Exception as error:  # a model's code or network: whatever it raises, nothing is lost
        log.warning("embedding failed", job=job.job_id, kind=type(error).__name__)
        await parts.store.apply(Batch(jobs=(put_off(job, error, parts.clock()),)))
        return False
    await parts.store.apply(Batch(vectors=vectors, done=(job.job_id,)))
    return True


async def _vectors(messages: Sequence[Message], parts: Parts) -> tuple[Embedded, ...]:
    embedder, model = parts.embedder, parts.model
    if embedder is None or model is None:
        raise Unavailable("no embedder is configured")
    if not messages:
        return ()
    texts = [message.content[:MAX_CHARACTERS] for message in messages]
    matrix = checked(await embedder.embed(texts, purpose="passage"), len(texts), model.width)
    rows: dict[Scope, list[int]] = {}
    for row, message in enumerate(messages):
        rows.setdefault(Scope(message.agent_id, message.user_id), []).append(row)
    return tuple(
        Embedded(scope, model, tuple(messages[row].message_id for row in chosen), matrix[chosen])
        for scope, chosen in rows.items()
    )


def checked(matrix: Matrix, rows: int, width: int) -> Matrix:
    """The matrix, if it holds a usable vector for every text."""
    shape = np.shape(matrix)
    if shape != (rows, width):
        raise Unavailable(f"the embedder returned shape {shape}, not {(rows, width)}")
    if not np.isfinite(matrix).all() or not np.abs(matrix).sum(axis=1).all():
        raise Unavailable("the embedder returned a vector that is zero or not finite")
    return np.asarray(matrix, dtype=np.float32)


def put_off(job: Job, error: Exception, now: Micros) -> Job:
    """The job to be tried again later, ever more rarely, and in the end given up visibly."""
    attempts = max(job.attempts, 1)
    pause = min(_FIRST_PAUSE << (attempts - 1), _LONGEST_PAUSE)
    return replace(
        job,
        attempts=attempts,
        due=now + pause,
        state="failed" if attempts >= MAX_ATTEMPTS else "pending",
        error=f"{type(error).__name__}: {error}"[:500],
    )
