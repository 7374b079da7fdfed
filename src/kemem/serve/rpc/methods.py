"""The memory tools: the methods that can be called over JSON-RPC, and their results."""

import asyncio
import codecs
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kemem.errors import Exhausted, InvalidArgument, NotFound, PermissionDenied, Unavailable
from kemem.memory import AsyncMemory
from kemem.recall.tools import summary as summary_or_beginning
from kemem.results import Item
from kemem.serve.http.errors import READ_ONLY
from kemem.serve.rpc.jsonrpc import Method
from kemem.workspace import StoredFile, Workspaces

MAX_HITS = 100  # of memory_search, for each level
MAX_DUMP = 16 << 20  # characters of text
_PAGE = 1000
_NAMES = (
    *("init_workspace", "add", "query", "delete", "cleanup", "get_status", "dump", "search"),
    *("backup", "restore"),
)
READING = frozenset(f"memory_{name}" for name in ("query", "get_status", "dump", "search"))
_NO_TAGS: list[str] = Field(default_factory=list)

Level = Literal["kb", "workspace", "all"]
Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryTools:
    """The tools over a memory; the knowledge base is that of one agent."""

    memory: AsyncMemory
    agent_id: str

    @property
    def methods(self) -> dict[str, Method]:
        """Every tool by its name."""
        return {f"memory_{name}": getattr(self, name) for name in _NAMES}

    async def init_workspace(self, task_id: str, reset: bool = False) -> Result:
        """Create an empty workspace for a task; `reset` may erase the one that it has."""
        workspaces = await self.memory.workspaces()
        path = await asyncio.to_thread(workspaces.init, task_id, reset=reset)
        return {"path": str(path)}

    async def add(self, content: str, summary: str, tags: list[str] = _NO_TAGS) -> Result:
        """Add an entry to the knowledge base."""
        entry = await self.memory.learn(content, summary=summary, tags=tags, agent_id=self.agent_id)
        return {"id": entry.id, "summary": _summary(entry)}

    async def query(
        self, query: str, top_k: Annotated[int, Field(ge=1)] = 3, past: bool = False
    ) -> Result:
        """Find the entries that fit best, by words and meaning; with `past` replaced ones, too."""
        hits = await self.memory.search(
            query, agent_id=self.agent_id, kinds=["knowledge"], limit=top_k, past=past
        )
        shown = [
            {"id": hit.id, "summary": _summary(hit), "content": hit.memory, **hit.marks}
            for hit in hits
        ]
        return {"results": shown}

    async def delete(self, kb_id: str, sources: bool = False) -> Result:
        """Delete an entry; the messages that it cites are withdrawn, or erased with `sources`."""
        item = await self.memory.get(kb_id, agent_id=self.agent_id)
        if item.kind != "knowledge":
            raise NotFound(f"no memory {kb_id!r:.80}")
        gone = await self.memory.delete(kb_id, agent_id=self.agent_id, sources=sources)
        messages = {"withdrawn": gone.withdrawn, "erased": gone.erased}
        named = {name: list(ids) for name, ids in messages.items() if ids}
        return {"status": "success", "id": kb_id, **named}

    async def cleanup(self, task_id: str) -> Result:
        """Delete a workspace with all files in it."""
        workspaces = await self.memory.workspaces()
        path = await asyncio.to_thread(workspaces.cleanup, task_id)
        return {"status": "success", "path": str(path)}

    async def get_status(self) -> Result:
        """Whether the store can be reached, and whether any task has a workspace."""
        try:
            workspaces = await self.memory.workspaces()
            tasks = await asyncio.to_thread(workspaces.tasks)
        except Unavailable:
            return {"status": "error", "kb_status": "unloaded", "workspace_status": "unknown"}
        active = "active" if tasks else "clean"
        return {"status": "ok", "kb_status": "loaded", "workspace_status": active}

    async def dump(self, level: Level = "all") -> Result:
        """All entries, all files of all workspaces, or both."""
        data: Result = {}
        if level != "workspace":
            data["kb"] = await dump_knowledge(self.memory, self.agent_id)
        if level != "kb":
            workspaces = await self.memory.workspaces()
            data["workspace"] = await asyncio.to_thread(dump_workspaces, workspaces)
        return {"status": "ok", "data": data if level == "all" else data[level]}

    async def search(self, query: str, level: Level = "all") -> Result:
        """Find entries and lines of files that have the words of the query."""
        results: list[Result] = []
        if level != "workspace":
            hits = await self.memory.search(
                query, agent_id=self.agent_id, kinds=["knowledge"], limit=MAX_HITS, mode="lexical"
            )
            results += [{"source": "kb", "key": hit.id, "value": _entry(hit)} for hit in hits]
        if level != "kb":
            workspaces = await self.memory.workspaces()
            lines = await asyncio.to_thread(workspaces.search, query, limit=MAX_HITS)
            for task_id, path, line in lines:
                value = {"task_id": task_id, "path": path, "line": line}
                results.append({"source": "workspace", "key": f"{task_id}/{path}", "value": value})
        return {"status": "ok", "results": results}

    async def backup(self) -> Result:
        """Write the whole memory to one file."""
        made = await self.memory.backup()
        return {"status": "ok", "message": "Backup successful.", "backup_path": str(made.path)}

    async def restore(self, backup_path: str) -> Result:
        """Replace the whole memory by a backup."""
        root = Path(os.path.realpath(self.memory.places.backups))
        starts = () if "\0" in backup_path else (root, Path.cwd())
        paths = [Path(os.path.realpath(start / backup_path)) for start in starts]
        backup = next((it for it in paths if it.is_relative_to(root) and os.path.exists(it)), None)
        if backup is None:
            reason = "backup_path must name a backup in the directory of backups"
            raise InvalidArgument(f"{reason}, not {backup_path!r:.200}", field="backup_path")
        await self.memory.restore(backup)
        return {"status": "ok", "message": f"从 {backup_path} 恢复成功"}


