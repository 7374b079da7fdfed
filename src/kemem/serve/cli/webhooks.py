"""Webhooks by command: endpoints are made, listed, tested and deleted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.text import Text
from typer import Argument, Option

from kemem.memory import AsyncMemory
from kemem.records.webhooks import EVENTS, Delivery, Webhook
from kemem.serve.cli.console import plain
from kemem.serve.cli.help import Group
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common, register, when
from kemem.webhooks.endpoints import AsyncWebhooks

T = TypeVar("T")

WebhookId = Annotated[str, Argument(metavar="ID", help="The id, as kemem webhooks list shows it.")]

webhooks = typer.Typer(cls=Group)


@webhooks.callback()
def of_a_store() -> None:
    """Create, list, test and delete webhooks."""


def create(
    common: Common,
    url: Annotated[str, Argument(help="Where events are sent: http:// or https://.")],
    events: Annotated[
        str | None, Option(metavar="TYPE,…", help="Only these, such as memory.added,job.failed.")
    ] = None,
    user: Annotated[str | None, Option(help="Only events about this user.")] = None,
    agent: Annotated[str | None, Option(help="Only events about this agent.")] = None,
    text: Annotated[
        bool, Option("--include-text", help="Send notes with their text, except sensitive ones.")
    ] = False,
) -> None:
    """Create a webhook.

    The signing secret is printed once.

    $ kemem webhooks create https://example.com/hook --events job.failed
    """
    chosen = None if events is None else [it.strip() for it in events.split(",")]
    made = _with_webhooks(
        common,
        lambda stored: stored.create(url, chosen, agent_id=agent, user_id=user, include_text=text),
    )
    common.made.append(made.webhook_id)
    once = t("Copy the secret now: it is not shown again.")
    common.print({**made.to_dict(), "secret": made.secret}, made.secret, _line(made), once)


def list_webhooks(common: Common) -> None:
    """List the webhooks and their last deliveries.

    $ kemem webhooks list
    """
    items = _with_webhooks(common, lambda stored: stored.list())
    lines = [_line(it) for it in items] or [Text(t("There is no webhook yet."))]
    common.print({"items": [it.to_dict() for it in items]}, *lines)


def test(common: Common, webhook_id: WebhookId) -> None:
    """Send a test event to a webhook now.

    $ kemem webhooks test wh_01M7F2T7FMMNJ6TN3N20DTYHVV
    """
    result = _with_webhooks(common, lambda stored: stored.test(webhook_id))
    common.print(result.to_dict(), _result(result))
    if result.error:
        raise typer.Exit(1)


def delete(common: Common, webhook_id: WebhookId) -> None:
    """Delete a webhook.

    What waits to be delivered there is deleted, too.

    $ kemem webhooks delete wh_01M7F2T7FMMNJ6TN3N20DTYHVV
    """
    gone = _with_webhooks(common, lambda stored: stored.delete(webhook_id))
    common.print(gone.to_dict(), t("{name} is deleted", name=plain(gone.url)))


def _with_webhooks(common: Common, work: Callable[[AsyncWebhooks], Awaitable[T]]) -> T:
    async def run() -> T:
        async with AsyncMemory(settings=common.settings) as memory:
            return await work(AsyncWebhooks(memory.runtime.deps))

    return asyncio.run(run())


def _line(webhook: Webhook) -> Text:
    """A webhook to be read: id, events, whom it is about, its last delivery, address."""
    events = t("all events") if webhook.events == EVENTS else ", ".join(webhook.events)
    about = [t("user {id}", id=plain(webhook.user_id))] if webhook.user_id else []
    about += [t("agent {id}", id=plain(webhook.agent_id))] if webhook.agent_id else []
    about += [t("with text")] if webhook.include_text else []
    last = webhook.last_delivery
    result = _result(last) if last else t("nothing delivered yet")
    return Text("  ".join([webhook.webhook_id, ", ".join([events, *about]), result, webhook.url]))


def _result(delivery: Delivery) -> str:
    if delivery.error is None:
        return t("delivered {time}", time=when(delivery.at))
    return t("failed {time}: {error}", time=when(delivery.at), error=delivery.error)


register(webhooks, create)
register(webhooks, list_webhooks, name="list")
register(webhooks, test, delete)
