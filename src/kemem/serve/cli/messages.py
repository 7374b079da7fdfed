"""Commands about messages: stored from a file, and found again."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal, TypedDict

import typer
from rich.text import Text

from kemem.errors import KeMemError
from kemem.results import Hit, Ingested
from kemem.serve.cli.jsonl import Line, Target, batches, locate, read_lines
from kemem.serve.cli.terminal import (
    AsJson,
    DatabaseUrl,
    DataDir,
    beginning,
    output,
    plain,
    print_json,
    progress,
    settings_in_force,
)
from kemem.serve.http.schemas import chat_message
from kemem.sync import Memory
from kemem.text.snippets import CLOSE, OPEN
from kemem.text.times import to_rfc3339

Mode = Literal["hybrid", "lexical", "semantic"]

_MARK = re.compile(f"{OPEN}(.*?){CLOSE}")


class Filter(TypedDict):
    """What a search is limited to."""

    since: str | None
    until: str | None
    role: str | None


def import_messages(
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="One message a line, as JSON; - is standard input."),
    ],
    user: Annotated[str | None, typer.Option(help="User of the lines that name none.")] = None,
    agent: Annotated[str, typer.Option(help="Agent of the lines that name none.")] = "default",
    session: Annotated[str, typer.Option(help="Session of the lines that name none.")] = "default",
    batch: Annotated[int, typer.Option(help="Messages in one write.", min=1, max=5000)] = 200,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Store the messages of a file; known ones are ignored."""
    settings = settings_in_force(data_dir, database_url)
    target = Target(user, agent, session)
    size = os.fstat(file.fileno()).st_size or None
    stored: list[Ingested] = []
    try:
        with Memory(settings=settings) as memory, progress("Importing", size) as advance:
            lines = read_lines(_passing(file, advance), file.name, target)
            for some in batches(lines, batch):
                stored.append(_ingest(memory, some, file.name, target))
    finally:
        _print_stored(stored, as_json)


def search(
    query: Annotated[str, typer.Argument(help='Words, "phrases", AND, OR, NOT, prefix*, ( ).')],
    user: Annotated[str, typer.Option(help="Whose messages to search.")],
    mode: Annotated[Mode, typer.Option(help="By words and meaning, or by one of them.")] = "hybrid",
    limit: Annotated[int, typer.Option(help="Most hits to show.", min=1, max=1000)] = 10,
    since: Annotated[str | None, typer.Option(help="From this time on (RFC 3339).")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time (RFC 3339).")] = None,
    role: Annotated[str | None, typer.Option(help="Only what this role said.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Find messages of a user."""
    with Memory(settings=settings_in_force(data_dir, database_url)) as memory:
        where = Filter(since=since, until=until, role=role)
        hits = _find(memory, mode, query, user, limit, where)
    if as_json:
        print_json({"items": [_hit_fields(hit) for hit in hits]})
        return
    if not hits:
        output.print("Nothing was found.")
    for hit in hits:
        output.print(_hit_text(hit))


def _passing(stream: Iterator[bytes], advance: Callable[[float], None]) -> Iterator[bytes]:
    for raw in stream:
        yield raw
        advance(len(raw))


def _ingest(memory: Memory, lines: Sequence[Line], name: str, target: Target) -> Ingested:
    try:
        return memory.ingest(
            [line.message for line in lines],
            lines[0].user_id,
            agent_id=target.agent_id,
            session_id=target.session_id,
        )
    except KeMemError as error:
        raise locate(error, name, lines) from None


def _print_stored(stored: Sequence[Ingested], as_json: bool) -> None:
    counts = {
        "inserted": sum(len(it.inserted) for it in stored),
        "ignored": sum(len(it.ignored) for it in stored),
        "truncated": sum(len(it.truncated) for it in stored),
    }
    pending = any(it.pending for it in stored)
    if as_json:
        print_json({**counts, "pending": pending})
        return
    output.print(", ".join(f"{count} {what}" for what, count in counts.items()))
    if pending:
        output.print("Some vectors are still missing; see: kemem doctor")


def _find(
    memory: Memory, mode: Mode, query: str, user: str, limit: int, where: Filter
) -> Sequence[Hit]:
    match mode:
        case "hybrid":
            return memory.hybrid_search(query, user, limit, **where)
        case "lexical":
            return memory.lexical_search(query, user, page_size=limit, **where).items
        case "semantic":
            return memory.semantic_search(query, user, top_k=limit, **where)


def _hit_fields(hit: Hit) -> dict[str, object]:
    """A hit as POST /v1/messages/hybrid_search shows it."""
    found = {"score": hit.score, "why": hit.why, "highlights": hit.snippets}
    return {**chat_message(hit.message), **found}


def _hit_text(hit: Hit) -> Text:
    """A hit to be read: score, time, role and id; the extracts; the reasons."""
    message = hit.message
    said = f"  {to_rfc3339(message.ts)}  {message.role}  {message.message_id}\n"
    text = Text.assemble((f"{hit.score:.2f}", "bold"), (said, "dim"))
    for extract in hit.snippets or (beginning(message.content),):
        text.append("      ").append_text(_marked(extract)).append("\n")
    return text.append(f"      {' · '.join(hit.why)}\n", "dim") if hit.why else text


def _marked(extract: str) -> Text:
    """An extract with its matches in colour."""
    pieces = enumerate(_MARK.split(plain(extract)))
    return Text.assemble(*((piece, "bold yellow" if at % 2 else "") for at, piece in pieces))
