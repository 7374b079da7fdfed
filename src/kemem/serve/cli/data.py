"""Commands about what is stored: import, search, recall, delete, backup, restore, quality."""

import asyncio
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.text import Text
from typer import Argument, Option

from kemem.errors import InvalidArgument, KeMemError
from kemem.memory import AsyncMemory
from kemem.recall import Step
from kemem.records.times import to_rfc3339
from kemem.results import Hit, Ingested
from kemem.serve.cli.terminal import Common, Yes, beginning, errors, plain, progress
from kemem.serve.telemetry.journal import parse_runs, save_runs
from kemem.snapshot import Backup
from kemem.text.ids import check_id
from kemem.text.parts import Fields
from kemem.text.query import CLOSE, OPEN, check_query
from kemem.text.shapes import to_items, to_message

_ITEM = re.compile(r"messages\[(\d+)\]\.?")  # how errors name one of several messages
_MARK = re.compile(f"{OPEN}(.*?){CLOSE}")

Past = Annotated[bool, Option("--past", help="Ask for what is no longer true.")]
Owner = tuple[str | None, str, str]  # user, agent and session of messages that name none


class Line(NamedTuple):
    """A message of a file: where it stands, whose it is, and its fields."""

    number: int
    user_id: str
    message: Mapping[str, Any]


def import_messages(
    common: Common,
    file: Annotated[
        typer.FileBinaryRead,
        Argument(
            metavar="FILE", help="One message or conversation a line, as JSON; - is standard input."
        ),
    ],
    user: Annotated[str | None, Option(help="User of the lines that name none.")] = None,
    agent: Annotated[str, Option(help="Agent of the lines that name none.")] = "default",
    session: Annotated[str, Option(help="Session of the lines that name none.")] = "default",
    batch: Annotated[int, Option(help="Messages in one write.", min=1, max=5000)] = 200,
) -> None:
    """Store the messages of a file; known ones are ignored."""
    size = os.fstat(file.fileno()).st_size or None
    stored: list[Ingested] = []
    try:
        with common.open() as memory, progress("Importing", size) as advance:

            def counted(raw: bytes) -> bytes:
                advance(len(raw))
                return raw

            lines = read_lines(map(counted, file), file.name, (user, agent, session))
            for some in batches(lines, batch):
                messages, user_id = [line.message for line in some], some[0].user_id
                try:
                    ids = {"agent_id": agent, "session_id": session}
                    stored.append(memory.ingest(messages, user_id, **ids))
                except KeMemError as error:
                    raise _locate(error, file.name, some) from None
    finally:
        names = ("inserted", "ignored", "truncated", "skipped")
        counts = {name: sum(len(getattr(each, name)) for each in stored) for name in names}
        pending = any(each.pending for each in stored)
        problems = [*dict.fromkeys(problem for each in stored for problem in each.problems)]
        advice = ["Some vectors are still missing; see: kemem doctor"] if pending else []
        listed = [f"{counts[name]} {name}" for name in names if name != "skipped" or counts[name]]
        result = {**counts, "pending": pending, "problems": problems}
        common.print(result, ", ".join(listed), *map(plain, problems), *advice)


def read_lines(raw_lines: Iterable[bytes], name: str, owner: Owner) -> Iterator[Line]:
    """The messages of a file; a bad line raises InvalidArgument with its number.

    A line is a message or a conversation as JSON; or the whole file is one value.
    """
    user, agent, session = owner
    seen: Counter[bytes] = Counter()
    for number, value in _values(raw_lines, name):
        own = value.pop("user_id", None) if isinstance(value, dict) else None
        user_id = user if own is None else own
        try:
            if user_id is None:
                raise InvalidArgument("no user_id; name one on the line, or with --user")
            check_id(user_id, "user_id")
            messages = [dict(it) for it in _messages(value)]
        except InvalidArgument as error:
            raise _bad_line(name, number, error.message) from None
        for fields in messages:
            if fields.get("message_id") is None:
                # A content hash, so that a second import is idempotent; repetitions are counted.
                key = json.dumps([user_id, agent, session, fields], sort_keys=True)
                digest = hashlib.sha256(key.encode()).digest()
                seen[digest] += 1
                again = hashlib.sha256(digest + seen[digest].to_bytes(8))
                fields["message_id"] = f"m_{again.hexdigest()[:32]}"
            yield Line(number, user_id, fields)


def _values(raw_lines: Iterable[bytes], name: str) -> Iterator[tuple[int, Any]]:
    """The JSON values of a file and the numbers of their lines."""
    lines = ((number, raw) for number, raw in enumerate(raw_lines, start=1) if raw.strip())
    for count, (number, raw) in enumerate(lines):
        try:
            yield number, json.loads(raw)
        except (ValueError, RecursionError) as error:
            is_opening = not count and raw.strip()[-1:] in b"[{,"
            if not is_opening:
                raise _bad_line(name, number, f"not JSON: {error}") from None
            yield from _whole(b"".join([raw, *(it for _, it in lines)]), name, number)


