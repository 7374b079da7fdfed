"""The command that recalls: the evidence that a question needs, found step by step."""

from typing import Annotated

import typer
from rich.text import Text

from kemem.recall import Evidence, Step
from kemem.serve.cli.terminal import (
    AsJson,
    DatabaseUrl,
    DataDir,
    beginning,
    errors,
    output,
    plain,
    print_json,
    settings_in_force,
)
from kemem.sync import Memory
from kemem.text.times import to_rfc3339


def recall(
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
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Find what a question needs to know of a user, step by step."""
    settings = settings_in_force(data_dir, database_url)
    with Memory(settings=settings) as memory, errors.status("Recalling") as status:

        def show(step: Step) -> None:
            status.update(Text(plain(f"{step.tool}: {step.outcome}")))
            if trace:
                errors.print(_step_text(step))

        handle = memory.for_user(user, agent_id=agent, sensitive=sensitive)
        found = handle.recall(
            question, session_id=session, max_iterations=max_iterations, on_step=show
        )
    if as_json:
        print_json(found.to_dict())
        return
    output.print(*map(plain, found.message.splitlines()), sep="\n")
    for evidence in found.evidence:
        output.print(_evidence_text(evidence))


def _step_text(step: Step) -> Text:
    """A step to be read: its number, time, tool and outcome."""
    outcome = plain(step.outcome) if step.success else f"failed: {plain(step.outcome)}"
    kept = " (cached)" if step.cached else ""
    line = f"{step.number:>2}  {step.seconds:6.3f} s  {step.tool:<23}  {outcome}{kept}"
    return Text(line, style="dim")


def _evidence_text(evidence: Evidence) -> Text:
    """A memory to be read: score, day and key; how it begins."""
    head = f"  {to_rfc3339(evidence.event_time)[:10]}  {evidence.memory_key}\n"
    text = Text.assemble("\n", (f"{evidence.score:.2f}", "bold"), (head, "dim"))
    return text.append(f"      {plain(beginning(evidence.content))}")
