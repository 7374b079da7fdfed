"""Commands that take in files: import, and watch, which keeps knowledge in step with a folder."""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typer import Argument, Option

from kemem.errors import KeMemError
from kemem.imports.documents import SUFFIXES, split_document
from kemem.imports.files import STANDARD_INPUT, File, files_of, folder_id
from kemem.imports.formats import read_files
from kemem.imports.items import Document
from kemem.imports.recipe import (
    PORTION,
    Import,
    Imported,
    Plan,
    Target,
    check_read,
    checker,
    plan,
    portions,
)
from kemem.memory import AsyncMemory
from kemem.runtime import system_clock
from kemem.serve.cli.console import errors, plain
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common

_COUNTS = ("inserted", "ignored", "truncated")
_OTHERS = ("notes", "removed", "skipped")  # shown where there are some
_SHOWN = 20  # files that were left out, users of a plan

Agent = Annotated[str, Option(metavar="ID", help="Agent of what names none, and of documents.")]
State = tuple[int, int]  # the time and the size of a file


def import_files(
    common: Common,
    path: Annotated[
        Path,
        Argument(metavar="PATH", help="File, folder or zip; - is JSON on standard input."),
    ],
    user: Annotated[
        str | None, Option(metavar="ID", help="User of what names none, and of documents.")
    ] = None,
    agent: Agent = "default",
    session: Annotated[str, Option(metavar="ID", help="Session of what names none.")] = "default",
    infer: Annotated[bool, Option(help="Extract facts from messages.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be done.")] = False,
    batch: Annotated[int, Option(help="Messages per write.", min=1, max=5000)] = PORTION,
) -> None:
    """Import chats, memories and documents of other systems.

    Importing the same file again changes nothing.

    $ kemem import chatgpt-export.zip --user mia
    """
    if str(path) != STANDARD_INPUT and not path.exists():
        raise typer.BadParameter(t("{path} does not exist", path=path), param_hint="PATH")
    target, files, folder = Target(user, agent, session, infer), files_of(path), folder_id(path)
    now, policy = system_clock(), common.settings.content_policy
    check = checker(target, now, policy)
    if dry_run:
        with _progress(files) as move:
            read = read_files(files, folder, lambda size: move(size, 0), check)
            result = plan(portions(read, target, batch), target, now, policy)
        whom = user or t("all users of {agent}", agent=agent)
        common.print(result.to_dict(), *_plan_text(result, whom))
        check_read(result.wrong)
        return
    with opened(common, target, folder) as (runner, running), _progress(files) as move:
        try:
            read = read_files(files, folder, lambda size: move(size, running.done.total), check)
            for portion in portions(read, target, batch):
                runner.run(running.store(portion))
            runner.run(running.finish())
        finally:
            common.print(running.done.to_dict(), *_text(running.done))


@contextmanager
def opened(common: Common, target: Target, folder: str) -> Iterator[tuple[asyncio.Runner, Import]]:
    """An import, and the event loop that its calls run in.

    Reading happens outside of the loop, so that Ctrl-C ends a read that waits for input.
    """
    with asyncio.Runner() as runner:
        memory = AsyncMemory(settings=common.settings)
        try:
            yield runner, runner.run(memory.imports.begin(target, folder))
        finally:
            runner.run(memory.close())


def _text(done: Imported) -> Iterator[str]:
    counts = [f"{getattr(done, name)} {t(name)}" for name in _COUNTS]
    counts += [f"{count} {t(name)}" for name in _OTHERS if (count := getattr(done, name))]
    yield ", ".join(counts)
    yield from map(plain, done.problems)
    yield from _left_out(done.left_out)
    if done.pending:
        yield t("Some vectors are still missing; see: kemem doctor")


