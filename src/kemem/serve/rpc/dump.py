"""What a memory holds, shown whole: knowledge and the files of workspaces, within a bound."""

import codecs
from typing import Any

from kemem.errors import Exhausted, Unavailable
from kemem.memory import AsyncMemory
from kemem.results import Item
from kemem.workspace import StoredFile, Workspaces

MAX_DUMP = 16 << 20  # characters of text
_PAGE = 1000


class _Room:
    """How much may still be shown."""

    def __init__(self) -> None:
        self._left = MAX_DUMP

    def take(self, size: int) -> None:
        """Take up some of it; what does not fit is refused."""
        self._left -= size
        if self._left < 0:
            raise Exhausted(
                f"this is more than {MAX_DUMP >> 20} MiB of text: use kemem backup instead"
            )


async def dump_knowledge(memory: AsyncMemory, agent_id: str) -> dict[str, Any]:
    """Every entry of an agent's knowledge by its id, oldest first."""
    room, entries, cursor = _Room(), list[Item](), None
    while True:
        page = await memory.get_all(
            agent_id=agent_id, kinds=["knowledge"], limit=_PAGE, cursor=cursor
        )
        for item in page:
            room.take(len(item.memory) + len(item.note.summary or ""))
            entries.append(item)
        cursor = page.next_cursor
        if cursor is None:
            return {item.id: entry(item) for item in reversed(entries)}


def entry(item: Item) -> dict[str, Any]:
    """An entry as programs read it."""
    return {
        "content": item.memory,
        "summary": item.note.summary or "",
        "tags": list(item.keywords),
    }


def dump_workspaces(workspaces: Workspaces) -> dict[str, Any]:
    """The files of every task by their paths; of what is no text, the size."""
    room = _Room()
    tasks: dict[str, dict[str, Any]] = {task_id: {} for task_id in workspaces.tasks()}
    for file in workspaces.files():
        name = file.path.encode("utf-8", "backslashreplace").decode()  # bytes that are no UTF-8
        room.take(len(name))
        tasks.setdefault(file.task_id, {})[name] = _shown(file, room)
    return tasks


def _shown(file: StoredFile, room: _Room) -> str | dict[str, Any]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts: list[str] = []
    try:
        for chunk in file.chunks():
            if b"\0" in chunk:
                return {"size": file.size, "binary": True}
            parts.append(decoder.decode(chunk))
            room.take(len(parts[-1]))
        return "".join((*parts, decoder.decode(b"", final=True)))
    except UnicodeDecodeError:
        return {"size": file.size, "binary": True}
    except Unavailable:  # it has gone meanwhile, or nobody may read it
        return {"size": file.size, "unreadable": True}
