"""AsyncNotebook: notes, which is what is remembered of messages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kemem.add.edit import erase, erase_all, learn, rewrite
from kemem.add.parse import (
    check_metadata,
    check_prompt,
    check_summary,
    check_tags,
    check_text,
    parse_messages,
    with_defaults,
)
from kemem.add.recipe import add
from kemem.add.task import Task
from kemem.errors import InvalidArgument, KeMemError, NotFound
from kemem.hooks import Hooks
from kemem.log import AsyncLog
from kemem.ports import Deps
from kemem.records import MESSAGES, NOTES, Change, Message, Messages, Note, Scope, Where
from kemem.results import Added, Hit, Item, Memories
from kemem.runtime import Runtime
from kemem.scope import CallScope, Time, kinds_of, to_range, to_time
from kemem.search.listing import find, listing
from kemem.search.question import Mode
from kemem.search.recipe import search
from kemem.search.transcript import least_score, page_limit
from kemem.text.ids import check_id

ALL = MESSAGES | NOTES


class AsyncNotebook(AsyncLog):
    """What is remembered: the part of AsyncMemory that adds, finds, changes and erases."""

    def __init__(self, runtime: Runtime, reach: CallScope) -> None:
        super().__init__(runtime, reach)
        self._hooks = Hooks()

    async def add(
        self,
        messages: Messages,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        *,
        run_id: str | None = None,
        timestamp: Time | None = None,
        expires_at: Time | None = None,
        sensitive: bool = False,
        wait: bool = True,
    ) -> Added:
        """Store messages, durable on return, and remember what they say.

        With `infer` facts and relations are drawn from them, by the LLM or by rules, and compared
        with what is known; without, each message becomes a note word by word. An agent_id without
        a user_id means knowledge that all users of the agent share. Without `wait` the messages
        can be found at once, and what they say is left to a job.
        """
        reach, _ = self._reach.restrict(user_id, agent_id, session_id, run_id)
        owner, shared = reach.to_owner(self._reach), check_metadata(metadata, "metadata")
        task = Task(
            kind=_kind(memory_type, owner.user_id),
            infer=infer,
            prompt=check_prompt(prompt),
            metadata=shared,
            expires=to_time(expires_at, "expires_at"),
            sensitive=sensitive,
        )
        deps = await self._runtime.prepared()
        to_time(timestamp, "timestamp")
        given = with_defaults(messages, shared, timestamp)
        most = self.settings.max_content_bytes
        parsed = parse_messages(given, owner, deps.clock(), most)
        wanted, problems = await self._hooks.before(given)
        if not wanted:
            return Added(problems=tuple(problems))
        if wanted is not given:
            try:
                parsed = parse_messages(wanted, owner, deps.clock(), most)
            except KeMemError as error:
                problems.append(f"a hook's messages cannot be stored: {error.message}")
        added = await add(parsed, task, self.settings.state_tokens, deps, wait=wait)
        problems += await self._hooks.after(added)
        return replace(added, problems=(*added.problems, *problems))

    async def learn(
        self,
        content: str,
        *,
        summary: str | None = None,
        tags: Sequence[str] = (),
        agent_id: str | None = None,
    ) -> Item:
        """Keep an entry of what all users of an agent are to know, to the letter.

        One that is the same in content, summary and tags is kept once. Not on a handle.
        """
        self._check_unbound()
        reach, _ = self._reach.restrict(agent_id="default" if agent_id is None else agent_id)
        text = check_text(content, "content", self.settings.max_content_bytes)
        about, words = check_summary(summary), check_tags(tags)
        deps = await self._runtime.prepared()
        entry = await learn(text, about, words, reach.scope.agent_id or "", deps)
        return await self.get(entry, agent_id=reach.agent_id)

    async def search(
        self,
        query: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int = 100,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = True,
        *,
        session_id: str | None = None,
        top_k: int | None = None,
        kinds: Iterable[str] | None = None,
        as_of: Time | None = None,
        since: Time | None = None,
        until: Time | None = None,
        keywords: Sequence[str] | None = None,
        mode: Mode = "hybrid",
        explain: bool = False,
        count: bool = False,
    ) -> Memories[Hit]:
        """Notes and messages that answer a question, best first; `as_of` a time, as known then.

        Each contains one of the `keywords`. `count` says how many there are beyond `limit`.
        """
        reach, rest = self._reach.restrict(user_id, agent_id, session_id, run_id, filters)
        deps = await self._runtime.deps()
        when = to_time(as_of, "as_of")
        where = Where(
            reach.scope,
            *to_range(since, until),
            kinds=kinds_of(kinds, ALL),
            shared=None if reach.session_id else reach.agent_id or "default",
            valid_at=deps.clock() if when is None else when,
            known_by=when,
            filters=rest,
            sensitive=reach.sensitive,
        )
        found = await search(
            query,
            where,
            limit if top_k is None else top_k,
            deps,
            mode=mode,
            keywords=keywords,
            threshold=least_score(threshold, "threshold"),
            reranked=rerank,
            explain=explain,
            count=count,
            field="query",
        )
        await self._runtime.uses.count(found, deps)
        return found

    async def get(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Item:
        """One memory. Its id alone finds a note; what is another's is NotFound.

        A user also finds what all users of the agent share.
        """
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        row = await find(memory_id, _with_shared(where), deps)
        if isinstance(row, Note) and row.expires is not None and row.expires <= deps.clock():
            raise NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)
        return Item(row)

    async def sources(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> list[Message]:
        """The messages that a memory was drawn from, oldest first; of a message, itself."""
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        item = Item(await find(memory_id, _with_shared(where), deps))
        said = replace(where, ids=frozenset(item.sources), kinds=MESSAGES)
        return await deps.store.scan(said, limit=max(1, len(item.sources)), newest_first=False)

    async def get_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = 100,
        *,
        run_id: str | None = None,
        top_k: int | None = None,
        kinds: Iterable[str] | None = None,
        as_of: Time | None = None,
        cursor: str | None = None,
    ) -> Memories[Item]:
        """Notes, newest first; with kinds=["message"] the messages."""
        reach, rest = self._reach.restrict(user_id, agent_id, session_id, run_id, filters)
        deps = await self._runtime.deps()
        when = to_time(as_of, "as_of")
        where = Where(
            reach.scope,
            kinds=kinds_of(kinds, NOTES),
            known_by=when,
            filters=rest,
            sensitive=reach.sensitive,
        )
        size = page_limit(limit if top_k is None else top_k, "limit")
        now = deps.clock() if when is None else when
        return await listing(where, size, cursor, deps, valid_at=now)

    async def update(
        self,
        memory_id: str,
        content: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Item:
        """A note with other words or metadata; messages are what was said and never change."""
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        row = await find(memory_id, where, deps)
        if not isinstance(row, Note):
            raise InvalidArgument(f"{memory_id} is a message, which never changes")
        most = self.settings.max_content_bytes
        text = row.content if content is None else check_text(content, "content", most)
        kept = row.metadata if metadata is None else check_metadata(metadata, "metadata")
        return Item(await rewrite(row, text, kept, deps))

    async def delete(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Erase one memory; of a message also the notes that were drawn from it alone."""
        where, deps = await self._one(memory_id, user_id, agent_id, session_id)
        await erase(await find(memory_id, where, deps), deps)

    async def delete_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        kinds: Iterable[str] | None = None,
    ) -> int:
        """Erase all that carries the ids: messages, notes, graph, histories, states, jobs.

        With filters only notes are meant, with `kinds` those kinds. What is sensitive goes too,
        whoever erases. Returns how many rows went.
        """
        reach, rest = self._reach.restrict(user_id, agent_id, session_id, run_id, filters)
        chosen = kinds_of(kinds, ALL if rest is None else NOTES)
        deps = await self._runtime.deps()
        return await erase_all(Where(reach.scope, kinds=chosen, filters=rest), deps)

    async def history(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        limit: int = 100,
    ) -> list[Change]:
        """What became of a note, newest first.

        A note that was deleted leaves a line without text, for who names its user or agent.
        """
        check_id(memory_id, "memory_id")
        reach, _ = self._reach.restrict(user_id, agent_id)
        deps = await self._runtime.deps()
        size = page_limit(limit, "limit")
        if reach.session_id is not None:
            await find(memory_id, Where(reach.scope, kinds=NOTES), deps)
        if not reach.sensitive:
            hidden = Where(reach.scope, kinds=NOTES, ids=frozenset([memory_id]))
            if any(note.sensitive for note in await deps.store.notes(hidden)):
                raise NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)
        owner = Scope(reach.agent_id, reach.user_id) if reach.agent_id or reach.user_id else None
        scope = owner or await deps.store.owner(memory_id)
        lines = scope and await deps.store.history(scope, note_id=memory_id, limit=size)
        if not lines:
            raise NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)
        return lines

    async def generation(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> str:
        """A mark that is another one after every change of what a search with these ids can find.

        For caches built on this memory: ask for the mark, then read; what was made of the reading
        holds as long as the mark is the same.
        """
        reach, _ = self._reach.restrict(user_id, agent_id, session_id)
        deps = await self._runtime.deps()
        return await deps.store.generation(_with_shared(Where(reach.scope, kinds=ALL)))

    async def _one(
        self,
        memory_id: str,
        user_id: str | None,
        agent_id: str | None,
        session_id: str | None,
    ) -> tuple[Where, Deps]:
        """What a call about one memory may see; the id of a note names its owner."""
        check_id(memory_id, "memory_id")
        reach, _ = self._reach.restrict(user_id, agent_id, session_id)
        deps = await self._runtime.deps()
        scope = reach.scope if reach.is_bound else await deps.store.owner(memory_id)
        if scope is None:
            raise NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)
        return Where(scope, kinds=ALL, sensitive=reach.sensitive), deps


def _with_shared(where: Where) -> Where:
    """What a search of the same scope sees: also what all users of the agent share."""
    scope = where.scope
    return where if scope.session_id else replace(where, shared=scope.agent_id or "default")


def _kind(memory_type: str | None, user_id: str) -> str:
    """The kind of note that a memory type means."""
    if memory_type not in (None, "long", "short"):
        raise InvalidArgument(
            f"memory_type must be short or long, not {memory_type!r:.80}", field="memory_type"
        )
    if memory_type == "short":
        return "short_term"
    return "user_info" if user_id else "knowledge"