def _plan_text(planned: Plan, whom: str) -> Iterator[str]:
    for counts, noun in ((planned.messages, "messages"), (planned.memories, "memories")):
        yield from (f"{format}: {count} {t(noun)}" for format, count in counts.items())
    if planned.documents:
        counts_of = {"documents": planned.documents, "sections": planned.sections}
        yield t(
            "Markdown: {documents} documents, {sections} sections for {whom}",
            whom=plain(whom),
            **counts_of,
        )
    if planned.users:
        users = [plain(user or whom) for user in planned.users]
        listed = ", ".join(users[:_SHOWN]) + (", …" if len(users) > _SHOWN else "")
        yield t("{count} sessions of {users}", count=planned.sessions, users=listed)
    yield from _left_out(planned.left_out)
    yield t("Nothing was stored.")


def _left_out(names: tuple[str, ...]) -> Iterator[str]:
    yield from (t("left out {file}", file=plain(name)) for name in names[:_SHOWN])
    if len(names) > _SHOWN:
        yield t("left out {count} more files", count=len(names) - _SHOWN)


def watch(
    common: Common,
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder of Markdown files.")],
    user: Annotated[
        str | None,
        Option(metavar="ID", help="User who owns it, if not all users of the agent."),
    ] = None,
    agent: Agent = "default",
    interval: Annotated[float, Option(help="Seconds between checks.", min=0.1)] = 2.0,
    once: Annotated[bool, Option("--once", help="Check once and stop.")] = False,
) -> None:
    """Keep knowledge in step with a folder of Markdown files.

    $ kemem watch handbook --agent support
    """
    if not folder.is_dir():
        raise typer.BadParameter(t("{path} is not a folder", path=folder), param_hint="DIR")
    name = folder_id(folder)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        opened(common, Target(user, agent), name) as (runner, running),
    ):
        seen = dict[str, tuple[State, bytes]]()
        stored = runner.run(running.sources())
        while True:
            before = running.done
            files = [it for it in files_of(folder) if it.suffix in SUFFIXES]
            for document in _changed(files, seen, name):
                runner.run(running.replace(document))
            for source in sorted((stored | seen.keys()) - {it.source for it in files}):
                seen.pop(source, None)
                runner.run(running.replace(Document(name, source, ())))
            stored = frozenset()
            _report(common, running.done, before, always=once)
            if once:
                return
            time.sleep(interval)


def _changed(
    files: list[File], seen: dict[str, tuple[State, bytes]], folder: str
) -> Iterator[Document]:
    """Documents whose time or size changed, and their text with it."""
    for file in files:
        try:
            status = file.path.stat()
            state = status.st_mtime_ns, status.st_size
            before, digest = seen.get(file.source, (None, b""))
            if state == before:
                continue
            text = file.text()
        except (OSError, KeMemError) as error:
            errors.print(f"{file.name}: {error}")
            continue
        own = sha256(text.encode(errors="replace")).digest()
        seen[file.source] = state, own
        if own != digest:
            yield Document(folder, file.source, split_document(text))


def _report(common: Common, done: Imported, before: Imported, *, always: bool) -> None:
    added, removed = done.inserted - before.inserted, done.removed - before.removed
    if added or removed or always:
        as_text = t("{added} sections added, {removed} removed", added=added, removed=removed)
        result = json.dumps({"added": added, "removed": removed}) if common.as_json else as_text
        print(result, flush=True)


@contextmanager
def _progress(files: Sequence[File]) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over the bytes of files, with the rate of messages and the time left.

    The function it yields takes how many bytes were read since, and how many messages in all.
    """
    total = sum(file.size for file in files) or None
    columns = (SpinnerColumn(), TextColumn(t("Importing")), BarColumn(), _RateColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    ) as shown:
        task = shown.add_task("", total=total, count=0)
        yield lambda size, count: shown.update(task, advance=size, count=count)


class _RateColumn(ProgressColumn):
    """Messages so far, and how many in a second."""

    def render(self, task: Task) -> Text:
        """The count and the rate."""
        count, seconds = task.fields["count"], task.elapsed or 0
        rate = f", {count / seconds:,.0f}/s" if seconds else ""
        return Text(t("{count} messages", count=f"{count:,}") + rate)
