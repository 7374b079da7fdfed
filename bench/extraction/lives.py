"""Which notes end when something changes, in whole conversations: `lives(folder)` of `SPEC.md`."""

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kemem import AsyncMemory
from kemem.ports import read_notes
from kemem.records import NOTES, Scope, Where
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


async def ended(life: Life) -> tuple[list[tuple[str, str, str, str]], int]:
    """The endings as (letter that ends, letter that is ended, and their texts), and all notes."""
    now = [0]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), llm="none")
        async with AsyncMemory(settings=settings, clock=lambda: now[0]) as memory:
            letters: dict[str, tuple[str, str]] = {}
            times: dict[int, tuple[str, str]] = {}
            for number, (start, messages) in enumerate(life.sessions):
                micros = int(start.timestamp()) * 1_000_000
                spoken = [
                    {
                        "role": "user" if role == "u" else "assistant",
                        "content": text,
                        "ts": (start + timedelta(minutes=at)).isoformat(),
                    }
                    for at, (role, _, text) in enumerate(messages)
                ]
                now[0] = micros + 60_000_000 * len(messages)
                added = await memory.add(spoken, user_id="u", session_id=f"s{number}")
                texts = [(letter, text) for _, letter, text in messages]
                letters |= zip(added.message_ids, texts, strict=True)
                times |= {micros + 60_000_000 * at: it for at, it in enumerate(texts)}
            deps = await memory._operator_deps()
            where = Where(Scope(user_id="u"), kinds=NOTES)
            notes = await read_notes(deps.store, where, limit=1_000)
    pairs = []
    for note in notes:
        if note.valid_until is not None:
            by, to = times.get(note.valid_until, ("", "?")), letters.get(note.sources[0], ("", "?"))
            pairs.append((by[0], to[0], by[1], note.content))
    return pairs, len(notes)
