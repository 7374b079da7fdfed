"""Which reader a file needs: by what it begins with, its name, and the keys of its JSON."""

import io
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from reprlib import repr as shown
from typing import IO, Any, NamedTuple

from kemem.errors import Exhausted, InvalidArgument
from kemem.imports import agents, chatgpt, chats, claude, memories, messages
from kemem.imports.databases import MAGIC, read_database
from kemem.imports.documents import SUFFIXES, split_document
from kemem.imports.files import STANDARD_INPUT, Advance, Counted, File, is_utf16
from kemem.imports.items import UNKNOWN, Document, Item, Read, Skipped, wrong
from kemem.imports.tables import read_table
from kemem.imports.values import json_values

# Files of exports that hold no conversation, though one of them looks like messages.
_NOT_READ = frozenset(
    {
        *("message_feedback.json", "model_comparisons.json", "shared_conversations.json"),
        *("user.json", "users.json", "projects.json", "group_chats.json", "shopping.json"),
    }
)


class Format(NamedTuple):
    """How JSON of one origin is told from others, and read."""

    is_like: Callable[[object], bool]
    read: Callable[[Any, str], Iterator[Item]]


# The most telling keys first; whatever else may be messages comes last.
FORMATS: tuple[Format, ...] = (
    Format(chatgpt.is_conversation, chatgpt.read_conversation),
    Format(claude.is_conversation, claude.read_conversation),
    Format(agents.is_locomo, agents.read_locomo),
    Format(agents.is_letta, agents.read_letta),
    Format(chats.is_telegram, chats.read_telegram),
    Format(chats.is_chatlog, chats.read_chatlog),
    Format(agents.is_zep, agents.read_zep),
    Format(memories.is_graphiti, memories.read_graphiti),
    Format(memories.is_langgraph, memories.read_langgraph),
    Format(memories.is_mem0, memories.read_mem0),
    Format(messages.is_messages, messages.read_messages),
)


def read_files(
    files: list[File], folder: str, advance: Advance, check: Callable[[Item], None]
) -> Iterator[Read]:
    """What files hold, in their order; `folder` is what their documents belong to.

    Of several files, one that is wrong is read up to there, and the others are read all the same;
    `check` raises for what could not be stored.
    """
    has_points = any(it.source.endswith("storage.sqlite") for it in files)
    for file in files:
        name = file.source.rpartition("/")[2]
        if not file.is_alone and name in _NOT_READ:
            yield Skipped(file.name, "no conversations")
        elif not file.is_alone and name.startswith("kemem-"):  # of an export of a user
            yield Skipped(file.name, "derived from the messages")
        elif has_points and file.source.endswith("history.db"):
            yield Skipped(file.name, "the memories are read from Qdrant's store")
        elif file.is_alone:
            yield from read_file(file, folder, advance)
        else:
            try:
                for read in read_file(file, folder, advance):
                    if isinstance(read, Item):
                        check(read)
                    yield read
            except (InvalidArgument, Exhausted) as error:
                yield Skipped(file.name, error.message, is_wrong=True)


def read_file(file: File, folder: str, advance: Advance) -> Iterator[Read]:
    """What a file holds; a file of a folder that no reader knows is skipped."""
    if file.name == STANDARD_INPUT:
        yield from _read_json(file, advance)
        return
    with file.open() as stream:
        head = stream.read(512)
    if not head.strip():
        yield _unknown(file, "empty")
        return
    if file.suffix in SUFFIXES:
        yield Document(folder, file.source, split_document(file.text()))
    elif head.startswith(MAGIC):
        with file.on_disk() as path:
            yield from _or_unknown(read_database(path, file.name), file)
    elif file.suffix in (".csv", ".tsv"):
        yield from _read_table(file)
    elif b"\0" in head and not is_utf16(head):
        yield _unknown(file)
    elif file.suffix == ".txt":
        yield from _or_unknown(chats.read_text(file.text(), file.name, file.stem), file)
    elif file.suffix in (".json", ".jsonl", ".ndjson", ".af") or file.is_alone:
        # Lines of UTF-16 cannot be told apart by bytes.
        whole = io.BytesIO(file.text().encode()) if is_utf16(head) else None
        yield from _read_json(file, advance, whole)
        return
    else:
        yield _unknown(file)
        return
    advance(file.size)


def _or_unknown(items: Iterator[Item] | None, file: File) -> Iterator[Read]:
    if items is None:
        yield _unknown(file)
    else:
        yield from items


def _unknown(file: File, reason: str = UNKNOWN) -> Skipped:
    if file.is_alone:
        raise wrong(file.name, reason)
    return Skipped(file.name, reason)


def _read_table(file: File) -> Iterator[Read]:
    """The rows of a table; of a folder's files, one whose first row cannot be read is skipped."""
    rows = read_table(file.text(), file.name, file.stem, tabs=file.suffix == ".tsv")
    try:
        first = next(rows, None)
    except InvalidArgument as error:
        if file.is_alone:
            raise
        yield Skipped(file.name, error.message.removeprefix(f"{file.name}:").strip())
        return
    yield from chain([first] if first else [], rows)


def _read_json(file: File, advance: Advance, whole: IO[bytes] | None = None) -> Iterator[Read]:
    """What JSON holds; of a folder's files, one whose first value is unknown is skipped."""
    with nullcontext(whole) if whole else file.open() as stream:
        values = json_values(Counted(stream, advance), file.name)
        first = next(values, None)
        try:
            if first is None:
                raise wrong(file.name, "empty")
            format_of(*first)
        except InvalidArgument as error:
            if file.is_alone:
                raise
            yield Skipped(file.name, error.message.removeprefix(f"{file.name}:").strip())
            return
        for place, value in chain([first], values):
            yield from format_of(place, value).read(value, place)


def format_of(place: str, value: object) -> Format:
    """The format of a JSON value."""
    found = next((it for it in FORMATS if it.is_like(value)), None)
    if found is None:
        reason = "not a message, nor a list of messages, nor a known export"
        raise wrong(place, f"{reason}: {shown(value)}")
    return found
