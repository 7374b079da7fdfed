"""AsyncMemory: the class that applications use."""

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kemem import session
from kemem.add.condense import condense
from kemem.add.forget import Policy, forget
from kemem.add.parse import check_prompt
from kemem.add.recipe import draw_again, end_now
from kemem.add.task import Task
from kemem.errors import InvalidArgument, NotFound
from kemem.hooks import Stage
from kemem.operations import AsyncOperations
from kemem.ports import Deps, Embedder, Reranker
from kemem.recall import Budget, Caches, OnRecall, RecallAgent, Recalled, RecallReport, Step
from kemem.records import (
    CHECKPOINTS_KEPT,
    NOTES,
    Change,
    Checkpoint,
    Entry,
    Micros,
    Note,
    Page,
    Relation,
    Scope,
    Where,
)
from kemem.results import Added, Context
from kemem.runtime import Runtime
from kemem.scope import CallScope, Time, to_time
from kemem.search.directory import directory
from kemem.search.transcript import page_limit
from kemem.settings import Settings, load
from kemem.text.ids import check_id

F = TypeVar("F", bound=Callable[..., Any])


class AsyncMemory(AsyncOperations):
    """The memory of agents and chat products: keeps every message, remembers what they say.

    Nothing is opened before the first call.

        async with AsyncMemory() as memory:
            await memory.add("我不吃辣", user_id="u_1")
            print(await memory.search("火锅", user_id="u_1"))
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        database_url: str | None = None,
        embedder: Embedder | None = None,
        llm: object = None,
        reranker: Reranker | None = None,
        settings: Settings | None = None,
        clock: Callable[[], Micros] | None = None,
    ) -> None:
        if settings and (data_dir or database_url):
            raise InvalidArgument("give settings, or data_dir or database_url, not both")
        chosen = settings or load(data_dir=data_dir, database_url=database_url)
        runtime = Runtime(chosen, embedder=embedder, llm=llm, reranker=reranker, clock=clock)
        super().__init__(runtime, CallScope())
        self._caches = Caches()
        self.on_recall: OnRecall | None = None  # may be set before handles are made

    @property
    def caches(self) -> Caches:
        """What recalls keep for a while, with counts of hits and misses."""
        return self._caches

    def process(
        self,
        function: F,
        *,
        name: str | None = None,
        stage: Stage = "before",
        timeout: float = 5.0,
    ) -> F:
        """Register a function of your own: `before` storing it gets the list of messages and may
        return another one, `after` it is told what became of them. One that fails loses nothing.
        """
        self._check_unbound()
        return self._hooks.add(function, name=name, stage=stage, timeout=timeout)

    async def recall(
        self,
        question: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        run_id: str | None = None,
        max_iterations: int | None = None,
        on_step: Callable[[Step], None] | None = None,
    ) -> Recalled:
        """The evidence that a question needs, found step by step within limits.

        The LLM decides on the steps; without one, or when it fails, rules do. `session_id` is the
        conversation that the question comes from: its last messages tell what is meant.
        """
        reach, _ = self._reach.restrict(user_id, agent_id, session_id, run_id)
        if reach.user_id is None:
            raise InvalidArgument("give user_id: a recall is about one user", field="user_id")
        granted = self._reach.is_bound and self._reach.sensitive
        handle = self.for_user(reach.user_id, agent_id=reach.agent_id, sensitive=granted)
        chosen = self.settings
        budget = Budget(
            max_iterations=chosen.recall_max_iterations
            if max_iterations is None
            else max_iterations,
            window=chosen.recall_window,
            max_window=chosen.recall_max_window,
            max_calls=chosen.recall_max_calls,
            seconds=chosen.recall_seconds,
        )
        agent = RecallAgent(
            handle,
            session_id=reach.session_id,
            budget=budget,
            language=None if chosen.recall_language == "auto" else chosen.recall_language,
            caches=self._caches,
        )
        begun = time.monotonic()
        found = await agent.recall(question, on_step=on_step)
        report = RecallReport(reach.scope, found, time.monotonic() - begun)
        self._runtime.recalled(report)
        if self.on_recall:
            self.on_recall(report)
        return found

    async def extract(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        run_id: str | None = None,
        prompt: str | None = None,
    ) -> Added:
        """Draw facts, entities and relations anew from stored messages, as `add` does for new ones.

        What is known already stays as it is; what fails is left to a job.
        """
        reach, _ = self._reach.restrict(user_id, agent_id, session_id, run_id)
        deps = await self._runtime.prepared()
        task = Task(kind="user_info", prompt=check_prompt(prompt))
        return await draw_again(Where(reach.scope, sensitive=reach.sensitive), task, deps)

    async def graph(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        around: str | Sequence[str] | None = None,
        hops: int = 1,
        limit: int = 100,
        as_of: Time | None = None,
    ) -> list[Relation]:
        """Relations near some entities, or the newest ones; each cites its notes."""
        reach, _ = self._reach.restrict(user_id, agent_id, session_id)
        deps = await self._runtime.deps()
        when = to_time(as_of, "as_of")
        where = Where(
            reach.scope,
            kinds=NOTES,
            valid_at=deps.clock() if when is None else when,
            known_by=when,
            sensitive=reach.sensitive,
        )
        names = [around] if isinstance(around, str) else list(around or ())
        graph = deps.graph or deps.store
        return await graph.around(where, names, hops=hops, limit=page_limit(limit, "limit"))

    async def summarize(
        self,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        run_id: str | None = None,
    ) -> Checkpoint | None:
        """The State of a session brought up to date: older messages in ever coarser layers.

        `add` calls it by itself; None while all of it still fits into the State's budget.
        """
        scope, deps = await self._session(session_id, user_id, agent_id, run_id)
        live = await condense(scope, deps, budget=self.settings.state_tokens)
        return live and self._reach.visible(live)

    async def context(
        self,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        run_id: str | None = None,
        max_tokens: int = 2000,
    ) -> Context:
        """What to put into a prompt of a session: summaries, then the newest messages verbatim."""
        scope, deps = await self._session(session_id, user_id, agent_id, run_id)
        return await session.context(scope, max_tokens, deps, sensitive=self._reach.sensitive)

    async def checkpoint(
        self,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        run_id: str | None = None,
    ) -> Checkpoint:
        """A snapshot of a session's short-term memory: its State and its short-term notes."""
        scope, deps = await self._session(session_id, user_id, agent_id, run_id)
        return self._reach.visible(await session.save_checkpoint(scope, deps))

    async def restore_checkpoint(
        self,
        session_id: str | None = None,
        checkpoint_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        run_id: str | None = None,
    ) -> Checkpoint:
        """Short-term memory as it was at the newest checkpoint, or at the one named."""
        scope, deps = await self._session(session_id, user_id, agent_id, run_id)
        return self._reach.visible(await session.restore_checkpoint(scope, checkpoint_id, deps))

    async def end_session(
        self,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        run_id: str | None = None,
    ) -> Added:
        """End a session: its experience is kept as a note, short-term notes and State go."""
        scope, deps = await self._session(session_id, user_id, agent_id, run_id)
        return await end_now(scope, deps)

    async def forget(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        policy: Policy | None = None,
    ) -> dict[str, str]:
        """Apply the policy of forgetting now: ids of the notes that went, each with the reason."""
        reach, _ = self._reach.restrict(user_id, agent_id)
        deps = await self._runtime.deps()
        await self._runtime.uses.flush(deps)
        return await forget(reach.scope, policy or self._policy, deps)

    async def forgotten(
        self, user_id: str | None = None, agent_id: str | None = None, *, limit: int = 100
    ) -> list[Change]:
        """Notes that were deleted or forgotten, newest first: ids, times and reasons, no text."""
        reach, _ = self._reach.restrict(user_id, agent_id)
        deps = await self._runtime.deps()
        size = page_limit(limit, "limit")
        return await deps.store.history(reach.scope, event="delete", limit=size)

    async def sessions(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Entry]:
        """The sessions of a user or agent."""
        reach, _ = self._reach.restrict(user_id, agent_id)
        deps = await self._runtime.deps()
        return await directory("session", reach.scope, page_limit(limit, "limit"), cursor, deps)

    async def session(
        self, session_id: str, user_id: str | None = None, agent_id: str | None = None
    ) -> tuple[Entry, list[Checkpoint]]:
        """A session and its checkpoints, newest first: for operators."""
        self._check_unbound()
        scope, deps = await self._session(session_id, user_id, agent_id, None)
        (entry,) = await deps.store.directory("session", scope, limit=1)
        return entry, await deps.store.checkpoints(scope, limit=CHECKPOINTS_KEPT)

    async def notes(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        ids: Collection[str] | None = None,
        sources: Collection[str] | None = None,
        limit: int = 1000,
        newest_first: bool = True,
    ) -> list[Note]:
        """Notes by their ids or by the messages that they cite, ended ones too: for operators."""
        deps = await self._operate()
        reach, _ = self._reach.restrict(user_id, agent_id)
        size = page_limit(limit, "limit")
        where = Where(
            reach.scope,
            kinds=NOTES,
            ids=None if ids is None else frozenset(ids),
            sources=None if sources is None else frozenset(sources),
        )
        return await deps.store.notes(where, limit=size, newest_first=newest_first)

    async def close(self) -> None:
        """Let go of files and connections, for good; a handle closes nothing."""
        if not self._reach.is_bound:
            await self._runtime.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _session(
        self,
        session_id: str | None,
        user_id: str | None,
        agent_id: str | None,
        run_id: str | None,
    ) -> tuple[Scope, Deps]:
        """The one session that a call means."""
        reach, _ = self._reach.restrict(user_id, agent_id, session_id, run_id)
        check_id(reach.session_id, "session_id")
        deps = await self._runtime.deps()
        found = await deps.store.directory("session", reach.scope, limit=2)
        if not found:
            raise NotFound(f"no session {reach.session_id!r:.80}", session_id=reach.session_id)
        if len(found) > 1:
            raise InvalidArgument(
                f"several users or agents have a session {reach.session_id!r:.80}: name them",
                field="user_id",
            )
        return Scope(found[0].agent_id, found[0].user_id or "", found[0].id), deps
