"""Files of messages, one JSON object a line, with ids that make a second import harmless."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kemem.errors import InvalidArgument, KeMemError
from kemem.text.ids import check_id

_ITEM = re.compile(r"messages\[(\d+)\]\.?")


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


def read_lines(raw_lines: Iterable[bytes], name: str, target: Target) -> Iterator[Line]:
    """The messages of a file; a line that is none raises InvalidArgument with its number."""
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
    """An id that the same message of the same file always gets; repetitions are counted."""
    said = [owner.user_id, owner.agent_id, owner.session_id, fields]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
    seen[digest] += 1
    return "m_" + hashlib.sha256(digest + seen[digest].to_bytes(8)).hexdigest()[:32]
