"""The memory tools: what can be called over JSON-RPC, and what it answers."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.memory import AsyncMemory
from kemem.recall.tools import summary
from kemem.results import Item
from kemem.serve.http.schemas import Body
from kemem.serve.rpc.dump import dump_knowledge, dump_workspaces, entry
from kemem.serve.rpc.jsonrpc import Method

MAX_FOUND = 100  # results of memory_search, of each level

Level = Literal["kb", "workspace", "all"]
Answer = dict[str, Any]


class Params(Body):
    """Parameters by name; one that is null is left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in given.items() if value is not None}


class InitWorkspace(Params):
    """The task that begins, and whether what it has left may go."""

    task_id: str
    reset: bool = False


class Add(Params):
    """An entry of the knowledge base."""

    content: str
    summary: str
    tags: list[str] = Field(default_factory=list)


class Query(Params):
    """What to look for, and how much of it."""

    query: str
    top_k: int = Field(default=3, ge=1)


class Delete(Params):
    """The entry that goes."""

    kb_id: str


class Cleanup(Params):
    """The task that is over."""

    task_id: str


class Dump(Params):
    """What to show."""

    level: Level = "all"


class Search(Params):
    """What to look for, and where."""

    query: str
    level: Level = "all"


class Restore(Params):
    """The backup to go back to."""

    backup_path: str


@dataclass(frozen=True, slots=True)
class MemoryTools:
    """The tools over a memory; knowledge is that of one agent."""

    memory: AsyncMemory
    agent_id: str

    @property
    def methods(self) -> dict[str, Method]:
        """Every tool by its name."""
        return {
            "memory_init_workspace": Method(InitWorkspace, self.init_workspace),
            "memory_add": Method(Add, self.add),
            "memory_query": Method(Query, self.query),
            "memory_delete": Method(Delete, self.delete),
            "memory_cleanup": Method(Cleanup, self.cleanup),
            "memory_get_status": Method(Params, self.get_status),
            "memory_dump": Method(Dump, self.dump),
            "memory_search": Method(Search, self.search),
            "memory_backup": Method(Params, self.backup),
            "memory_restore": Method(Restore, self.restore),
        }

    async def init_workspace(self, asked: InitWorkspace) -> Answer:
        """A fresh workspace for a task."""
        workspaces = await self.memory.workspaces()
        path = await asyncio.to_thread(workspaces.init, asked.task_id, reset=asked.reset)
        return {"path": str(path)}

    async def add(self, asked: Add) -> Answer:
        """A new entry of the knowledge base."""
        learned = await self.memory.learn(
            asked.content, summary=asked.summary, tags=asked.tags, agent_id=self.agent_id
        )
        return {"id": learned.id, "summary": summary_of(learned)}

    async def query(self, asked: Query) -> Answer:
        """The entries that fit best, by words and meaning."""
        found = await self.memory.search(
            asked.query, agent_id=self.agent_id, kinds=["knowledge"], limit=asked.top_k
        )
        return {
            "results": [
                {"id": hit.id, "summary": summary_of(hit), "content": hit.memory} for hit in found
            ]
        }

    async def delete(self, asked: Delete) -> Answer:
        """One entry less."""
        found = await self.memory.get(asked.kb_id, agent_id=self.agent_id)
        if found.kind != "knowledge":
            raise NotFound(f"no memory {asked.kb_id!r:.80}")
        await self.memory.delete(asked.kb_id, agent_id=self.agent_id)
        return {"status": "success", "id": asked.kb_id}

    async def cleanup(self, asked: Cleanup) -> Answer:
        """A workspace deleted with all that is in it."""
        workspaces = await self.memory.workspaces()
        path = await asyncio.to_thread(workspaces.cleanup, asked.task_id)
        return {"status": "success", "path": str(path)}

    async def get_status(self, asked: Params) -> Answer:
        """Whether the store answers, and whether any task has a workspace."""
        try:
            workspaces = await self.memory.workspaces()
            tasks = await asyncio.to_thread(workspaces.tasks)
        except Unavailable:
            return {"status": "error", "kb_status": "unloaded", "workspace_status": "unknown"}
        active = "active" if tasks else "clean"
        return {"status": "ok", "kb_status": "loaded", "workspace_status": active}

    async def dump(self, asked: Dump) -> Answer:
        """All entries, all files of all workspaces, or both."""
        data: Answer = {}
        if asked.level != "workspace":
            data["kb"] = await dump_knowledge(self.memory, self.agent_id)
        if asked.level != "kb":
            workspaces = await self.memory.workspaces()
            data["workspace"] = await asyncio.to_thread(dump_workspaces, workspaces)
        return {"status": "ok", "data": data if asked.level == "all" else data[asked.level]}

    async def search(self, asked: Search) -> Answer:
        """Entries and lines of files that have the words of the query."""
        results: list[Answer] = []
        if asked.level != "workspace":
            hits = await self.memory.search(
                asked.query,
                agent_id=self.agent_id,
                kinds=["knowledge"],
                limit=MAX_FOUND,
                mode="lexical",
            )
            results += [{"source": "kb", "key": hit.id, "value": entry(hit)} for hit in hits]
        if asked.level != "kb":
            workspaces = await self.memory.workspaces()
            for task_id, path, line in await asyncio.to_thread(
                workspaces.search, asked.query, limit=MAX_FOUND
            ):
                value = {"task_id": task_id, "path": path, "line": line}
                results.append({"source": "workspace", "key": f"{task_id}/{path}", "value": value})
        return {"status": "ok", "results": results}

    async def backup(self, asked: Params) -> Answer:
        """All of the memory in one file."""
        made = await self.memory.backup()
        return {
            "status": "ok",
            "message": "Backup successful.",
            "backup_path": str(made.path),
        }

    async def restore(self, asked: Restore) -> Answer:
        """All of the memory as it was."""
        await self.memory.restore(backup_inside(asked.backup_path, self.memory.places.backups))
        return {"status": "ok", "message": f"从 {asked.backup_path} 恢复成功"}


def summary_of(item: Item) -> str:
    """The summary that was given; of what came without one, how it begins."""
    return item.note.summary or summary(item)


def backup_inside(path: str, backups: Path) -> Path:
    """The backup that a path means; what does not stand in the directory of backups is refused."""
    root = Path(os.path.realpath(backups))
    if "\0" not in path:
        for start in (root, Path.cwd()):
            meant = Path(os.path.realpath(start / path))
            if meant.is_relative_to(root) and os.path.exists(meant):
                return meant
    raise InvalidArgument(
        f"backup_path must name a backup in the directory of backups, not {path!r:.200}",
        field="backup_path",
    )
