"""Pages of messages, notes, agents, users and sessions, and memories by their ids.

Cursors are sealed and bound to the query that they continue.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import astuple, fields, is_dataclass, replace
from reprlib import repr as shown
from typing import TypeVar

import numpy as np

from kemem import records
from kemem.errors import InvalidArgument, NotConfigured, NotFound
from kemem.ports import Deps, read_messages, read_notes, read_owners
from kemem.ports.request import (
    Candidates,
    Context,
    Neighborhood,
    SearchRequest,
    SearchResponse,
    key_of,
)
from kemem.records import (
    Match,
    Matrix,
    Message,
    Micros,
    Note,
    Page,
    Position,
    Rank,
    Row,
    Scope,
    Where,
)
from kemem.results import Hit, Item, Memories
from kemem.scope import check_flag, check_texts
from kemem.search.previous import Nearest, join, nearest_before
from kemem.text.ids import check_id
from kemem.text.language import is_chinese
from kemem.text.query import check_query, matches, parse

MAX_PAGE = 1000
_SKEW = 60_000_000  # microseconds that the clock of who writes may be ahead
MAX_NEIGHBORS = 1000
_PARENTS_AT_ONCE = 200  # messages that are read to look for parents
_PREFIX, _SEAL = "c_", 16  # of a cursor, and the bytes of its seal
_MOST = 4096  # characters of a cursor

T = TypeVar("T")
P = TypeVar("P", Position, Rank, tuple[str, str, str])  # where a page ends


def page_limit(size: int, field: str) -> int:
    """How many rows a call wants, from 1 to a full page."""
    if type(size) is not int or not 1 <= size <= MAX_PAGE:
        raise InvalidArgument(f"{field} must be 1-{MAX_PAGE}, not {shown(size)}", field=field)
    return size


def least_score(score: float | None, field: str) -> float:
    """A threshold from 0 to 1; without one everything passes."""
    if score is None:
        return 0.0
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InvalidArgument(f"{field} must be 0-1, not {score!r:.80}", field=field)
    return float(score)


# Cursors


def seal(place: P, query: object, secret: bytes) -> str:
    """A cursor that goes on after a place in the result of a query."""
    values = place if isinstance(place, tuple) else astuple(place)
    body = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    return _PREFIX + base64.urlsafe_b64encode(_tag(body, query, secret) + body).decode()


def unseal(cursor: str, query: object, secret: bytes, kind: Callable[..., P]) -> P:
    """The place a cursor names; anything but a cursor of this very query is refused."""
    refusal = InvalidArgument(
        f"cursor {shown(cursor)} is not one that this query returned; start again without a cursor",
        field="cursor",
    )
    if not isinstance(cursor, str) or not cursor.startswith(_PREFIX):
        raise refusal
    if len(cursor) > _MOST or not cursor.isascii():
        raise refusal
    try:
        raw = base64.b64decode(cursor.removeprefix(_PREFIX), altchars=b"-_", validate=True)
    except binascii.Error:
        raise refusal from None
    tag, body = raw[:_SEAL], raw[_SEAL:]
    # The text is compared too: base64 has several spellings of the same bytes.
    again = _PREFIX + base64.urlsafe_b64encode(raw).decode()
    if again != cursor or not hmac.compare_digest(tag, _tag(body, query, secret)):
        raise refusal
    return kind(*json.loads(body))


def _tag(body: bytes, query: object, secret: bytes) -> bytes:
    bound = repr(_stable(query)).encode("utf-8", "backslashreplace")
    return hmac.digest(secret, hashlib.sha256(bound).digest() + body, "sha256")[:_SEAL]


def _stable(value: object) -> object:
    """A value that is written alike in every process; sets have no order of their own."""
    if isinstance(value, frozenset):
        return sorted(value)
    if is_dataclass(value):
        return [type(value).__name__, *(_stable(getattr(value, it.name)) for it in fields(value))]
    return [_stable(each) for each in value] if isinstance(value, tuple) else value


async def _page(
    deps: Deps,
    query: object,
    cursor: str | None,
    size: int,
    kind: Callable[..., P],
    place: Callable[[T], P],
    fetch: Callable[[P | None, int], Awaitable[Sequence[T]]],
) -> Page[T]:
    """What a query returns beyond a cursor, with the cursor that leads on if there is more."""
    secret = (await deps.store.info()).secret
    after = None if cursor is None else unseal(cursor, query, secret, kind)
    rows = await fetch(after, size + 1)
    items = tuple(rows[:size])
    return Page(items, seal(place(items[-1]), query, secret) if len(rows) > size else None)


# Memories and the directory


def no_memory(memory_id: str) -> NotFound:
    """The error of an id that does not exist, or is another user's."""
    return NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)


