"""Which notes end when something changes, in whole conversations: `lives(folder)` of `SPEC.md`."""

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kemem import Memory
from kemem.settings import Settings

_MESSAGE = re.compile(
    r"(?P<role>[ua])(?:\[(?P<letter>[A-Z])(?:>(?P<ends>[A-Z,]+))?\])?: (?P<text>.*)"
)


@dataclass(slots=True)
class Life:
    """What one person tells over months; `ends` are pairs of messages: this one ends that one."""

    name: str
    sessions: list[tuple[datetime, list[tuple[str, str, str]]]] = field(default_factory=list)
    ends: set[tuple[str, str]] = field(default_factory=set)


def lives(file: Path) -> Iterator[Life]:
    """The lives of a file."""
    life: Life | None = None
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if line.startswith("## "):
            if life:
                yield life
            life = Life(f"{file.name}:{number}")
        elif life and line.startswith("@ "):
            life.sessions.append((datetime.fromisoformat(line[2:].strip()).replace(tzinfo=UTC), []))
        elif life and life.sessions and (match := _MESSAGE.fullmatch(line.strip())):
            letter = match["letter"] or ""
            life.sessions[-1][1].append((match["role"], letter, match["text"]))
            life.ends |= {(letter, it) for it in (match["ends"] or "").split(",") if it}
    if life:
        yield life


def ended(life: Life) -> tuple[list[tuple[str, str, str, str]], int]:
    """The endings as (letter that ends, letter that is ended, and their texts), and all notes."""
    now = [0]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), llm="none")
        with Memory(settings=settings, clock=lambda: now[0]) as memory:
            letters: dict[str, tuple[str, str]] = {}
            times: dict[int, tuple[str, str]] = {}
            for number, (start, messages) in enumerate(life.sessions):
                micros = int(start.timestamp()) * 1_000_000
                spoken = [
                    {
                        "role": "user" if role == "u" else "assistant",
                        "content": text,
                        "ts": datetime.fromtimestamp((micros / 1e6) + 60 * at, UTC).isoformat(),
                    }
                    for at, (role, _, text) in enumerate(messages)
                ]
                now[0] = micros + 60_000_000 * len(messages)
                added = memory.add(spoken, user_id="u", session_id=f"s{number}")
                for at, (name, (_, letter, text)) in enumerate(
                    zip(added.message_ids, messages, strict=True)
                ):
                    letters[name] = letter, text
                    times[micros + 60_000_000 * at] = letter, text
            notes = [item.note for item in memory.get_all(user_id="u", limit=100)]
            pairs = []
            for note in notes:
                if note.valid_until is None:
                    continue
                by = times.get(note.valid_until, ("", "?"))
                to = letters.get(note.sources[0], ("", "?"))
                pairs.append((by[0], to[0], by[1], note.content))
    return pairs, len(notes)
