"""Commands that remember: what was said, knowledge, and stored messages once more."""

from collections.abc import Iterator
from typing import Annotated, Any

from rich.text import Text
from typer import Option

from kemem.results import Added, Outcome
from kemem.serve.cli import options
from kemem.serve.cli.console import plain
from kemem.serve.cli.language import t
from kemem.serve.cli.options import read_text, to_object
from kemem.serve.cli.terminal import Common, beginning, progress

Speaker = Annotated[str, Option(help="Who said it: user, assistant, system or tool.")]
Agent = Annotated[
    str | None,
    Option(metavar="ID", help="With which agent; without --user it is for all its users."),
]


def add(
    common: Common,
    text: options.Text = None,
    user: Annotated[
        str | None, Option(metavar="ID", help="Who said it; without any id: default.")
    ] = None,
    agent: Agent = None,
    session: Annotated[str | None, Option(metavar="ID", help="In which conversation.")] = None,
    role: Speaker = "user",
    infer: Annotated[
        bool, Option("--infer/--no-infer", help="Extract facts, or keep the text verbatim.")
    ] = True,
    memory_type: Annotated[
        str | None, Option(help="long, or short: it ends with its session.")
    ] = None,
    timestamp: Annotated[
        str | None, Option(metavar="TIME", help="When it was said (RFC 3339).")
    ] = None,
    expires_at: Annotated[
        str | None, Option(metavar="TIME", help="When it is to be forgotten (RFC 3339).")
    ] = None,
    metadata: options.Metadata = None,
    prompt: options.Prompt = None,
    sensitive: Annotated[
        bool, Option("--sensitive", help="Hide it from everybody without access to sensitive data.")
    ] = False,
    wait: Annotated[
        bool, Option("--wait/--no-wait", help="Extract facts now, or leave it to a job.")
    ] = True,
) -> None:
    """Remember what was said.

    The message is stored verbatim, and its facts become notes.

    $ kemem add "I moved to Porto" --user mia
    """
    message = {"role": role, "content": read_text(text)}
    ids: dict[str, Any] = {"user_id": user, "agent_id": agent, "session_id": session}
    details: dict[str, Any] = {
        **{"metadata": to_object(metadata, "--metadata"), "infer": infer, "prompt": prompt},
        **{"memory_type": memory_type, "timestamp": timestamp, "expires_at": expires_at},
        **{"sensitive": sensitive, "wait": wait},
    }
    with common.open() as memory, progress(t("Remembering")):
        added = memory.add([message], **ids, **details)
    common.print(added.to_dict(), *added_lines(added))


def learn(
    common: Common,
    text: options.Text = None,
    agent: Annotated[
        str | None, Option(metavar="ID", help="The agent, if not the one called default.")
    ] = None,
    summary: Annotated[str | None, Option(help="A shorter text to find it by.")] = None,
    tag: Annotated[list[str] | None, Option(help="A word to find it by; may be repeated.")] = None,
) -> None:
    """Keep a piece of knowledge for all users of an agent.

    $ kemem learn "Refunds take five working days." --agent support --tag refunds
    """
    with common.open() as memory:
        item = memory.learn(read_text(text), summary=summary, tags=tag or (), agent_id=agent)
    line = Text.assemble(t("learned"), f"  {plain(beginning(item.memory))}  ", (item.id, "dim"))
    common.print(item.to_dict(), line)


def extract(
    common: Common,
    user: options.User = None,
    agent: options.Agent = None,
    session: options.Session = None,
    prompt: options.Prompt = None,
) -> None:
    """Extract facts again from stored messages.

    Useful after you have set up a model.

    $ kemem extract --user mia
    """
    with common.open() as memory, progress(t("Reading")):
        added = memory.extract(user, agent, session, prompt=prompt)
    common.print(added.to_dict(), *added_lines(added))


def added_lines(added: Added) -> Iterator[Text]:
    """What became of some messages, to be read: what is stored, and which notes changed."""
    for message_id in added.message_ids:
        yield Text.assemble(t("stored"), "  ", (message_id, "dim"))
    for message_id in added.ignored:
        yield Text.assemble(t("stored before"), "  ", (message_id, "dim"))
    yield from map(_outcome_line, added.results)
    if not added.results:
        none = t("No note changed.")
        yield Text(t("A job will extract the facts: kemem work --once") if added.pending else none)
    for problem in added.problems:
        yield Text(plain(problem), style="yellow")


def _outcome_line(outcome: Outcome) -> Text:
    memory, before = plain(beginning(outcome.memory)), plain(beginning(outcome.previous or ""))
    match outcome.event:
        case "ADD":
            what, text = t("added"), memory
        case "UPDATE":
            what, text = t("replaced"), f"{before} → {memory}"
        case "DELETE":
            what, text = t("ended"), memory
        case "NONE":
            what, text = t("known"), memory
    return Text.assemble((what, "bold"), f"  {text}  ", (outcome.id, "dim"))
