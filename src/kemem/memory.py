"""AsyncMemory: the class that applications use."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from kemem import ports, records, session, snapshot
from kemem.add.configure import configure
from kemem.add.edit import Policy, check_policy, erase, erase_all, forget, learn, rewrite
from kemem.add.feedback import give_feedback
from kemem.add.parse import Task, check_prompt
from kemem.add.recipe import add, end_session, ingest, reextract
from kemem.add.reopen import ended_by, undo
from kemem.add.summarize import summarize_session
from kemem.hooks import Hooks, Stage
from kemem.imports.service import AsyncImports
from kemem.jobs import ask_to_forget, renew, retry, retry_failed, run_due
from kemem.journal import AsyncJournal
from kemem.ontology import AsyncOntology
from kemem.privacy import AsyncPrivacy
from kemem.recall import Caches, OnRecall, RecallAgent, Recalled, RecallReport, Step
from kemem.records import MESSAGES, NOTES, Message, Messages, Micros, Note, Page, Scope, Where
from kemem.records.batch import ConfiguredLevel, Job
from kemem.records.feedback import Feedback, Vote
from kemem.results import Added, Context, Deletion, Hit, Ingested, Item, Memories, Profile
from kemem.runtime import Backends, Runtime
from kemem.scope import CallScope, Cursor, Id, Time, kinds_of, with_shared
from kemem.search import pages, profile
from kemem.search.recipe import search
from kemem.search.understand import Mode
from kemem.settings import Settings, choose
from kemem.text.filters import check_for_erasing
from kemem.text.ids import check_id
from kemem.workspace import Workspaces

ALL = MESSAGES | NOTES
F = TypeVar("F", bound=Callable[..., Any])


class AsyncMemory:
    """The memory of agents and chat products: stores messages, extracts and finds their facts.

        async with AsyncMemory() as memory:
            await memory.add("我不吃辣", user_id="u_1")
            print(await memory.search("火锅", user_id="u_1"))

    Arguments that mean the same everywhere:

    - `user_id`, `agent_id`, `session_id` (also `run_id`): the scope; a call reads only rows that
      match all ids it names. Without a user and an agent, the user "default" of the agent "default"
      is meant; without any id, by `add`, `search`, `get_all`, `recall` and `profile` only.
    - `limit` (also `top_k`, `page_size`): most results, 1-1000. `cursor`: a `next_cursor`.
    - `since` (inclusive), `until`, `as_of` (as known then), `timestamp`: RFC 3339 or datetime.
    - `past`: the question is about facts that ended; otherwise these rank last, in no prompt.
    - `threshold` (also `min_score`): the lowest score, 0-1; 0.5 drops most hits that do not answer.
    - `kinds`: message, user_info, knowledge, experience, short_term. `filters`: {"tag": "work"}.

    Another user's data is NotFound, a wrong argument InvalidArgument, a broken backend Unavailable.
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        database_url: str | None = None,
        project: str | None = None,
        store: ports.Store | None = None,
        vectors: ports.VectorIndex | None = None,
        graph: ports.GraphMirror | None = None,
        embedder: ports.Embedder | None = None,
        llm: object = None,
        reranker: ports.Reranker | None = None,
        settings: Settings | None = None,
        clock: Callable[[], Micros] | None = None,
    ) -> None:
        """Objects win over settings, these over the environment; who passes an object closes it."""
        given = {"data_dir": data_dir, "database_url": database_url, "project": project}
        self.settings = choose(settings, store, **given)
        backends = Backends(store, vectors, graph, embedder, llm, reranker, clock)
        self.runtime = Runtime(self.settings, backends)  # store and models
        self.places, self.caches = snapshot.Places.choose(self.settings), Caches()
        self.on_recall: OnRecall | None = None  # may be set before handles are made
        self._scope, self._hooks = CallScope(), Hooks()

    @property
    def scope(self) -> CallScope:
        """The ids that this handle is bound to; none on the application's own memory."""
        return self._scope

    def for_user(
        self, user_id: str, *, agent_id: Id = None, session_id: Id = None, sensitive: bool = False
    ) -> Self:
        """A handle bound to one user, for all calls; it sees sensitive rows only if granted."""
        handle = copy(self)
        handle._scope = self._scope.of_user(user_id, agent_id, session_id).grant(sensitive)
        return handle

    def for_agent(self, agent_id: str) -> Self:
        """A handle that is bound to one agent: it reaches all users of that agent and no other."""
        handle = copy(self)
        handle._scope = self._scope.restrict(agent_id=check_id(agent_id, "agent_id"))
        return handle

    def process(
        self, function: F, *, name: str | None = None, stage: Stage = "before", timeout: float = 5.0
    ) -> F:
        """Register a hook: `before` storing messages, `after` it, or to `describe` attachments."""
        self._scope.check_unbound()
        return self._hooks.add(function, name=name, stage=stage, timeout=timeout)

    async def ingest(
        self, messages: Messages, user_id: Id = None, *, agent_id: Id = None, session_id: Id = None
    ) -> Ingested:
        """Store messages verbatim: one atomic batch, durable on return, idempotent by message_id.

        A message is {role, content, message_id?, ts?, session_id?, agent_id?, content_type?,
        parent_message_id?, metadata?}, a text, or as the APIs of models and frameworks have it.
        """
        owner = self._scope.of_user(user_id, agent_id, session_id).to_owner(self._scope)
        rest = (self.settings, self._hooks, await self.runtime.prepared())
        return await ingest(messages, owner, *rest)

    async def messages(
        self,
        user_id: Id = None,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: Cursor = None,
        branch: Id = None,
    ) -> Page[Message]:
        """The transcript, newest first, withdrawn messages marked; or the `branch` up to an id."""
        where = replace(self._scope.messages(user_id, since, until, role), withdrawn=True)
        return await pages.read(where, page_size, cursor, await self.runtime.deps(), leaf=branch)

    async def lexical_search(
        self,
        query_text: str,
        user_id: Id = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: Cursor = None,
    ) -> Page[Hit]:
        """Messages by words, best first; takes "phrases", AND, OR, NOT, prefix*, ( )."""
        where = self._scope.messages(user_id, since, until, role)
        return await pages.by_words(where, query_text, page_size, cursor, await self.runtime.deps())

    async def semantic_search(
        self,
        query_text: str | None = None,
        user_id: Id = None,
        *,
        query_embedding: Sequence[float] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        top_k: int = 20,
        min_score: float | None = None,
    ) -> list[Hit]:
        """Messages by meaning, most similar first, for a text or for a vector."""
        where, deps = self._scope.messages(user_id, since, until, role), await self.runtime.deps()
        return await pages.by_meaning(where, query_text, query_embedding, top_k, min_score, deps)

    async def hybrid_search(
        self,
        query_text: str,
        user_id: Id = None,
        limit: int = 10,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        *,
        agent_id: Id = None,
        session_id: Id = None,
        past: bool = False,
    ) -> list[Hit]:
        """Search messages by words and meaning, with the reasons for each hit."""
        where = self._scope.messages(user_id, since, until, role, agent_id, session_id)
        return list(await search(query_text, where, limit, await self.runtime.deps(), past=past))

    async def neighbors(
        self, message_id: str, user_id: Id = None, before: int = 20, after: int = 0
    ) -> list[Message]:
        """A message with those before and after it, in the order they were said."""
        where, deps = self._scope.messages(user_id, None, None, None), await self.runtime.deps()
        return await pages.neighbors(where, check_id(message_id, "message_id"), before, after, deps)

    async def add(
        self,
        messages: Messages,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        *,
        run_id: Id = None,
        timestamp: Time | None = None,
        expires_at: Time | None = None,
        sensitive: bool = False,
        wait: bool = True,
    ) -> Added:
        """Store messages durably and extract their facts.

        With `infer` facts and relations are extracted, by the LLM or by rules, and reconciled with
        what is known; without, each message becomes a note verbatim. `memory_type` is "long" or
        "short", until the session ends. An agent_id without a user_id means knowledge that all its
        users share. With `wait=False` extraction is left to a job. `prompt` instructs the LLM.
        """
        owner = self._scope.restrict(user_id, agent_id, session_id, run_id).to_owner(self._scope)
        details = (self.settings.content_policy, memory_type, prompt, metadata, expires_at)
        task = Task.parse(owner, *details, infer=infer, sensitive=sensitive)
        rest = (self.settings, self._hooks, await self.runtime.prepared())
        return await add(messages, owner, task, *rest, ts=timestamp, wait=wait)

    async def learn(
        self,
        content: str,
        *,
        summary: str | None = None,
        tags: Sequence[str] = (),
        agent_id: Id = None,
    ) -> Item:
        """Store a knowledge entry verbatim, once, for all users of an agent; not on a handle."""
        deps, policy = await self._writer_deps(), self.settings.content_policy
        scope = self._scope.restrict(agent_id="default" if agent_id is None else agent_id)
        entry = await learn(content, summary, tags, scope.scope.agent_id or "", policy, deps)
        return await self.get(entry, agent_id=scope.agent_id)

    async def search(
        self,
        query: str,
        user_id: Id = None,
        agent_id: Id = None,
        run_id: Id = None,
        limit: int = 10,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = True,
        *,
        session_id: Id = None,
        top_k: int | None = None,
        kinds: Iterable[str] | None = None,
        as_of: Time | None = None,
        past: bool = False,
        since: Time | None = None,
        until: Time | None = None,
        keywords: Sequence[str] | None = None,
        mode: Mode = "hybrid",
        explain: bool = False,
        count: bool = False,
    ) -> Memories[Hit]:
        """What answers a question, best first, with one of the `keywords`; `explain` adds reasons.

        `count` fills `total`, exact while at most 1,000 rows match by words or by vectors.
        """
        scope, deps = await self._call(user_id, agent_id, session_id, run_id, filters, default=True)
        where = scope.where(kinds_of(kinds, ALL), since, until, as_of=as_of, now=deps.clock())
        where, size = replace(where, shared=scope.shared), limit if top_k is None else top_k
        ask = partial(search, mode=mode, keywords=keywords, field="query", reranked=rerank)
        ask = partial(ask, threshold=pages.least_score(threshold, "threshold"), past=past)
        hits = await ask(query, where, size, deps, explain=explain, count=count)
        self.runtime.hits.count(hits)
        return hits

    async def feedback(
        self, memory_id: str, vote: Vote, query: str, user_id: Id = None, *, agent_id: Id = None
    ) -> Feedback:
        """Vote on a hit, up or down: it rises or sinks for the user's questions like this one."""
        where, deps = await self._one(memory_id, user_id, agent_id)
        rest = (with_shared(where), self.settings.content_policy, deps)
        return await give_feedback(memory_id, vote, query, *rest)

    async def get(
        self, memory_id: str, *, user_id: Id = None, agent_id: Id = None, session_id: Id = None
    ) -> Item:
        """One memory. The id alone finds a note; a user also finds what the agent's users share."""
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        return Item(await pages.find(memory_id, with_shared(where), deps, at=deps.clock()))

    async def sources(
        self, memory_id: str, *, user_id: Id = None, agent_id: Id = None, session_id: Id = None
    ) -> list[Message]:
        """The messages that a memory cites, oldest first; of a message, itself."""
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        return await pages.cited_messages(memory_id, with_shared(where), deps)

    async def get_all(
        self,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = 100,
        *,
        run_id: Id = None,
        top_k: int | None = None,
        kinds: Iterable[str] | None = None,
        as_of: Time | None = None,
        cursor: Cursor = None,
    ) -> Memories[Item]:
        """Notes, newest first; messages by kinds or filters={"kind": "message"}, withdrawn too."""
        scope, deps = await self._call(user_id, agent_id, session_id, run_id, filters, default=True)
        where = scope.where(kinds_of(kinds, NOTES, scope.filters), as_of=as_of)
        now = deps.clock() if where.known_by is None else where.known_by
        where, size = replace(where, withdrawn=True), limit if top_k is None else top_k
        return await pages.listing(where, size, cursor, deps, valid_at=now)

    async def update(
        self,
        memory_id: str,
        content: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
    ) -> Item:
        """Change the text or the metadata of a note; messages never change."""
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        row, policy = await pages.find(memory_id, where, deps), self.settings.content_policy
        return Item(await rewrite(row, content, metadata, policy, deps))

    async def delete(
        self,
        memory_id: str,
        *,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        sources: bool = False,
    ) -> Deletion:
        """Erase one memory; the messages that a note cites are withdrawn, or erased with `sources`.

        Only transcripts show withdrawn messages. With an erased one go notes that cite it alone.
        """
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        return await erase(await pages.find(memory_id, where, deps), deps, sources=sources)

    async def delete_all(
        self,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        filters: Mapping[str, Any] | None = None,
        *,
        run_id: Id = None,
        kinds: Iterable[str] | None = None,
    ) -> int:
        """Erase all that carries the ids: messages, notes, graph, histories, states, jobs.

        With filters only notes go, with `kinds` those kinds, sensitive rows always; how many went.
        """
        scope = self._scope.restrict(user_id, agent_id, session_id, run_id, filters)
        where = scope.where(kinds_of(kinds, ALL if scope.filters is None else NOTES))
        check_for_erasing(filters)
        return await erase_all(replace(where, sensitive=True), await self.runtime.deps())

    async def history(
        self, memory_id: str, *, user_id: Id = None, agent_id: Id = None, limit: int = 100
    ) -> list[records.Change]:
        """The changes of a note, newest first; a deleted note leaves a line without text."""
        check_id(memory_id, "memory_id")
        scope, deps = await self._call(user_id, agent_id)
        where = scope.where(NOTES) if scope.is_bound else None
        return await pages.history(memory_id, where, pages.page_limit(limit, "limit"), deps)

    async def profile(
        self, user_id: Id = None, agent_id: Id = None, *, max_tokens: int = 1000
    ) -> Profile:
        """What is true about a user now, by topic, with sources; sensitive only if granted."""
        scope, deps = await self._call(user_id, agent_id, default=True)
        check_id(scope.user_id, "user_id")
        where = replace(scope.where(profile.USER_INFO), sensitive=self._scope.lets_models_see)
        return await profile.read_profile(where, max_tokens, deps, self.caches.profile)

    async def generation(
        self, user_id: Id = None, agent_id: Id = None, session_id: Id = None
    ) -> str:
        """A version of what these ids can find: a cached value is valid while it is the same."""
        scope, deps = await self._call(user_id, agent_id, session_id)
        return await deps.store.generation(with_shared(scope.where(ALL)))

    async def recall(
        self,
        query: str | None = None,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        *,
        question: str | None = None,
        run_id: Id = None,
        past: bool = False,
        max_iterations: int | None = None,
        on_step: Callable[[Step], None] | None = None,
    ) -> Recalled:
        """The evidence for a question, collected step by step within limits.

        The LLM chooses the steps, or rules do. `session_id` is the conversation of the question.
        """
        scope = self._scope.restrict(user_id, agent_id, session_id, run_id).or_default
        granted = self._scope.lets_models_see
        handle = self.for_user(scope.user_id or "", agent_id=scope.agent_id, sensitive=granted)
        options = (self.settings, self.caches, scope.session_id, max_iterations)
        agent, started = RecallAgent.from_settings(handle, *options), time.monotonic()
        recalled = await agent.recall(question, query=query, past=past, on_step=on_step)
        report = RecallReport(scope.scope, recalled, time.monotonic() - started)
        self.runtime.recalled(report, self.on_recall)
        return recalled

    async def extract(
        self,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        *,
        run_id: Id = None,
        prompt: str | None = None,
    ) -> Added:
        """Extract facts and relations again from stored messages; what fails is left to a job."""
        scope = self._scope.restrict(user_id, agent_id, session_id, run_id)
        task = Task(kind="user_info", prompt=check_prompt(prompt))
        return await reextract(scope.where(MESSAGES), task, await self.runtime.prepared())

    async def graph(
        self,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        *,
        around: str | Sequence[str] | None = None,
        relationship: str | Sequence[str] | None = None,
        hops: int = 1,
        limit: int = 100,
        as_of: Time | None = None,
    ) -> list[records.Relation]:
        """Relations within `hops` of some entities, or the newest ones, all or of some types."""
        scope, deps = await self._call(user_id, agent_id, session_id)
        where = scope.where(NOTES, as_of=as_of, now=deps.clock())
        return await deps.relations(pages.neighborhood(where, around, relationship, hops, limit))

    async def forget(
        self, user_id: Id = None, agent_id: Id = None, *, policy: Policy | None = None
    ) -> dict[str, str]:
        """Apply the forgetting policy now: ids of the notes that went, each with the reason."""
        scope, deps = await self._call(user_id, agent_id)
        await self.runtime.hits.flush(deps)
        return await forget(scope.scope, check_policy(policy, self.runtime.policy), deps)

    async def forgotten(
        self, user_id: Id = None, agent_id: Id = None, *, limit: int = 100
    ) -> list[records.Change]:
        """Notes that were deleted or forgotten, newest first: ids, times and reasons, no text."""
        (scope, deps), size = await self._call(user_id, agent_id), pages.page_limit(limit, "limit")
        return await deps.store.history(scope.scope, event="delete", limit=size)

    async def ended(
        self, user_id: Id = None, agent_id: Id = None, *, model: str | None = None, limit: int = 100
    ) -> list[records.Change]:
        """Notes that a language model, by default the current one, ended; newest first."""
        (scope, deps), size = await self._call(user_id, agent_id), pages.page_limit(limit, "limit")
        reason = ended_by(model or (deps.llm.name if deps.llm else self.settings.llm_model))
        return await deps.store.history(scope.scope, reason=reason, limit=size)

    async def reopen(self, memory_id: str, *, user_id: Id = None, agent_id: Id = None) -> Item:
        """Make a note that has ended valid again, whatever ended it."""
        where, deps = await self._one(memory_id, user_id, agent_id)
        return Item(await undo(await pages.find(memory_id, where, deps), deps))

    async def summarize(
        self, session_id: Id = None, user_id: Id = None, agent_id: Id = None, *, run_id: Id = None
    ) -> records.Checkpoint | None:
        """Bring the State of a session up to date, as `add` does; None while none is needed."""
        scope, deps = await self._session(user_id, agent_id, session_id, run_id)
        state = await summarize_session(scope, deps, budget=self.settings.state_tokens)
        return state and self._scope.visible(state)

    async def context(
        self,
        session_id: Id = None,
        user_id: Id = None,
        agent_id: Id = None,
        *,
        run_id: Id = None,
        max_tokens: int = 2000,
        leaf: Id = None,
    ) -> Context:
        """For a prompt: summaries, then the newest messages verbatim; of a branch up to `leaf`."""
        scope, deps = await self._session(user_id, agent_id, session_id, run_id)
        ask = partial(session.context, state_tokens=self.settings.state_tokens, leaf=leaf)
        return await ask(scope, max_tokens, deps, sensitive=self._scope.sensitive)

    async def checkpoint(
        self, session_id: Id = None, user_id: Id = None, agent_id: Id = None, *, run_id: Id = None
    ) -> records.Checkpoint:
        """Save a session's short-term memory: its State and its short-term notes."""
        scope, deps = await self._session(user_id, agent_id, session_id, run_id)
        return self._scope.visible(await session.save_checkpoint(scope, deps))

    async def restore_checkpoint(
        self,
        session_id: Id = None,
        checkpoint_id: Id = None,
        user_id: Id = None,
        agent_id: Id = None,
        *,
        run_id: Id = None,
    ) -> records.Checkpoint:
        """Restore short-term memory from the newest checkpoint, or from the given one."""
        scope, deps = await self._session(user_id, agent_id, session_id, run_id)
        return self._scope.visible(await session.restore_checkpoint(scope, checkpoint_id, deps))

    async def end_session(
        self, session_id: Id = None, user_id: Id = None, agent_id: Id = None, *, run_id: Id = None
    ) -> Added:
        """End a session: its experience stays as a note, short-term notes and State go."""
        return await end_session(*await self._session(user_id, agent_id, session_id, run_id))

    async def sessions(
        self, user_id: Id = None, agent_id: Id = None, *, limit: int = 100, cursor: Cursor = None
    ) -> Page[records.Entry]:
        """The sessions of a user or agent."""
        call, deps = await self._call(user_id, agent_id)
        return await pages.directory("session", call.scope, limit, cursor, deps)

    async def agents(self, *, limit: int = 100, cursor: Cursor = None) -> Page[records.Entry]:
        """Every agent."""
        return await pages.directory("agent", None, limit, cursor, await self._operator_deps())

    async def users(
        self, agent_id: Id = None, *, limit: int = 100, cursor: Cursor = None
    ) -> Page[records.Entry]:
        """Every user, or those of an agent."""
        scope = None if agent_id is None else self._scope.restrict(agent_id=agent_id).scope
        return await pages.directory("user", scope, limit, cursor, await self._operator_deps())

    async def configure(
        self,
        level: ConfiguredLevel,
        id: str,
        *,
        user_id: Id = None,
        agent_id: Id = None,
        name: str | None = None,
        type: str | None = None,
        config: Mapping[str, Any] | None = None,
        disabled: bool | None = None,
    ) -> records.Entry:
        """Name, type, configure or disable an agent, user or session; a session by its owner's ids.

        Who is disabled adds nothing and is served nothing; lists and deleting go on. "" clears.
        """
        given = {"name": name, "type": type, "config": config, "disabled": disabled}
        owner = {"user_id": user_id, "agent_id": agent_id}
        return await configure(level, id, owner, given, await self._operator_deps())

    async def run_jobs(self, *, debounce: bool = False) -> int:
        """Do what is due; returns the steps. With `debounce` a model waits for quiet sessions."""
        deps, own = await self._writer_deps(), self.runtime
        await own.hits.flush(deps)
        if own.policy != Policy() and own.forgetting_is_due():
            await ask_to_forget(deps)
        work = run_due(deps, own.policy, self.imports.run_job, own.turns, debounce=debounce)
        return await own.deliveries.beside(work, deps, wait=not debounce)

    async def jobs(self, limit: int = 100) -> list[Job]:
        """Jobs that wait or have failed, oldest first."""
        return await (await self._operator_deps()).store.jobs(pages.page_limit(limit, "limit"))

    async def retry_job(self, job_id: str) -> Job:
        """Run a failed job again, with a fresh number of attempts."""
        return await retry(check_id(job_id, "job_id"), await self._operator_deps())

    async def retry_jobs(self) -> int:
        """Run every failed job again; returns how many."""
        return await retry_failed(await self._operator_deps())

    async def reindex(self) -> int:
        """Rebuild word index, vectors and a mirrored graph of all rows; returns the steps done."""
        await renew(await self._writer_deps(), again=True)
        return await self.run_jobs()

    async def workspaces(self) -> Workspaces:
        """The folders of tasks; backups include their files."""
        deps = await self._operator_deps()
        return Workspaces(self.places.workspaces / (await deps.store.info()).label)

    async def backup(self, path: str | Path | None = None) -> snapshot.Backup:
        """Write everything, workspaces included, to a new file that only its owner can read."""
        deps = await self._operator_deps()
        await self.runtime.hits.flush(deps)
        return await snapshot.backup(deps, self.places, path)

    async def restore(self, path: str | Path) -> snapshot.Backup:
        """Replace everything by a backup, of a path or a name; a damaged one changes nothing."""
        deps = await self._operator_deps()
        await self.runtime.hits.flush(deps)
        before = await ports.read_owners(deps.store)
        restored = await snapshot.restore(deps, self.places, path)
        await renew(deps, before)
        return restored

    async def health(self) -> records.Health:
        """The state of the store; raises Unavailable when it cannot be reached."""
        return await ports.read_health((await self.runtime.deps()).store)

    async def census(self, *, largest: int = 10) -> records.Census:
        """Row counts and the users with the most rows; this may take a while."""
        deps = await self._operator_deps()
        return await ports.read_census(deps.store, pages.page_limit(largest, "largest"))

    @property
    def journal(self) -> AsyncJournal:
        """What the system did, line by line."""
        return AsyncJournal(self._operator_deps)

    @property
    def ontology(self) -> AsyncOntology:
        """Own types of notes, entities and relations; not on a handle."""
        return AsyncOntology(self._operator_deps)

    @property
    def privacy(self) -> AsyncPrivacy:
        """What is kept of one user: an inventory, an export, erasing with a receipt."""
        return AsyncPrivacy(self._scope, self.runtime.deps, self.imports, self.places.backups)

    @property
    def imports(self) -> AsyncImports:
        """Conversations, memories and knowledge in files of other systems."""
        return AsyncImports(self.settings, self._hooks, self._writer_deps)

    async def session(
        self, session_id: str, user_id: Id = None, agent_id: Id = None
    ) -> tuple[records.Entry, list[records.Checkpoint]]:
        """A session and its checkpoints, newest first."""
        self._scope.check_unbound()
        scope, deps = await self._session(user_id, agent_id, session_id)
        (entry,) = await deps.store.directory("session", scope, limit=1)
        return entry, await deps.store.checkpoints(scope, limit=records.CHECKPOINTS_KEPT)

    async def notes(
        self,
        user_id: Id = None,
        agent_id: Id = None,
        *,
        ids: Collection[str] | None = None,
        sources: Collection[str] | None = None,
        limit: int = 1000,
        newest_first: bool = True,
    ) -> list[Note]:
        """Notes by their ids or by the messages that they cite, superseded ones too."""
        deps, scope = await self._operator_deps(), self._scope.restrict(user_id, agent_id)
        return await pages.notes(scope.where(NOTES), ids, sources, limit, newest_first, deps)

    async def close(self) -> None:
        """Close files and connections, for good; a user-scoped handle closes nothing."""
        if not self._scope.is_bound:
            await self.runtime.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _call(self, *ids: Any, default: bool = False) -> tuple[CallScope, ports.Deps]:
        """The scope of a call, whose ids and filters are in the order of `CallScope.restrict`."""
        scope = self._scope.restrict(*ids)
        return scope.or_default if default else scope, await self.runtime.deps()

    async def _writer_deps(self) -> ports.Deps:
        self._scope.check_unbound()
        return await self.runtime.prepared(learn=True)

    async def _operator_deps(self) -> ports.Deps:
        self._scope.check_unbound()
        return await self.runtime.deps()

    async def _one(self, memory_id: str, *ids: Id) -> tuple[Where, ports.Deps]:
        """What a call about one memory may see; the id of a note names its owner."""
        check_id(memory_id, "memory_id")
        call, deps = await self._call(*ids)
        scope = call.named if call.is_bound else await pages.find_owner(memory_id, deps)
        return Where(scope, kinds=ALL, sensitive=call.sensitive, withdrawn=True), deps

    async def _session(self, *ids: Id) -> tuple[Scope, ports.Deps]:
        """The one session that a call names."""
        call, deps = await self._call(*ids)
        check_id(call.session_id, "session_id")
        return await session.find_session(call.named, deps), deps