def _whole(raw: bytes, name: str, number: int) -> Iterator[tuple[int, Any]]:
    """A file that is one JSON value over many lines; the conversations of a list one by one."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _bad_line(name, number, f"not JSON: {error}") from None
    yield from ((number, it) for it in (value if isinstance(value, list) else [value]))


def _messages(value: object) -> list[Fields]:
    """The messages of a line, which is one of them or a conversation."""
    is_pair = isinstance(value, list) and to_message(value) is not None
    items = [to_message(it) for it in ([value] if is_pair else to_items(value) or [None])]
    messages = [it for it in items if it]
    if len(messages) < len(items):
        raise InvalidArgument("not a message, nor a list of messages")
    return messages


def _bad_line(name: str, number: int, reason: str) -> InvalidArgument:
    return InvalidArgument(f"{name}:{number}: {reason}", line=number)


def batches(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Lines in the order of the file, at most `size` at once, each batch of one user."""
    rest = iter(lines)
    while window := list(islice(rest, size)):
        by_user: dict[str, list[Line]] = {}
        for line in window:
            by_user.setdefault(line.user_id, []).append(line)
        yield from by_user.values()


def _locate(error: KeMemError, name: str, batch: Sequence[Line]) -> KeMemError:
    """An error of a batch as an error of its line in the file, where one line is to blame."""
    item = _ITEM.match(str(error.details.get("field", "")))
    taken = error.details.get("message_ids")
    if isinstance(taken, list | tuple):
        own = (it for it in reversed(batch) if str(taken[0]).startswith(it.message["message_id"]))
        number, reason = next(own, batch[0]).number, "another message has this message_id"
    elif item:
        number, reason = batch[int(item[1])].number, error.message.removeprefix(item[0]).strip()
    else:
        return error
    return type(error)(f"{name}:{number}: {reason}", line=number)


def search(
    common: Common,
    query: Annotated[str, Argument(help='Words, "phrases", AND, OR, NOT, prefix*, ( ).')],
    user: Annotated[str, Option(help="Whose messages to search.")],
    mode: Annotated[
        Literal["hybrid", "lexical", "semantic"],
        Option(help="By words and meaning, or by one of them."),
    ] = "hybrid",
    limit: Annotated[int, Option(help="Most hits to show.", min=1, max=1000)] = 10,
    since: Annotated[str | None, Option(help="From this time on (RFC 3339).")] = None,
    until: Annotated[str | None, Option(help="Before this time (RFC 3339).")] = None,
    role: Annotated[str | None, Option(help="Only what this role said.")] = None,
    past: Past = False,
) -> None:
    """Find messages of a user."""
    if past and mode != "hybrid":
        raise InvalidArgument(f"--past needs --mode hybrid, not {mode}", field="past")
    check_query(query, "query", blank=mode == "lexical")
    hits: Sequence[Hit]
    only: dict[str, Any] = {"since": since, "until": until, "role": role}
    with common.open() as memory:
        match mode:
            case "hybrid":
                hits = memory.hybrid_search(query, user, limit, past=past, **only)
            case "lexical":
                hits = memory.lexical_search(query, user, page_size=limit, **only).items
            case "semantic":
                hits = memory.semantic_search(query, user, top_k=limit, **only)
    items = [  # as POST /v1/messages/hybrid_search shows them
        {
            **it.message.to_dict(),
            **it.marks,
            **{"score": it.score, "why": it.why, "highlights": it.snippets},
        }
        for it in hits
    ]
    common.print({"items": items}, *(map(_hit_text, hits) if hits else ["Nothing was found."]))


def _hit_text(hit: Hit) -> Text:
    """A hit to be read: score, time, role and id; the extracts; the reasons."""
    message = hit.message
    until = "" if hit.ended is None else f"  until {to_rfc3339(hit.ended)[:10]}"
    head = f"  {to_rfc3339(message.ts)}  {message.role}  {message.message_id}{until}\n"
    text = Text.assemble((f"{hit.score:.2f}", "bold"), (head, "dim"))
    if hit.in_reply_to:
        text.append(f"      assistant: {plain(hit.in_reply_to)}\n", "dim")
    for extract in hit.snippets or (beginning(message.content),):
        pieces = enumerate(_MARK.split(plain(extract)))  # matches are at odd places
        marked = ((piece, "bold yellow" if at % 2 else "") for at, piece in pieces)
        text.append("      ").append_text(Text.assemble(*marked)).append("\n")
    return text.append(f"      {' · '.join(hit.why)}\n", "dim") if hit.why else text


