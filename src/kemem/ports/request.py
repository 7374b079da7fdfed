"""The one search: what a store is asked for and answers; and what it knows of itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kemem.records import (
    Health,
    Line,
    Match,
    Matrix,
    Message,
    Micros,
    Model,
    Rank,
    Relation,
    Row,
    Vector,
    Where,
)
from kemem.text.query import Query

Key = tuple[str, str, str]  # agent, user and id: rows of several users can have the same id


def key_of(row: Match | Row) -> Key:
    """What identifies a row."""
    return (row.agent_id, row.user_id, row.id)


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """Relations within `hops` of some entities; without names, the newest ones.

    A relation is visible while one of its notes is. Filters are not supported. With
    `relationships`, there are no other relations than those of these types.
    """

    where: Where
    names: Sequence[str] = ()
    hops: int = 1
    limit: int = 100
    relationships: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """A ranking by words: the best rows, how many matched in all, and the mark to continue from."""

    matches: tuple[Match, ...]
    total: int
    mark: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """What each signal ranks, best first."""

    words: tuple[Ranking, ...] = ()  # one for each query
    vectors: tuple[tuple[Match, ...], ...] = ()  # one for each query vector
    relations: tuple[Relation, ...] = ()
    admitted: frozenset[Key] | None = None  # the notes that match the keywords, if there are any
    in_time: tuple[Match, ...] = ()  # messages of the times that are asked for, nearest in meaning
    unembedded: bool = False  # vectors were compared, and some visible rows have none of the model
    rows: int = 0  # that are visible


@dataclass(frozen=True, slots=True)
class Context:
    """What a row is judged by beside its text."""

    vector: Vector | None = None  # of unit length
    before: tuple[Message, ...] = ()  # said right before it in its session, nearest first
    previous: Vector | None = None  # the vector of the nearest one
    ended: Micros | None = None  # when the last thing that it says was over
    in_vain: bool = False  # it was announced, and never came
    superseded_by: str | None = None  # the note that says what holds instead,
    successors: frozenset[str] = frozenset()  # it, what took its place, and their messages
    of_parts: frozenset[str] = frozenset()  # the same for parts of what it says, if not all is over


Select = Callable[[Candidates], Sequence[Match]]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One read of a store: words, vectors and graph as of one moment, and the rows behind them.

    BM25 uses the statistics of the scope alone: the rows of the requested kinds in every space
    that the scope reaches. A query that is put to a conversation also counts words of the messages
    near a row, as far as `context_scope` admits these. Vectors are compared with those
    that `model` made. What continues a conversation is ranked by `kemem.text.continuation`; a store
    that does not know it ranks as if it asked.

    What an agent or user has that is disabled is not found; a scope that names one, or a session
    that is disabled, is PermissionDenied. Relations alone are read all the same.
    """

    where: Where
    queries: tuple[Query, ...] = ()
    vectors: Matrix | None = None
    model: Model | None = None
    limit: int = 100  # of each ranking
    after: Rank | None = None  # where the ranking of a single query goes on
    keywords: Query | None = None  # only rows that match are ranked
    around: Neighborhood | None = None
    select: Select | None = None  # a pure function: the candidates whose rows are returned
    times: tuple[tuple[Micros, Micros], ...] = ()  # ranges of which the best messages are wanted
    before: int = 0  # messages before each row; if more than 0, contexts have vectors, too
    lines: tuple[str, int] | None = None  # a kind of the journal, and how many of the user's lines
    continued_at: Micros | None = None  # when a text was sent that goes on with a conversation


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The candidates, and the rows of those that were selected and are visible.

    Where one of them has ended, there are also the rows that took its place. Other responses may
    have the same objects: a caller gets a copy of their metadata.
    """

    candidates: Candidates
    rows: Mapping[Key, Row] = field(default_factory=dict)
    contexts: Mapping[Key, Context] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()  # of the journal, newest first


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store knows of itself."""

    backend: str
    schema_version: int
    secret: bytes  # a random key kept with the data, which seals cursors
    label: str  # the name of the last restored backup; "current" before the first
    model: Model | None = None  # the embedding model recorded last
    health: Health | None = None
    moved_to: str | None = None  # the place of a store that takes no more writes
