"""Commands about what is stored: import, search, recall, backup, restore, quality."""

import asyncio
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from kemem.errors import InvalidArgument, KeMemError
from kemem.memory import AsyncMemory
from kemem.recall import Evidence, Step
from kemem.records.serialization import to_dict
from kemem.records.times import to_rfc3339
from kemem.results import Hit, Ingested
from kemem.serve.cli.terminal import Common, Yes, beginning, errors, plain, progress
from kemem.serve.telemetry.journal import Run, parse_runs, save_runs
from kemem.settings import Settings
from kemem.snapshot import Backup
from kemem.sync import Memory
from kemem.text.ids import check_id
from kemem.text.snippets import CLOSE, OPEN

_ITEM = re.compile(r"messages\[(\d+)\]\.?")  # how errors name one of several messages
_MARK = re.compile(f"{OPEN}(.*?){CLOSE}")


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go that do not say it themselves."""

    user_id: str | None
    agent_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Line:
    """A message of a file: where it stands, whose it is, and its fields."""

    number: int
    user_id: str
    message: Mapping[str, Any]


def import_messages(
    common: Common,
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="One message a line, as JSON; - is standard input."),
    ],
    user: Annotated[str | None, typer.Option(help="User of the lines that name none.")] = None,
    agent: Annotated[str, typer.Option(help="Agent of the lines that name none.")] = "default",
    session: Annotated[str, typer.Option(help="Session of the lines that name none.")] = "default",
    batch: Annotated[int, typer.Option(help="Messages in one write.", min=1, max=5000)] = 200,
) -> None:
    """Store the messages of a file; known ones are ignored."""
    target = Target(user, agent, session)
    size = os.fstat(file.fileno()).st_size or None
    stored: list[Ingested] = []
    try:
        with common.open() as memory, progress("Importing", size) as advance:
            lines = read_lines(_counted(file, advance), file.name, target)
            for some in batches(lines, batch):
                stored.append(_ingest(memory, some, file.name, target))
    finally:
        counts = {
            "inserted": sum(len(each.inserted) for each in stored),
            "ignored": sum(len(each.ignored) for each in stored),
            "truncated": sum(len(each.truncated) for each in stored),
        }
        pending = any(each.pending for each in stored)
        advice = ["Some vectors are still missing; see: kemem doctor"] if pending else []
        text = ", ".join(f"{count} {what}" for what, count in counts.items())
        common.print({**counts, "pending": pending}, text, *advice)


def _counted(stream: Iterator[bytes], advance: Callable[[float], None]) -> Iterator[bytes]:
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


def read_lines(raw_lines: Iterable[bytes], name: str, target: Target) -> Iterator[Line]:
    """The messages of a JSON Lines file; a bad line raises InvalidArgument with its number."""
    seen: Counter[bytes] = Counter()
    for number, raw in enumerate(raw_lines, start=1):
        if raw.strip():
            try:
                yield _line(number, raw, target, seen)
            except InvalidArgument as error:
                raise InvalidArgument(f"{name}:{number}: {error.message}", line=number) from None


def batches(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Lines in the order of the file, at most `size` at once, each batch of one user."""
    rest = iter(lines)
    while window := list(islice(rest, size)):
        by_user: dict[str, list[Line]] = {}
        for line in window:
            by_user.setdefault(line.user_id, []).append(line)
        yield from by_user.values()


def locate(error: KeMemError, name: str, batch: Sequence[Line]) -> KeMemError:
    """An error of a batch as an error of its line in the file, where one line is to blame."""
    item = _ITEM.match(str(error.details.get("field", "")))
    taken = error.details.get("message_ids")
    if item:
        number, reason = batch[int(item[1])].number, error.message.removeprefix(item[0]).strip()
    elif isinstance(taken, list | tuple):
        line = next(it for it in reversed(batch) if it.message["message_id"] == taken[0])
        number, reason = line.number, "another message has this message_id"
    else:
        return error
    return type(error)(f"{name}:{number}: {reason}", line=number)


def _line(number: int, raw: bytes, target: Target, seen: Counter[bytes]) -> Line:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidArgument("not a JSON object")
    named = fields.pop("user_id", None)
    user_id = target.user_id if named is None else named
    if user_id is None:
        raise InvalidArgument("no user_id; name one on the line, or with --user")
    owner = Target(check_id(user_id, "user_id"), target.agent_id, target.session_id)
    if fields.get("message_id") is None:
        fields["message_id"] = _message_id(fields, owner, seen)
    return Line(number, user_id, fields)


def _message_id(fields: Mapping[str, Any], owner: Target, seen: Counter[bytes]) -> str:
    """A content hash, so that a second import is idempotent; repetitions are counted."""
    key = [owner.user_id, owner.agent_id, owner.session_id, fields]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).digest()
    seen[digest] += 1
    return "m_" + hashlib.sha256(digest + seen[digest].to_bytes(8)).hexdigest()[:32]


