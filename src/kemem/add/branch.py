"""The branch of a session that counts: facts come only from what the newest message follows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kemem.add.embed import mirror_jobs, read_all
from kemem.add.reopen import reopen_without
from kemem.errors import Unavailable
from kemem.ports import Deps, read_messages
from kemem.records import NOTES, Message, Note, Position, Scope, Where
from kemem.records.batch import Batch, Expected
from kemem.records.branches import continues, current
from kemem.results import Outcome

_TRIES = 20  # of a write whose premises change meanwhile


@dataclass(frozen=True, slots=True)
class Branch:
    """Which messages of a session count once some have been added."""

    gone: frozenset[str] = frozenset()  # the ids of those on other branches
    left: frozenset[str] = frozenset()  # of these, the ones that were not gone before
    resumed: tuple[Message, ...] = ()  # earlier ones that did not count before, and do again
    newest: Position | None = None  # of the session as it was read; None: it has no branches


def by_session(messages: Iterable[Message]) -> dict[Scope, list[Message]]:
    """Messages of each session."""
    sessions: dict[Scope, list[Message]] = {}
    for message in messages:
        scope = Scope(message.agent_id, message.user_id, message.session_id)
        sessions.setdefault(scope, []).append(message)
    return sessions


async def read_branch(scope: Scope, messages: Sequence[Message], deps: Deps) -> Branch:
    """What some stored messages make of the branches of their session."""
    if all(message.parent_message_id is None for message in messages):
        return Branch()
    own = sorted(messages, key=lambda it: it.position)
    first, last = own[0].position, own[-1].position
    where = Where(scope, withdrawn=True)  # one that is withdrawn still has its place in the tree
    before = await read_messages(deps.store, where, after=first, limit=1)
    later = await read_messages(deps.store, where, after=last, limit=1, newest_first=False)
    if not later and continues(own, before[0] if before else None):
        return Branch(newest=last)
    listed = await read_all(Message, where, deps.store, newest_first=False)
    earlier = [message for message in listed if message.position < first]
    counted = {message.id for message in current(earlier)}
    kept = {message.id for message in current(listed)}
    back = kept - counted
    resumed = [it for it in earlier if it.id in back and not it.withdrawn]
    gone = frozenset(message.id for message in listed) - kept
    left = gone & counted.union(message.id for message in own)
    return Branch(gone, left, tuple(resumed), listed[-1].position if listed else last)


async def has_moved(branch: Branch, scope: Scope, deps: Deps) -> bool:
    """Whether a session has newer messages than when its branch was read."""
    if branch.newest is None:
        return False
    where = Where(scope, withdrawn=True)
    newer = read_messages(deps.store, where, after=branch.newest, limit=1, newest_first=False)
    return bool(await newer)


async def followed(message: Message, where: Where, most: int, deps: Deps) -> list[Message]:
    """The messages that one follows, parent by parent, as far as a Where admits them."""
    every = replace(where, sensitive=True)
    near = await read_messages(deps.store, every, after=message.position, limit=most)
    known, found = {it.id: it for it in near}, list[Message]()
    while message.parent_message_id is not None and len(found) < most:
        name = message.parent_message_id
        if name not in known:
            parent = replace(every, ids=frozenset([name]))
            known |= {it.id: it for it in await read_messages(deps.store, parent, limit=1)}
        if name not in known:  # deleted
            break
        message = known[name]
        found.append(message)
    return [it for it in reversed(found) if where.matches(it)]


async def leave(gone: frozenset[str], owner: Scope, deps: Deps) -> tuple[Outcome, ...]:
    """Delete the notes that only messages that are gone tell; what these ended holds again."""
    where = Where(owner, kinds=NOTES, sources=gone)
    for _ in range(_TRIES if gone else 0):
        now = deps.clock()
        citing = {it.note_id: it for it in await read_all(Note, where, deps.store)}
        dropped = {name: it for name, it in citing.items() if gone.issuperset(it.sources)}
        again = await reopen_without(gone, [*dropped.values()], owner, now, deps)
        changed = {**citing, **{it.note_id: it for it in again.notes}}
        notes = [
            replace(note, sources=tuple(it for it in note.sources if it not in gone))
            for name, note in changed.items()
            if name not in dropped
        ]
        if not dropped and not notes:
            return ()
        batch = Batch(
            notes=tuple(notes),
            changes=again.changes,
            drop=(Where(owner, kinds=NOTES, ids=frozenset(dropped)),) if dropped else (),
            at=now,
            reason="said on another branch",
            jobs=mirror_jobs(owner, sorted(changed), now, deps),
            expects=(Expected(where, tuple(citing.values()), len(citing) + 1), *again.expects),
        )
        if not (await deps.store.apply(batch)).refused:
            shown = [
                replace(it, content="" if it.sensitive else it.content) for it in dropped.values()
            ]
            return tuple(Outcome(it.note_id, it.content, "DELETE") for it in shown)
    if gone:
        raise Unavailable("conflicting updates, retry")
    return ()
