"""The audit log by command: listed, or written out as a file."""

import asyncio
import sys
from typing import Annotated, Literal

from rich.text import Text
from typer import Option

from kemem.memory import AsyncMemory
from kemem.records import Page
from kemem.records.audit import AuditEvent
from kemem.scope import to_range
from kemem.serve.cli.console import plain
from kemem.serve.cli.language import t
from kemem.serve.cli.options import CursorOption, Limit, Since, Until
from kemem.serve.cli.terminal import Common, more_line, when
from kemem.serve.telemetry.audit import AuditFilter, exported, read_events


def audit(
    common: Common,
    user: Annotated[str | None, Option(metavar="ID", help="Whose data.")] = None,
    actor: Annotated[
        str | None, Option(help="Id or name of a key, user of a token or of a command.")
    ] = None,
    operation: Annotated[
        str | None, Option(help="An operation, or its first part: memory.")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    cursor: CursorOption = None,
    form: Annotated[
        Literal["jsonl", "csv"] | None, Option("--format", help="All of them, as a file.")
    ] = None,
) -> None:
    """Show who did what to whose data, newest first.

    $ kemem audit --user mia --since 2026-11-01T00:00:00Z
    """
    chosen = AuditFilter(user, actor, operation, *to_range(since, until))

    async def read() -> Page[AuditEvent] | None:
        async with AsyncMemory(settings=common.settings) as memory:
            if form is None:
                return await read_events(memory.journal, chosen, limit, cursor)
            async for piece in exported(memory.journal, chosen, form):
                sys.stdout.write(piece)
        return None

    page = asyncio.run(read())
    if page is not None:
        lines = [_line(event) for event in page.items] or [Text(t("No audit line fits."))]
        data = {"items": [event.to_dict() for event in page.items]}
        more = {"next_cursor": page.next_cursor} if page.next_cursor else {}
        common.print(data | more, *lines, *more_line(page.next_cursor))


def _line(event: AuditEvent) -> Text:
    """An event to be read: when, what, how it ended, by whom, to whom, which records."""
    actor = event.actor_name or event.actor_id or t("anonymous")
    results = {"ok": t("ok"), "refused": t("refused"), "failed": t("failed")}
    parts = [when(event.at), event.operation, results[event.result], plain(actor)]
    parts += [t("user {id}", id=plain(event.user_id))] if event.user_id else []
    parts += [t("agent {id}", id=plain(event.agent_id))] if event.agent_id else []
    parts += [plain(" ".join(event.record_ids))] if event.record_ids else []
    parts += [f"{event.interface} {event.address}".strip()]
    return Text("  ".join(parts))