def recall(
    common: Common,
    question: Annotated[str, Argument(help="What somebody needs to know.")],
    user: Annotated[str, Option(help="Whose memories to search.")],
    agent: Annotated[str | None, Option(help="Only memories of this agent.")] = None,
    session: Annotated[
        str | None, Option(help="The conversation that the question comes from.")
    ] = None,
    max_iterations: Annotated[
        int | None, Option(help="Most rounds, each sees more.", min=1, max=10)
    ] = None,
    sensitive: Annotated[bool, Option("--sensitive", help="See what is sensitive, too.")] = False,
    past: Past = False,
    trace: Annotated[bool, Option("--trace", help="Show each step on standard error.")] = False,
) -> None:
    """Find what a question needs to know of a user, step by step."""
    with common.open() as memory, errors.status("Recalling") as status:

        def show(step: Step) -> None:
            status.update(Text(plain(f"{step.tool}: {step.outcome}")))
            if trace:
                outcome = f"{'' if step.success else 'failed: '}{plain(step.outcome)}"
                cached = " (cached)" if step.cached else ""
                line = (
                    f"{step.number:>2}  {step.seconds:6.3f} s  {step.tool:<23}  {outcome}{cached}"
                )
                errors.print(Text(line, style="dim"))

        handle = memory.for_user(user, agent_id=agent, sensitive=sensitive)
        options: dict[str, Any] = {"max_iterations": max_iterations, "past": past}
        result = handle.recall(question=question, session_id=session, on_step=show, **options)
    text: list[str | Text] = [plain(line) for line in result.message.splitlines()]
    for each in result.evidence:
        head = f"  {each.dates}  {each.memory_key}\n"
        content = f"      {plain(beginning(each.text))}"
        text.append(Text.assemble("\n", (f"{each.score:.2f}", "bold"), (head, "dim"), content))
    common.print(result.to_dict(), *text)


def delete(
    common: Common,
    memory_id: Annotated[str, Argument(metavar="ID", help="Of a note or a message.")],
    user: Annotated[str | None, Option(help="Whose memory it is.")] = None,
    agent: Annotated[str | None, Option(help="The agent, if not any.")] = None,
    sources: Annotated[
        bool, Option("--sources", help="Erase the messages that a note cites, too.")
    ] = False,
) -> None:
    """Erase a memory; messages that a note cites are withdrawn."""
    if user is None and agent is None:
        raise InvalidArgument("--user or --agent is required", field="user_id")
    with common.open() as memory:
        gone = memory.delete(memory_id, user_id=user, agent_id=agent, sources=sources)
    lines = [
        f"{what}: {plain(', '.join(ids))}"
        for what, ids in (("withdrawn", gone.withdrawn), ("erased", gone.erased))
        if ids
    ]
    common.print(gone.to_dict(), f"deleted: {gone.deleted}", *lines)


def backup(
    common: Common,
    to: Annotated[
        Path | None,
        Option("--path", "--to", help="A new file, or a directory, if not the one of backups."),
    ] = None,
) -> None:
    """Write everything, workspaces too, to one file."""
    with common.open() as memory, progress("Backing up"):
        made = memory.backup(None if to is None else to.expanduser().absolute())
    _print_backup(common, made)


def restore(
    common: Common,
    path: Annotated[Path, Argument(help="As kemem backup shows it.")],
    yes: Yes = False,
) -> None:
    """Replace everything, workspaces too, by what a backup holds."""
    if not yes:
        question = "What is stored now will be replaced by the backup. Go on?"
        typer.confirm(question, abort=True, err=True)
    here = path.expanduser().absolute()
    with common.open() as memory, progress("Restoring"):
        restored = memory.restore(here if here.exists() else path)
    _print_backup(common, restored)


def _print_backup(common: Common, backup: Backup) -> None:
    counts = f"messages: {backup.messages}, notes: {backup.notes}, files: {backup.files}"
    common.print(backup.to_dict(), str(backup.path), f"{counts}, bytes: {backup.size}")


def quality(
    common: Common,
    path: Annotated[
        Path,
        Argument(
            exists=True,
            dir_okay=False,
            help="JSON, as python -m bench.retrieval --quality writes it.",
        ),
    ],
) -> None:
    """Keep the runs of a benchmark; the same file again adds nothing."""
    runs = parse_runs(path.read_bytes())

    async def save() -> None:
        async with AsyncMemory(settings=common.settings) as memory:
            await save_runs(memory, runs)

    asyncio.run(save())
    common.print({"kept": len(runs)}, f"{len(runs)} kept")
