"""Options and arguments that several commands share, under the names of the Python arguments."""

import json
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer import Argument, Option

from kemem.errors import InvalidArgument
from kemem.serve.cli.language import t
from kemem.text.ids import is_blank

STANDARD_INPUT = "-"

User = Annotated[str | None, Option(metavar="ID", help="Whose memory.")]
Agent = Annotated[str | None, Option(metavar="ID", help="Only with this agent.")]
Session = Annotated[str | None, Option(metavar="ID", help="Only in this session.")]
MemoryId = Annotated[str, Argument(metavar="ID", help="Of a note or a message.")]
NoteId = Annotated[str, Argument(metavar="ID", help="Of a note.")]
Limit = Annotated[int, Option(help="Maximum number of results.", min=1, max=1000)]
CursorOption = Annotated[
    str | None, Option("--cursor", help="Continue after the page that printed it.")
]
Kinds = Annotated[
    list[str] | None,
    Option(
        "--kind",
        help="Only this kind: message, user_info, knowledge, experience or short_term; "
        "may be repeated.",
    ),
]
Types = Annotated[
    list[str] | None,
    Option("--type", help="Only this type, built in or your own; may be repeated."),
]
Filters = Annotated[
    str | None, Option(metavar="JSON", help='Conditions on fields and metadata: {"tag": "work"}.')
]
Metadata = Annotated[str | None, Option(metavar="JSON", help='Your own fields: {"tag": "work"}.')]
Since = Annotated[str | None, Option(metavar="TIME", help="From this time on (RFC 3339).")]
Until = Annotated[str | None, Option(metavar="TIME", help="Before this time (RFC 3339).")]
AsOf = Annotated[
    str | None, Option(metavar="TIME", help="What was known and true then (RFC 3339).")
]
Past = Annotated[bool, Option("--past", help="Ask for what is no longer true.")]
Role = Annotated[str | None, Option(help="Only what this role said: user, assistant, …")]
Prompt = Annotated[str | None, Option(help="An instruction to the language model.")]
Text = Annotated[
    str | None, Argument(metavar="[TEXT]", help="The text; without one, standard input.")
]


def of_types(types: list[str] | None, filters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Filters that also demand one of some types."""
    own = {"memory_type": types}
    return filters if not types else {"AND": [own, filters]} if filters else own


def to_object(value: str | None, option: str) -> dict[str, Any] | None:
    """The JSON object that an option gives."""
    if value is None:
        return None
    with suppress(ValueError, RecursionError):
        parsed = json.loads(value)
        if isinstance(parsed, dict):
            return parsed
    reason = t("{option} must be a JSON object, not {value}", option=option, value=f"{value!r:.80}")
    raise InvalidArgument(reason, field=option)


def read_text(text: str | None) -> str:
    """The text of an argument; without one, or for "-", what standard input holds."""
    if text is None and sys.stdin.isatty():
        reason = t("give a text, or pipe one to standard input")
        raise typer.BadParameter(reason, param_hint="TEXT")
    if text is None or text == STANDARD_INPUT:
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            reason = t("standard input is not a text in UTF-8")
            raise InvalidArgument(reason) from None
    if is_blank(text):
        raise typer.BadParameter(t("the text is empty"), param_hint="TEXT")
    return text