async def find_owner(note_id: str, deps: Deps) -> Scope:
    """Whose a note is."""
    if owners := await read_owners(deps.store, note_id):
        return owners[0]
    raise no_memory(note_id)


async def find(memory_id: str, where: Where, deps: Deps, at: Micros | None = None) -> Row:
    """A note or message that a Where admits; none that has expired `at` a time."""
    rows = await deps.store.read(replace(where, ids=frozenset([memory_id])))
    row = min(rows, key=lambda row: row.kind == "message", default=None)
    expires = row.expires if isinstance(row, Note) else None
    if row is None or (at is not None and expires is not None and expires <= at):
        raise no_memory(memory_id)
    return row


async def cited_messages(memory_id: str, where: Where, deps: Deps) -> list[Message]:
    """The messages that a memory cites and that are served, oldest first; of a message, itself."""
    ids = frozenset(Item(await find(memory_id, where, deps)).sources)
    cited = replace(where, ids=ids, kinds=records.MESSAGES, shared=None, withdrawn=False)
    return await read_messages(deps.store, cited, limit=max(1, len(ids)), newest_first=False)


async def history(
    memory_id: str, where: Where | None, limit: int, deps: Deps
) -> list[records.Change]:
    """The changes of a note, newest first; without a Where, of whoever owns it."""
    scope = where.scope if where else None
    if where is not None:
        named = replace(where, ids=frozenset([memory_id]), sensitive=True)
        rows = await read_notes(deps.store, named)
        hidden = any(note.sensitive for note in rows) and not where.sensitive
        if hidden or (not rows and where.scope.session_id is not None):
            raise no_memory(memory_id)
    if scope and (scope.agent_id is not None or scope.user_id is not None):
        owner: Scope | None = Scope(scope.agent_id, scope.user_id)
    else:  # a session alone does not name whose the note is
        owner = next(iter(await read_owners(deps.store, memory_id)), None)
    changes = await deps.store.history(owner, note_id=memory_id, limit=limit) if owner else []
    if not changes:
        raise no_memory(memory_id)
    return changes


async def listing(
    where: Where, limit: int, cursor: str | None, deps: Deps, valid_at: Micros | None = None
) -> Memories[Item]:
    """A page of what a Where admits, newest first; the cursor leads on whatever `valid_at` is."""
    visible = where if valid_at is None else replace(where, valid_at=valid_at)

    def fetch(after: Position | None, count: int) -> Awaitable[list[Row]]:
        return deps.store.read(visible, after=after, limit=count)

    query, size = ("listing", where), page_limit(limit, "limit")
    page = await _page(deps, query, cursor, size, Position, lambda row: row.position, fetch)
    chinese = any(is_chinese(row.content) for row in page.items[:3])
    items = tuple(Item(row) for row in page.items)
    return Memories(items, page.next_cursor, language="zh" if chinese else "en")