def reading_only(methods: Mapping[str, Method]) -> dict[str, Method]:
    """The methods for a caller who may only read: the others refuse, whatever the parameters."""
    return {name: it if name in READING else _refused(it) for name, it in methods.items()}


def _refused(method: Method) -> Method:
    @wraps(method)  # with the same signature: wrong parameters are refused first, as for others
    async def refuse(**parameters: Any) -> Result:
        raise PermissionDenied(READ_ONLY)

    return refuse


def _summary(item: Item) -> str:
    """The summary of an entry, or how it begins."""
    return item.note.summary or summary_or_beginning(item)


def _entry(item: Item) -> Result:
    """An entry as programs read it."""
    summary, tags = item.note.summary or "", list(item.keywords)
    return {"content": item.memory, "summary": summary, "tags": tags}


def _check_size(size: int) -> None:
    if size > MAX_DUMP:
        most = MAX_DUMP >> 20
        raise Exhausted(f"this is more than {most} MiB of text: use kemem backup instead")


async def dump_knowledge(memory: AsyncMemory, agent_id: str) -> Result:
    """Every entry of an agent's knowledge base by its id, oldest first."""
    size, entries, cursor = 0, list[Item](), None
    while True:
        page = await memory.get_all(
            agent_id=agent_id, kinds=["knowledge"], limit=_PAGE, cursor=cursor
        )
        entries += page
        size += sum(len(item.memory) + len(item.note.summary or "") for item in page)
        _check_size(size)
        cursor = page.next_cursor
        if cursor is None:
            return {item.id: _entry(item) for item in reversed(entries)}


def dump_workspaces(workspaces: Workspaces) -> Result:
    """The text of every file by task and path; of a binary file, the size."""
    size = 0
    tasks: dict[str, Result] = {task_id: {} for task_id in workspaces.tasks()}
    for file in workspaces.files():
        name = file.path.encode("utf-8", "backslashreplace").decode()  # a name may not be UTF-8
        size += len(name)
        content = _content(file, size)
        tasks.setdefault(file.task_id, {})[name] = content
        size += len(content) if isinstance(content, str) else 0
    return tasks


def _content(file: StoredFile, size: int) -> str | Result:
    """The text of a file, unless the dump, which has this size already, becomes too large."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts: list[str] = []
    try:
        for chunk in file.chunks():
            if b"\0" in chunk:
                return {"size": file.size, "binary": True}
            parts.append(decoder.decode(chunk))
            size += len(parts[-1])
            _check_size(size)
        return "".join((*parts, decoder.decode(b"", final=True)))
    except UnicodeDecodeError:
        return {"size": file.size, "binary": True}
    except Unavailable:  # it has gone meanwhile, or nobody may read it
        return {"size": file.size, "unreadable": True}
