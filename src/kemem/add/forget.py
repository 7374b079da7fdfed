"""Forgetting: notes that expired, that faded, or that are the weakest of too many."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from reprlib import repr as shown

from kemem.add.mirror import mirror_jobs
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import Deps, Store, read_notes
from kemem.records import (
    CHECKPOINTS_KEPT,
    NOTES,
    Checkpoint,
    Micros,
    Note,
    Position,
    Scope,
    Where,
)
from kemem.records.batch import Batch, Job
from kemem.text.ids import new_id

FADING = frozenset({"user_info", "experience"})  # knowledge goes only when it expires
_DAY: Micros = 86_400_000_000
_PAGE = 200
_TRIES = 20  # of a write whose premises change meanwhile


@dataclass(frozen=True, slots=True)
class Policy:
    """When notes are forgotten, besides those that expire; the default is never."""

    limit: int = 0  # notes that a user keeps; 0: no limit
    below: float = 0.0  # a strength, 0-1; weaker notes go; 0: none
    half_life_days: float = 90

    def __post_init__(self) -> None:
        if not isinstance(self.limit, int) or self.limit < 0:
            raise InvalidArgument(
                f"limit must be 0 or more, not {shown(self.limit)}", field="limit"
            )
        if not 0 <= self.below <= 1:
            raise InvalidArgument(f"below must be 0-1, not {shown(self.below)}", field="below")
        if not 0 < self.half_life_days < math.inf:
            raise InvalidArgument(
                f"half_life_days must be more than 0, not {shown(self.half_life_days)}",
                field="half_life_days",
            )


def strength(note: Note, now: Micros, policy: Policy) -> float:
    """How firmly a note is held, 0-1: important, lately touched and often used ones most."""
    age = max(now - max(note.used or 0, note.updated), 0) / _DAY
    recency = math.pow(0.5, age / policy.half_life_days)
    return min(max(note.importance, 0.0) * recency * (1 + math.log1p(note.uses)), 1.0)


async def run_forget(job: Job, policy: Policy, deps: Deps) -> None:
    """Carry out a `forget` job, and plan the next one for when the next note expires."""
    _, expires = await _forget(job.scope, policy, deps)
    planned = await expiry_jobs(job.scope, expires, deps, running=job.job_id)
    is_again = bool(planned) and planned[0].job_id == job.job_id
    await deps.store.apply(Batch(jobs=planned, done=() if is_again else (job.job_id,)))


async def forget(scope: Scope, policy: Policy, deps: Deps) -> dict[str, str]:
    """Delete what the policy gives up: note id -> "expired", "decayed" or "limit".

    Messages stay, and so do notes that were superseded: they are the past. Age is told by the
    clock alone: run it with a clock that is set right, as one that is ahead ages every note.
    """
    forgotten, _ = await _forget(scope, policy, deps)
    return forgotten


async def _forget(scope: Scope, policy: Policy, deps: Deps) -> tuple[dict[str, str], Micros | None]:
    """What was forgotten, and when the next of those that are left expires."""
    now = deps.clock()
    expires: list[Micros] = []
    forgotten: dict[str, str] = {}
    crowd = _Crowd(policy.limit)
    after: Position | None = None
    where = Where(scope, kinds=NOTES)
    while page := await read_notes(deps.store, where, after=after, limit=_PAGE):
        gone: dict[str, list[Note]] = {"expired": [], "decayed": [], "limit": []}
        expires += [note.expires for note in page if note.expires and note.expires > now]
        for note in page:
            if note.expires is not None and note.expires <= now:
                gone["expired"].append(note)
            elif note.kind in FADING and not note.ended(now):
                held = strength(note, now, policy)
                if held < policy.below:
                    gone["decayed"].append(note)
                else:
                    gone["limit"] += crowd.pushed_out(note, held)
        for reason, notes in gone.items():
            if notes:
                await _drop(notes, reason, now, deps)
                forgotten |= {note.id: reason for note in notes}
        after = page[-1].position
    return forgotten, min(expires, default=None)


async def expiry_jobs(
    owner: Scope, due: Micros | None, deps: Deps, running: str | None = None
) -> tuple[Job, ...]:
    """The job that forgets what has expired: one for each owner, due when the next note expires.

    One that runs at this moment may have looked already: then there is another, unless it is the
    one that asks.
    """
    if due is None:
        return ()
    name = blake2b(repr(owner).encode(), digest_size=15).hexdigest()
    job = Job(f"f_{name}", "forget", owner, due)
    for known in await deps.store.jobs(ids=[job.job_id]):
        if known.attempts and known.job_id != running:
            return (replace(job, job_id=new_id("j", deps.clock())),)
        if known.due <= due and known.job_id != running:
            return ()
    return (job,)


@dataclass(slots=True)
class _Crowd:
    """The strongest notes of each user so far; one too many pushes the weakest out."""

    limit: int
    held: dict[tuple[str, str], list[tuple[float, Micros, str, Note]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def pushed_out(self, note: Note, held: float) -> Iterator[Note]:
        if not self.limit:
            return
        own = self.held[note.agent_id, note.user_id]
        heapq.heappush(own, (held, note.updated, note.id, note))
        if len(own) > self.limit:
            yield heapq.heappop(own)[-1]


async def _drop(notes: Sequence[Note], reason: str, now: Micros, deps: Deps) -> None:
    owned: dict[Scope, set[str]] = defaultdict(set)
    for note in notes:
        owned[Scope(note.agent_id, note.user_id)].add(note.id)
    mirrored = [mirror_jobs(owner, sorted(ids), now, deps) for owner, ids in owned.items()]
    batch = Batch(
        drop=tuple(Where(owner, ids=frozenset(ids), kinds=NOTES) for owner, ids in owned.items()),
        jobs=tuple(job for jobs in mirrored for job in jobs),
        at=now,
        reason=reason,
    )
    for _ in range(_TRIES):
        newest, kept = await _still_good(notes, deps.store)
        if not (await deps.store.apply(replace(batch, checkpoints=kept, present=newest))).refused:
            return
    raise Unavailable("conflicting updates, retry")


async def _still_good(
    notes: Sequence[Note], store: Store
) -> tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...]]:
    """Checkpoints that go with rows of their session, to be written again without these notes.

    The first of the two are the newest of each session: where those are gone, so is the rest.
    """
    gone = {note.id for note in notes}
    sessions = {
        Scope(note.agent_id, note.user_id, note.session_id)
        for note in notes
        if note.session_id is not None
    }
    saved = [await store.checkpoints(session, limit=CHECKPOINTS_KEPT) for session in sessions]
    kept = tuple(
        replace(one, notes=tuple(note for note in one.notes if note.id not in gone))
        for own in saved
        for one in reversed(own)
    )
    return tuple(own[0] for own in saved if own), kept