async def notes(
    where: Where,
    ids: Collection[str] | None,
    sources: Collection[str] | None,
    limit: int,
    newest_first: bool,
    deps: Deps,
) -> list[Note]:
    """Notes that a Where admits; of these ids, or that cite one of these messages."""
    if ids is not None:
        where = replace(where, ids=frozenset(check_texts(ids, "ids")))
    if sources is not None:
        where = replace(where, sources=frozenset(check_texts(sources, "sources")))
    order = check_flag(newest_first, "newest_first")
    return await read_notes(deps.store, where, limit=page_limit(limit, "limit"), newest_first=order)


def neighborhood(
    where: Where, around: object, relationship: object, hops: int, limit: int
) -> Neighborhood:
    """The relations that a call asks for: around some entities, or the newest ones."""
    begun = where.known_by or (where.valid_at and where.valid_at + _SKEW)  # none before its day
    where, size = replace(where, known_by=begun), page_limit(limit, "limit")
    names = [] if around is None else check_texts(around, "around")
    types = [] if relationship is None else check_texts(relationship, "relationship")
    return Neighborhood(where, names, hops, size, types)


async def directory(
    level: records.Level, scope: Scope | None, limit: int, cursor: str | None, deps: Deps
) -> Page[records.Entry]:
    """A page of agents, users or sessions, in the order of ids."""

    def fetch(after: tuple[str, str, str] | None, count: int) -> Awaitable[list[records.Entry]]:
        return deps.store.directory(level, scope, after=after, limit=count)

    def kind(name: str, agent_id: str, user_id: str) -> tuple[str, str, str]:
        return (name, agent_id, user_id)

    query, size = ("directory", level, scope), page_limit(limit, "limit")
    return await _page(deps, query, cursor, size, kind, lambda entry: entry.place, fetch)


# The Query API over the message log: range, words, meaning, neighbours


async def read(
    where: Where, page_size: int, cursor: str | None, deps: Deps, *, leaf: str | None = None
) -> Page[Message]:
    """A page of the transcript, newest first, or of the branch that ends with `leaf`."""
    size = page_limit(page_size, "page_size")
    if leaf is not None:
        whole = replace(where, since=None, until=None, role=None)
        messages = await branch(whole, check_id(leaf, "branch"), deps)
        where = replace(where, ids=frozenset(message.id for message in messages))

    def fetch(after: Position | None, count: int) -> Awaitable[list[Message]]:
        return read_messages(deps.store, where, after=after, limit=count)

    query = ("read", where)
    return await _page(deps, query, cursor, size, Position, lambda row: row.position, fetch)


async def branch(where: Where, leaf: str, deps: Deps) -> list[Message]:
    """A message and those that it follows, parent by parent, oldest first."""
    found: list[Message] = []
    near: dict[str, Message] = {}  # said shortly before: one read for many parents
    wanted: str | None = leaf
    while wanted is not None:
        if wanted not in near:
            named = replace(where, ids=frozenset([wanted]))
            read = await read_messages(deps.store, named, limit=1)
            if not read and not found:
                raise NotFound(f"no message {leaf!r:.80}", message_id=leaf)
            if not read:  # deleted
                break
            earlier = await read_messages(
                deps.store, where, after=read[0].position, limit=_PARENTS_AT_ONCE
            )
            near = {message.id: message for message in (*read, *earlier)}
        found.append(near[wanted])
        wanted = near[wanted].parent_message_id
    return found[::-1]


async def by_words(
    where: Where, query_text: str, page_size: int, cursor: str | None, deps: Deps
) -> Page[Hit]:
    """A page of the messages that match a query, best first, with their matches marked."""
    size = page_limit(page_size, "page_size")
    query = parse(check_query(query_text, "query_text", blank=True))
    current = replace(where, valid_at=deps.clock())
    response = SearchResponse(Candidates())

    async def fetch(after: Rank | None, count: int) -> Sequence[Match]:
        nonlocal response
        response = await deps.store.search(
            SearchRequest(current, queries=(query,), limit=count, after=after, select=_every_match)
        )
        return response.candidates.words[0].matches

    def place(last: Match) -> Rank:
        return Rank(last.score, last.ts, last.id, response.candidates.words[0].mark)

    page = await _page(deps, ("words", where, query_text), cursor, size, Rank, place, fetch)
    hits = _to_hits(page.items, response)
    marked = await asyncio.to_thread(
        lambda: [replace(hit, snippets=matches(hit.memory, query).snippets) for hit in hits]
    )
    return Page(tuple(marked), page.next_cursor)


