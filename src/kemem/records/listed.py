"""Records that are lists of others."""

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T", covariant=True)


class Listed(Sequence[T]):
    """Items in order: to be iterated over, counted and indexed as a list is."""

    __slots__ = ()
    items: tuple[T, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]
