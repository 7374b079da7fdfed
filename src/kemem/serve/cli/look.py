"""Commands that look: search, recall, lists, one memory, its history, messages, profile, graph."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from rich.console import RenderableType
from rich.text import Text
from typer import Argument, BadParameter, Option

from kemem.recall import Step
from kemem.records import Change, Message, Relation
from kemem.results import Hit, Item
from kemem.scope import DEFAULT
from kemem.serve.cli import options
from kemem.serve.cli.console import errors, plain
from kemem.serve.cli.language import t
from kemem.serve.cli.options import to_object
from kemem.serve.cli.terminal import Common, beginning, more_line, when
from kemem.text.query import CLOSE, OPEN

_MARK = re.compile(f"{OPEN}(.*?){CLOSE}")
_INDENT = " " * 6
Changed = Literal["forgotten", "ended"]
Sensitive = Annotated[bool, Option("--sensitive", help="See what is sensitive, too.")]


def search(
    common: Common,
    query: Annotated[
        str, Argument(metavar="QUERY", help='A question, or words, "phrases", AND, OR, NOT, ( ).')
    ],
    user: Annotated[
        str | None, Option(metavar="ID", help="Whose memory; without any id: default.")
    ] = None,
    agent: options.Agent = None,
    session: options.Session = None,
    limit: options.Limit = 10,
    mode: Annotated[
        Literal["hybrid", "lexical", "semantic"],
        Option(help="By words and meaning, or by one of them."),
    ] = "hybrid",
    kind: options.Kinds = None,
    type: options.Types = None,
    role: options.Role = None,
    since: options.Since = None,
    until: options.Until = None,
    as_of: options.AsOf = None,
    past: options.Past = False,
    threshold: Annotated[float | None, Option(help="The least score.", min=0, max=1)] = None,
    filters: options.Filters = None,
    explain: Annotated[bool, Option("--explain", help="Show why each one was found.")] = False,
) -> None:
    """Find notes and messages that answer a question.

    $ kemem search "where does she live now?" --user mia
    """
    conditions = options.of_types(type, to_object(filters, "--filters"))
    if role is not None:
        conditions = {**(conditions or {}), "role": role}
    ids: dict[str, Any] = {"user_id": user, "agent_id": agent, "session_id": session}
    when_: dict[str, Any] = {"since": since, "until": until, "as_of": as_of, "past": past}
    marked = explain or not common.as_json  # what matched is marked only where it is explained
    how: dict[str, Any] = {"mode": mode, "kinds": kind or None, "explain": marked}
    with common.open() as memory:
        hits = memory.search(
            query, **ids, limit=limit, filters=conditions, threshold=threshold, **when_, **how
        )
    lines: list[RenderableType] = [_hit_text(hit, explain) for hit in hits]
    common.print(hits.to_dict(), *(lines or [t("Nothing was found.")]))


def _hit_text(hit: Hit, explain: bool) -> Text:
    """A hit to be read: score and extracts; kind, time and id; the reasons, if asked for."""
    text = Text.assemble((f"{hit.score:.2f}  ", "bold"))
    if hit.in_reply_to:
        text.append(f"assistant: {plain(hit.in_reply_to)}\n{_INDENT}", "dim")
    for at, extract in enumerate(hit.snippets or (beginning(hit.memory),)):
        pieces = enumerate(_MARK.split(plain(extract)))  # matches are at odd places
        marked = ((piece, "bold yellow" if place % 2 else "") for place, piece in pieces)
        text.append(_INDENT if at else "").append_text(Text.assemble(*marked)).append("\n")
    ended = [] if hit.ended is None else [t("until {day}", day=when(hit.ended)[:10])]
    text.append(f"{_INDENT}{' · '.join([*_about(hit), *ended])}", "dim")
    return text.append(f"\n{_INDENT}{' · '.join(hit.why)}", "dim") if explain else text


def _about(item: Item) -> list[str]:
    """Kind with role or type, time and id of a memory."""
    row = item.row
    more = row.role if isinstance(row, Message) else item.memory_type
    return [f"{row.kind} ({more})", when(row.ts), row.id]


def recall(
    common: Common,
    question: Annotated[str, Argument(metavar="QUESTION", help="The question.")],
    user: Annotated[
        str | None, Option(metavar="ID", help="Whose memory; without any id: default.")
    ] = None,
    agent: options.Agent = None,
    session: Annotated[
        str | None, Option(metavar="ID", help="The conversation that the question comes from.")
    ] = None,
    max_iterations: Annotated[
        int | None, Option(help="Maximum number of rounds; each sees more.", min=1, max=10)
    ] = None,
    sensitive: Sensitive = False,
    past: options.Past = False,
    trace: Annotated[bool, Option("--trace", help="Show each step on standard error.")] = False,
) -> None:
    """Collect the evidence for a question, step by step.

    $ kemem recall "Which flat is mia likely to like?" --user mia
    """
    with common.open() as memory, errors.status(t("Recalling")) as status:

        def show(step: Step) -> None:
            status.update(Text(plain(f"{step.tool}: {step.outcome}")))
            if trace:
                errors.print(Text(_step_line(step), style="dim"))

        handle = memory.for_user(user or DEFAULT, agent_id=agent, sensitive=sensitive)
        limits: dict[str, Any] = {"max_iterations": max_iterations, "past": past}
        result = handle.recall(question=question, session_id=session, on_step=show, **limits)
    text: list[str | Text] = [plain(line) for line in result.message.splitlines()]
    for each in result.evidence:
        head = f"  {each.dates}  {each.memory_key}\n"
        content = f"{_INDENT}{plain(beginning(each.text))}"
        text.append(Text.assemble("\n", (f"{each.score:.2f}", "bold"), (head, "dim"), content))
    common.print(result.to_dict(), *text)


def _step_line(step: Step) -> str:
    outcome = f"{'' if step.success else t('failed: ')}{plain(step.outcome)}"
    cached = t(" (cached)") if step.cached else ""
    return f"{step.number:>2}  {step.seconds:6.3f} s  {step.tool:<23}  {outcome}{cached}"


def list_memories(
    common: Common,
    user: Annotated[
        str | None, Option(metavar="ID", help="Whose memory; without any id: default.")
    ] = None,
    agent: options.Agent = None,
    session: options.Session = None,
    kind: options.Kinds = None,
    type: options.Types = None,
    changed: Annotated[
        Changed | None,
        Option(help="Instead: notes that were deleted or forgotten, or that a model ended."),
    ] = None,
    as_of: options.AsOf = None,
    filters: options.Filters = None,
    limit: options.Limit = 100,
    cursor: options.CursorOption = None,
) -> None:
    """List what is remembered, newest first.

    $ kemem list --user mia
    """
    if changed is not None:
        if session or kind or type or as_of or filters or cursor:
            only = t("takes --user, --agent and --limit only")
            raise BadParameter(only, param_hint="--changed")
        _list_changes(common, changed, user, agent, limit)
        return
    conditions = options.of_types(type, to_object(filters, "--filters"))
    with common.open() as memory:
        page = memory.get_all(
            user, agent, session, conditions, limit, kinds=kind or None, as_of=as_of, cursor=cursor
        )
    more = more_line(page.next_cursor)
    lines: list[RenderableType] = [*map(item_text, page), *more]
    common.print(page.to_dict(), *(lines or [t("Nothing is remembered.")]))


def _list_changes(
    common: Common, changed: Changed, user: str | None, agent: str | None, limit: int
) -> None:
    with common.open() as memory:
        read = memory.forgotten if changed == "forgotten" else memory.ended
        changes = read(user, agent, limit=limit)
    _print_changes(common, changes)


def item_text(item: Item) -> Text:
    """A memory to be read: its text; kind, time and id."""
    ended = item.row.valid_until
    marks = [] if ended is None else [t("until {day}", day=when(ended)[:10])]
    marks += [t("withdrawn")] if item.withdrawn else []
    about = " · ".join([*_about(item), *marks])
    return Text.assemble(f"{plain(beginning(item.memory))}\n", (f"{_INDENT}{about}", "dim"))


def get(
    common: Common,
    memory_id: options.MemoryId,
    user: options.User = None,
    agent: options.Agent = None,
    session: options.Session = None,
    sources: Annotated[
        bool, Option("--sources", help="Show the messages that it cites instead.")
    ] = False,
) -> None:
    """Show one memory in full.

    A note is found by its id alone, a message by its id and --user.

    $ kemem get n_01JD8Z4XN5 --user mia
    """
    ids: dict[str, Any] = {"user_id": user, "agent_id": agent, "session_id": session}
    with common.open() as memory:
        if sources:
            cited = memory.sources(memory_id, **ids)
            common.print({"items": [it.to_dict() for it in cited]}, *map(_message_text, cited))
            return
        item = memory.get(memory_id, **ids)
    shown = item.to_dict()
    rest = {name: it for name, it in shown.items() if name != "memory" and it not in (None, [], {})}
    lines = [_field_line(name, it) for name, it in rest.items()]
    common.print(shown, _lines_of(item.memory), *lines)


def _field_line(name: str, value: object) -> Text:
    listed = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return Text.assemble((f"{name:<12} ", "dim"), plain(listed))


def _lines_of(text: str) -> str:
    """A whole text with its lines, each without what could steer the terminal."""
    return "\n".join(map(plain, text.splitlines()))


def history(
    common: Common,
    memory_id: options.NoteId,
    user: options.User = None,
    agent: options.Agent = None,
    limit: options.Limit = 100,
) -> None:
    """Show the changes of a note, newest first.

    $ kemem history n_01JD8Z4XN5 --user mia
    """
    with common.open() as memory:
        changes = memory.history(memory_id, user_id=user, agent_id=agent, limit=limit)
    _print_changes(common, changes)


def _print_changes(common: Common, changes: list[Change]) -> None:
    data = {"items": [change.to_dict() for change in changes]}
    common.print(data, *(map(_change_text, changes) if changes else [t("No note changed.")]))


def _change_text(change: Change) -> Text:
    """A change to be read: when, which; the texts before and after; the reason."""
    texts = [plain(beginning(it)) for it in (change.before, change.after) if it is not None]
    reason = [plain(change.reason)] if change.reason else []
    events = {"add": t("added"), "update": t("changed"), "delete": t("deleted")}
    about = " · ".join([change.note_id, *reason])
    return Text.assemble(
        f"{when(change.at)}  {events[change.event]}  {' → '.join(texts)}".rstrip(),
        (f"\n{_INDENT}{about}", "dim"),
    )


def messages(
    common: Common,
    user: Annotated[str, Option(metavar="ID", help="Whose messages.")],
    role: options.Role = None,
    since: options.Since = None,
    until: options.Until = None,
    around: Annotated[
        str | None, Option(metavar="ID", help="This message and those near it instead.")
    ] = None,
    before: Annotated[int, Option(help="With --around: how many before it.", min=0)] = 20,
    after: Annotated[int, Option(help="With --around: how many after it.", min=0)] = 0,
    branch: Annotated[
        str | None, Option(metavar="ID", help="Only the branch that ends with this message.")
    ] = None,
    limit: options.Limit = 50,
    cursor: options.CursorOption = None,
) -> None:
    """Show messages verbatim, newest first.

    $ kemem messages --user mia --limit 20
    """
    with common.open() as memory:
        if around is not None:
            near = memory.neighbors(around, user, before, after)
            common.print({"items": [it.to_dict() for it in near]}, *map(_message_text, near))
            return
        page = memory.messages(user, since, until, role, limit, cursor, branch)
    more = more_line(page.next_cursor)
    lines: list[RenderableType] = [*map(_message_text, page.items), *more]
    common.print(page.to_dict(), *(lines or [t("Nothing was said.")]))


def _message_text(message: Message) -> Text:
    """A message to be read: when, who, what; where it belongs."""
    about = [message.session_id, message.message_id, *[t("withdrawn")] * message.withdrawn]
    return Text.assemble(
        f"{when(message.ts)}  {message.role}: {plain(beginning(message.content))}",
        (f"\n{_INDENT}{plain(' · '.join(about))}", "dim"),
    )


def profile(
    common: Common,
    user: Annotated[
        str | None, Option(metavar="ID", help="Whose profile; without any id: default.")
    ] = None,
    agent: options.Agent = None,
    max_tokens: Annotated[int, Option(help="How long it may be.", min=50)] = 1000,
    sensitive: Sensitive = False,
) -> None:
    """Show what is known of a user now, by topic.

    $ kemem profile --user mia
    """
    with common.open() as memory:
        handle = memory.for_user(user or DEFAULT, agent_id=agent, sensitive=sensitive)
        known = handle.profile(max_tokens=max_tokens)
    lines: list[str | Text] = []
    for group in known.groups:
        lines.append(Text(group.title, style="bold"))
        lines += [f"  {plain(beginning(line.memory))}" for line in group.lines]
    if known.omitted:
        lines.append(t("{count} more did not fit.", count=known.omitted))
    common.print(known.to_dict(), *(lines or [t("Nothing is known of this user.")]))


def graph(
    common: Common,
    user: options.User = None,
    agent: options.Agent = None,
    session: options.Session = None,
    around: Annotated[
        list[str] | None, Option(metavar="NAME", help="Entity to start from; may be repeated.")
    ] = None,
    relationship: Annotated[
        list[str] | None, Option(metavar="TYPE", help="Type of relation; may be repeated.")
    ] = None,
    hops: Annotated[int, Option(help="Number of steps from it.", min=1, max=5)] = 1,
    as_of: options.AsOf = None,
    limit: options.Limit = 100,
) -> None:
    """Show how people, places and things are related.

    $ kemem graph --user mia --around Porto
    """
    with common.open() as memory:
        relations = memory.graph(
            *(user, agent, session),
            around=around or None,
            relationship=relationship or None,
            hops=hops,
            limit=limit,
            as_of=as_of,
        )
    data = {"relations": [it.to_dict() for it in relations]}
    common.print(data, *(_relation_lines(relations) if relations else [t("No relation is known.")]))


def _relation_lines(relations: list[Relation]) -> Iterator[Text]:
    for each in relations:
        until = "" if each.valid_until is None else t("until {day}", day=when(each.valid_until))
        line = plain(f"{each.source} —{each.relationship}→ {each.destination}")
        yield Text.assemble(line, (f"  {until}{', '.join(each.note_ids)}", "dim"))