def search(
    common: Common,
    query: Annotated[str, typer.Argument(help='Words, "phrases", AND, OR, NOT, prefix*, ( ).')],
    user: Annotated[str, typer.Option(help="Whose messages to search.")],
    mode: Annotated[
        Literal["hybrid", "lexical", "semantic"],
        typer.Option(help="By words and meaning, or by one of them."),
    ] = "hybrid",
    limit: Annotated[int, typer.Option(help="Most hits to show.", min=1, max=1000)] = 10,
    since: Annotated[str | None, typer.Option(help="From this time on (RFC 3339).")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time (RFC 3339).")] = None,
    role: Annotated[str | None, typer.Option(help="Only what this role said.")] = None,
) -> None:
    """Find messages of a user."""
    hits: Sequence[Hit]
    with common.open() as memory:
        match mode:
            case "hybrid":
                hits = memory.hybrid_search(query, user, limit, since, until, role)
            case "lexical":
                hits = memory.lexical_search(
                    query, user, since=since, until=until, role=role, page_size=limit
                ).items
            case "semantic":
                hits = memory.semantic_search(
                    query, user, since=since, until=until, role=role, top_k=limit
                )
    text = map(_hit_text, hits) if hits else ["Nothing was found."]
    common.print({"items": [_hit_fields(hit) for hit in hits]}, *text)


def _hit_fields(hit: Hit) -> dict[str, object]:
    """A hit as POST /v1/messages/hybrid_search shows it."""
    reasons = {"score": hit.score, "why": hit.why, "highlights": hit.snippets}
    return {**to_dict(hit.message), **reasons}


def _hit_text(hit: Hit) -> Text:
    """A hit to be read: score, time, role and id; the extracts; the reasons."""
    message = hit.message
    head = f"  {to_rfc3339(message.ts)}  {message.role}  {message.message_id}\n"
    text = Text.assemble((f"{hit.score:.2f}", "bold"), (head, "dim"))
    for extract in hit.snippets or (beginning(message.content),):
        pieces = enumerate(_MARK.split(plain(extract)))  # matches are at odd places
        marked = ((piece, "bold yellow" if at % 2 else "") for at, piece in pieces)
        text.append("      ").append_text(Text.assemble(*marked)).append("\n")
    return text.append(f"      {' · '.join(hit.why)}\n", "dim") if hit.why else text


def recall(
    common: Common,
    question: Annotated[str, typer.Argument(help="What somebody needs to know.")],
    user: Annotated[str, typer.Option(help="Whose memories to search.")],
    agent: Annotated[str | None, typer.Option(help="Only memories of this agent.")] = None,
    session: Annotated[
        str | None, typer.Option(help="The conversation that the question comes from.")
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="Most rounds, each sees more.", min=1, max=10)
    ] = None,
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="See what is sensitive, too.")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show each step on standard error.")
    ] = False,
) -> None:
    """Find what a question needs to know of a user, step by step."""
    with common.open() as memory, errors.status("Recalling") as status:

        def show(step: Step) -> None:
            status.update(Text(plain(f"{step.tool}: {step.outcome}")))
            if trace:
                errors.print(_step_text(step))

        handle = memory.for_user(user, agent_id=agent, sensitive=sensitive)
        result = handle.recall(
            question, session_id=session, max_iterations=max_iterations, on_step=show
        )
    message = map(plain, result.message.splitlines())
    common.print(result.to_dict(), *message, *map(_evidence_text, result.evidence))


def _step_text(step: Step) -> Text:
    """A step to be read: its number, time, tool and outcome."""
    outcome = plain(step.outcome) if step.success else f"failed: {plain(step.outcome)}"
    cached = " (cached)" if step.cached else ""
    line = f"{step.number:>2}  {step.seconds:6.3f} s  {step.tool:<23}  {outcome}{cached}"
    return Text(line, style="dim")


def _evidence_text(evidence: Evidence) -> Text:
    """A memory to be read: score, day and key; how it begins."""
    head = f"  {to_rfc3339(evidence.event_time)[:10]}  {evidence.memory_key}\n"
    text = Text.assemble("\n", (f"{evidence.score:.2f}", "bold"), (head, "dim"))
    return text.append(f"      {plain(beginning(evidence.content))}")


def backup(
    common: Common,
    to: Annotated[
        Path | None,
        typer.Option(
            "--path", "--to", help="A new file, or a directory, if not the one of backups."
        ),
    ] = None,
) -> None:
    """Write everything, workspaces too, to one file."""
    with common.open() as memory, progress("Backing up"):
        made = memory.backup(None if to is None else to.expanduser().absolute())
    _print_backup(common, made)


def restore(
    common: Common,
    path: Annotated[Path, typer.Argument(help="As kemem backup shows it.")],
    yes: Yes = False,
) -> None:
    """Replace everything, workspaces too, by what a backup holds."""
    if not yes:
        typer.confirm(
            "What is stored now will be replaced by the backup. Go on?", abort=True, err=True
        )
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
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="JSON, as python -m bench.retrieval --quality writes it.",
        ),
    ],
) -> None:
    """Keep the runs of a benchmark; the same file again adds nothing."""
    runs = parse_runs(path.read_bytes())
    asyncio.run(_keep(common.settings, runs))
    common.print({"kept": len(runs)}, f"{len(runs)} kept")


async def _keep(settings: Settings, runs: list[Run]) -> None:
    async with AsyncMemory(settings=settings) as memory:
        await save_runs(memory, runs)
