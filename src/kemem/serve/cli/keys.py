"""API keys by command: made, listed and revoked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar

import typer
from rich.text import Text
from typer import Argument, Option

from kemem.keys import MAX_DAYS, AsyncKeys
from kemem.memory import AsyncMemory
from kemem.records.keys import PREFIX, ApiKey
from kemem.serve.cli.console import plain
from kemem.serve.cli.help import Group
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common, register, when

T = TypeVar("T")

keys = typer.Typer(cls=Group)


@keys.callback()
def of_servers() -> None:
    """Create, list and revoke API keys."""


def create(
    common: Common,
    name: Annotated[str, Argument(help="What it is for.")],
    role: Annotated[
        Literal["admin", "service", "user"] | None,
        Option(help="admin: everything; service: all users; user: one. Without: service, or user."),
    ] = None,
    user: Annotated[str | None, Option(help="The only user that it reaches.")] = None,
    agent: Annotated[str | None, Option(help="The only agent that it reaches.")] = None,
    read_only: Annotated[bool, Option("--read-only", help="It can change nothing.")] = False,
    sensitive: Annotated[
        bool, Option("--sensitive", help="The key of a user sees sensitive memories.")
    ] = False,
    days: Annotated[int | None, Option(help="Days until it expires.", min=1, max=MAX_DAYS)] = None,
    expires_at: Annotated[
        str | None, Option(metavar="TIME", help="When it expires (RFC 3339).")
    ] = None,
) -> None:
    """Create an API key.

    The key is printed once; the store keeps a digest of it.

    $ kemem keys create laptop --role admin
    """
    chosen = role or ("service" if user is None else "user")

    async def make(stored: AsyncKeys) -> tuple[ApiKey, str]:
        return await stored.create(
            name,
            chosen,
            agent_id=agent,
            user_id=user,
            read_only=read_only,
            sensitive=sensitive,
            expires=expires_at,
            days=days,
            project=common.settings.project,
        )

    key, text = _with_keys(common, make)
    common.made.append(key.key_id)
    once = t("Copy the key now: it is not shown again.")
    required = t("Servers of this store require a key from now on.")
    common.print({**key.to_dict(), "key": text}, text, _line(key), once, required)


def list_keys(common: Common) -> None:
    """List the API keys, without the keys themselves.

    $ kemem keys list
    """
    items = _with_keys(common, lambda stored: stored.list(common.settings.project))
    lines = [_line(key) for key in items] or [Text(t("There is no API key yet."))]
    common.print({"items": [key.to_dict() for key in items]}, *lines)


def revoke(
    common: Common, key_id: Annotated[str, Argument(metavar="ID", help="As list shows it.")]
) -> None:
    """Revoke an API key.

    No server accepts it a second later.

    $ kemem keys revoke key_01M7F2T7FMMNJ6TN3N20DTYHVV
    """
    key = _with_keys(common, lambda stored: stored.revoke(key_id, common.settings.project))
    common.print(key.to_dict(), t("{name} is revoked", name=plain(key.name)))


def _with_keys(common: Common, work: Callable[[AsyncKeys], Awaitable[T]]) -> T:
    """Keys are in the store of the default memory, those of projects too."""

    async def run() -> T:
        async with AsyncMemory(settings=common.settings.of_process) as memory:
            has_admin = memory.settings.api_key is not None
            return await work(AsyncKeys(memory.runtime.deps, has_admin=has_admin))

    return asyncio.run(run())


def _line(key: ApiKey) -> Text:
    """A key to be read: id, last characters, role, whom it reaches, times, name."""
    reach = [t("user {id}", id=plain(key.user_id))] if key.user_id else []
    reach += [t("agent {id}", id=plain(key.agent_id))] if key.agent_id else []
    reach += [t("project {name}", name=key.project)] if key.project else []
    flags = {"read-only": key.read_only, "sensitive": key.sensitive}
    rights = [key.role, *reach, *(t(name) for name, has in flags.items() if has)]
    times = [t("used {time}", time=when(key.used)) if key.used else t("never used")]
    times += [t("expires {time}", time=when(key.expires))] if key.expires else []
    parts = [key.key_id, f"{PREFIX}…{key.last_four}", ", ".join(rights), ", ".join(times)]
    return Text("  ".join([*parts, plain(key.name)]))


register(keys, create)
register(keys, list_keys, name="list")
register(keys, revoke)
