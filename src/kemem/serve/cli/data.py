"""Commands about what is stored: search, recall, delete, backup, restore, quality."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text
from typer import Argument, Option

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.recall import Step
from kemem.records.times import to_rfc3339
from kemem.results import Hit
from kemem.serve.cli.terminal import Common, Yes, beginning, errors, plain, progress
from kemem.serve.telemetry.journal import parse_runs, save_runs
from kemem.snapshot import Backup
from kemem.text.query import CLOSE, OPEN, check_query

_MARK = re.compile(f"{OPEN}(.*?){CLOSE}")

Past = Annotated[bool, Option("--past", help="Ask for what is no longer true.")]


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


def profile(
    common: Common,
    user: Annotated[str, Option(help="Whose profile to show.")],
    agent: Annotated[str | None, Option(help="Only what this agent knows.")] = None,
    max_tokens: Annotated[int, Option(help="The most it may have.", min=50)] = 1000,
) -> None:
    """Show what is known of a user now, by topic."""
    with common.open() as memory:
        known = memory.profile(user, agent, max_tokens=max_tokens)
    lines: list[str | Text] = []
    for group in known.groups:
        lines.append(Text(group.title, style="bold"))
        lines += [f"  {plain(beginning(line.memory))}" for line in group.lines]
    if known.omitted:
        lines.append(f"{known.omitted} more did not fit.")
    common.print(known.to_dict(), *(lines or ["Nothing is known of this user."]))


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
