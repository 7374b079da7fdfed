"""What the two engines do differently, as one small interface."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Executable, Select, Table
from sqlalchemy.exc import DBAPIError

from kemem.errors import KeMemError
from kemem.records import Matrix
from kemem.store.schema import SEQ_BITS
from kemem.text.query import Phrase

T = TypeVar("T")
Statement = Select[*tuple[Any, ...]]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Space:
    """One (agent, user) pair, and the state that tells a cache whether it is current."""

    space_no: int
    agent_id: str
    user_id: str
    next_seq: int
    epoch: int
    vector_writes: int

    @property
    def first_id(self) -> int:
        """The id of sequence number 0."""
        return self.space_no << SEQ_BITS


@dataclass(frozen=True, slots=True)
class IndexedText:
    """The search text of one row."""

    space_no: int
    id: int
    text: str


class Database(Protocol):
    """An engine: how it connects, and its own forms of words and vectors."""

    name: str

    def open(self) -> None:
        """Connect; create or migrate the tables."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection for reads."""

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A connection beside those for reads, which sees one moment however long it lasts."""

    def write(
        self, work: Callable[[Connection], T], durable: bool = True, alone: bool = False
    ) -> Future[T]:
        """Do work in a transaction; the future is done when that is committed.

        What is not `durable` may be taken back by a power failure, wholly, and must be derivable.
        Beside work that is to be `alone` no other is done.
        """

    def finish_replacing(self, connection: Connection) -> None:
        """Number new rows above those that came, and let no read that began before see them."""

    def close(self) -> None:
        """Finish the writes and disconnect."""

    def explain(self, error: DBAPIError) -> KeMemError:
        """A driver's error in our words, without internals."""

    def create(self, connection: Connection) -> None:
        """The tables, and what the engine's words and vectors need."""

    def note_sizes(self, connection: Connection) -> None:
        """Tell a planner that does not count rows itself how large tables are."""

    @staticmethod
    def insert(table: Table) -> Any:
        """An insert that knows on_conflict_do_nothing and on_conflict_do_update."""

    def add_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        """Put rows into the word index."""

    def remove_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        """Take rows out of the word index; the texts are those that were added."""

    def clear_words(self, connection: Connection) -> None:
        """Empty the word index."""

    def look_up(self, phrases: Sequence[Phrase], space: Space) -> tuple[Executable, Values]:
        """A statement, with its values, that finds the rows of a space that hold each phrase.

        It answers with (number of the phrase, sequence numbers joined by commas).
        """

    def vector_column(self, column: Any) -> Any:
        """A vector column as it is selected."""

    def dump_vectors(self, matrix: Matrix) -> list[Any]:
        """Vectors as they are bound."""

    def load_vectors(self, values: Sequence[Any]) -> Matrix:
        """Vectors from what was selected."""


@cache
def insert_new(insert: Callable[[Table], Any], table: Table) -> Any:
    """An insert that leaves rows alone whose key is there already; built once."""
    return insert(table).on_conflict_do_nothing()


@cache
def upsert(insert: Callable[[Table], Any], table: Table, *changed: str) -> Any:
    """An insert that changes some columns of rows whose key is there already; built once."""
    statement = insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={name: statement.excluded[name] for name in changed},
    )