async def by_meaning(
    where: Where,
    query: str | None,
    embedding: Sequence[float] | None,
    top_k: int,
    min_score: float | None,
    deps: Deps,
) -> list[Hit]:
    """The messages nearest to a text or to a vector of the same model, most similar first."""
    if (query is None) == (embedding is None) or not isinstance(query, str | None):
        raise InvalidArgument(
            "pass either query_text, a string, or query_embedding", field="query_text"
        )
    limit, least = page_limit(top_k, "top_k"), least_score(min_score, "min_score")
    if deps.embedder is None:
        raise NotConfigured("semantic search needs an embedder, and KEMEM_EMBEDDER is 'none'")
    within = SearchRequest(replace(where, valid_at=deps.clock()), limit=limit)
    old: Nearest = ()
    if embedding is not None:
        vectors = _as_vectors(embedding, deps.embedder.width)
    else:
        old = await nearest_before([check_query(query, "query_text")], within, deps)
        vectors = await deps.embed([query or ""], purpose="query")
    merged: list[Match] = []

    def select(candidates: Candidates) -> Sequence[Match]:
        (merged[:],) = join(candidates.vectors, old)
        return merged

    request = replace(within, vectors=vectors, model=deps.model, select=select)
    response = await deps.store.search(request)
    return _to_hits([match for match in merged[:limit] if match.score >= least], response)


def _as_vectors(embedding: Sequence[float], width: int) -> Matrix:
    """A vector that a caller passes, if it can be one of the embedder."""
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            vectors = np.asarray([embedding], dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        vectors = np.zeros((1, 0), dtype=np.float32)
    if vectors.shape != (1, width) or not np.isfinite(vectors).all() or not vectors.any():
        raise InvalidArgument(
            f"query_embedding must be {width} finite numbers that are not all zero",
            field="query_embedding",
        )
    return vectors


def _every_match(candidates: Candidates) -> Sequence[Match]:
    lists = (*(ranking.matches for ranking in candidates.words), *candidates.vectors)
    return [match for matches in lists for match in matches]


def _to_hits(matches: Sequence[Match], response: SearchResponse) -> list[Hit]:
    hits = []
    for match in matches:
        if row := response.rows.get(key := key_of(match)):
            around = response.contexts.get(key, Context())
            hits.append(Hit(row, match.score, (), (), around.ended, around.superseded_by))
    return hits


async def neighbors(
    where: Where, message_id: str, before: int, after: int, deps: Deps
) -> list[Message]:
    """A message with those before and after it, in the order they were said, of its branch."""
    for name, count in (("before", before), ("after", after)):
        if type(count) is not int or not 0 <= count <= MAX_NEIGHBORS:
            raise InvalidArgument(f"{name} must be 0-{MAX_NEIGHBORS}, not {count!r}", field=name)
    named = replace(where, ids=frozenset([message_id]))
    anchors = await read_messages(deps.store, named, limit=1)
    if not anchors:
        raise NotFound(f"no message {message_id!r:.80}", message_id=message_id)
    if not anchors[0].ended(now := deps.clock()):
        where = replace(where, valid_at=now)
    place = anchors[0].position
    earlier = await read_messages(deps.store, where, after=place, limit=before)
    later = await read_messages(deps.store, where, after=place, limit=after, newest_first=False)
    return [*reversed(earlier), *anchors, *later]
