"""The recipe of an import: read files, give every message an id, store portion by portion."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from kemem.add.edit import erase
from kemem.add.embed import read_all
from kemem.add.parse import Task, parse_turns
from kemem.add.recipe import add, ingest
from kemem.errors import Conflict, InvalidArgument, KeMemError
from kemem.hooks import Hooks
from kemem.imports.items import UNKNOWN, Document, Item, Read, Skipped, wrong
from kemem.ports import Deps
from kemem.records import Message, Micros, Scope, Where
from kemem.records.privacy import ContentPolicy
from kemem.records.serialization import Record
from kemem.results import Added, Ingested
from kemem.scope import Owner, check_flag
from kemem.settings import Settings
from kemem.text.filters import split_filters
from kemem.text.ids import check_id
from kemem.text.turns import read_turns

PORTION = 200  # messages in one write
_ITEM = re.compile(r"messages\[(\d+)\]\.?")  # how errors name one of several messages
_LISTED = 1000  # files that were left out
_NAMED = 5  # of the files that are wrong, in an error
_NO_USER = "no user_id; name one on the line, or with --user"


@dataclass(frozen=True, slots=True)
class Target:
    """Whom imported messages belong to where a file does not say, and whether facts are drawn."""

    user_id: str | None = None
    agent_id: str = "default"
    session_id: str = "default"
    infer: bool = False
    is_bound: bool = False  # nothing may belong to anyone else, nor to all users of an agent

    def __post_init__(self) -> None:
        for name in ("user_id", "agent_id", "session_id"):
            if (value := getattr(self, name)) is not None or name != "user_id":
                check_id(value, name)
        check_flag(self.infer, "infer")

    def owner(self, user_id: str) -> Owner:
        """The owner of what belongs to a user; "" means all users of the agent."""
        return Owner(user_id, self.agent_id, self.session_id, frozenset())


@dataclass(frozen=True, slots=True)
class Portion:
    """Messages, or memories that are alike, of one user; they are stored together."""

    user_id: str
    items: tuple[Item, ...]

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        return [item.fields for item in self.items]


@dataclass(frozen=True, slots=True)
class Imported(Record):
    """What the import has stored so far."""

    inserted: int = 0
    ignored: int = 0  # they were there already
    truncated: int = 0
    skipped: int = 0  # messages without content
    notes: int = 0  # memories and knowledge that were added
    removed: int = 0  # sections of documents that are no longer there
    pending: bool = False  # vectors or facts are left to jobs
    problems: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # files that no reader knows

    @property
    def total(self) -> int:
        """Messages that were dealt with."""
        return self.inserted + self.ignored

    def plus(self, other: "Imported") -> "Imported":
        """Both together."""
        names = ("inserted", "ignored", "truncated", "skipped", "notes", "removed")
        return Imported(
            **{name: getattr(self, name) + getattr(other, name) for name in names},
            pending=self.pending or other.pending,
            problems=tuple(dict.fromkeys((*self.problems, *other.problems))),
            left_out=(*self.left_out, *other.left_out)[:_LISTED],
        )


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """What an import would do."""

    messages: Mapping[str, int] = field(default_factory=dict)  # by format
    memories: Mapping[str, int] = field(default_factory=dict)  # by format
    users: Mapping[str, int] = field(default_factory=dict)  # messages and memories of each
    sessions: int = 0
    documents: int = 0
    sections: int = 0
    left_out: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()  # those of them that could not be read to the end


def portions(
    read: Iterable[Read], target: Target, size: int = PORTION
) -> Iterator[Portion | Document | Skipped]:
    """What was read, in portions of at most `size` messages, each of one user."""
    waiting: dict[tuple[object, ...], list[Item]] = {}
    seen: Counter[bytes] = Counter()
    for it in read:
        if isinstance(it, Document) and target.is_bound and target.user_id is None:
            raise wrong(it.source, "only operators can import documents that all users share")
        if not isinstance(it, Item):
            yield it
            continue
        user = _user(it, target)
        item = replace(it, fields=_with_id(it.fields, user, target, seen))
        waiting.setdefault((user, *_likeness(it)), []).append(item)
        if sum(map(len, waiting.values())) >= size:
            yield from (Portion(str(key[0]), tuple(some)) for key, some in waiting.items())
            waiting.clear()
    yield from (Portion(str(key[0]), tuple(some)) for key, some in waiting.items())


def checker(target: Target, now: Micros, policy: ContentPolicy) -> Callable[[Item], None]:
    """A function that raises for an item which could not be stored, and names its place."""

    def check(item: Item) -> None:
        owner = target.owner(_user(item, target))
        try:
            parse_turns(read_turns([item.fields]).turns, owner, now, policy)
        except KeMemError as error:
            raise located(error, Portion(owner.user_id, (item,))) from None

    return check


def _user(item: Item, target: Target) -> str:
    """Whom an item belongs to; a memory of an agent alone belongs to all its users: ""."""
    named = (item.user_id, target.user_id, item.other_user)
    user = next((it for it in named if it is not None), None)
    if user is None and item.is_memory and item.fields.get("agent_id"):
        return ""
    if user is None:
        raise wrong(item.place, _NO_USER)
    if target.is_bound and user != target.user_id:
        raise wrong(item.place, f"user_id must be {target.user_id!r}, not {user!r:.80}")
    try:
        return check_id(user, "user_id")
    except KeMemError as error:
        raise wrong(item.place, error.message) from None


def _likeness(item: Item) -> tuple[object, ...]:
    """Equal for items that one call can store."""
    if not item.is_memory:
        return (False,)
    return True, item.expires_at, json.dumps(item.metadata, sort_keys=True)


def _with_id(
    fields: Mapping[str, Any], user: str, target: Target, seen: Counter[bytes]
) -> dict[str, Any]:
    """The fields of a message with an id: its own, or one that follows from its content."""
    made = {name: value for name, value in fields.items() if value is not None}
    if "message_id" not in made:
        # A content hash, so that a second import is idempotent; repetitions are counted.
        key = json.dumps([user, target.agent_id, target.session_id, made], sort_keys=True)
        digest = sha256(key.encode()).digest()
        seen[digest] += 1
        again = sha256(digest + seen[digest].to_bytes(8))
        made["message_id"] = f"m_{again.hexdigest()[:32]}"
    return made


class Import:
    """One import: stores portions, and keeps documents in step with what was read."""

    def __init__(
        self, target: Target, folder: str, settings: Settings, hooks: Hooks, deps: Deps
    ) -> None:
        self.done = Imported()
        self._target, self._folder = target, folder
        self._settings, self._hooks, self._deps = settings, hooks, deps
        self._known: dict[str, frozenset[str]] | None = None  # ids of sections by their source
        self._read: set[str] = set()  # sources of documents
        self._wrong: list[str] = []  # files that could not be read to their end, and why

    async def store(self, portion: Portion | Document | Skipped) -> None:
        """Store a portion; an error names the place of the message to blame."""
        if isinstance(portion, Skipped):
            self.skip(portion)
            self.done = self.done.plus(Imported(left_out=(portion.line,)))
        elif isinstance(portion, Document):
            self._read.add(portion.source)
            await self.replace(portion)
        else:
            try:
                try:
                    stored = await self._store(portion)
                except Conflict:  # perhaps only a title has changed since the last export
                    portion, known = await self._split(portion)
                    stored = await self._store(portion) if portion.items else Ingested((), ())
                    self.done = self.done.plus(Imported(ignored=known))
            except KeMemError as error:
                raise located(error, portion) from None
            self.done = self.done.plus(_counted(stored))

    def skip(self, portion: Portion | Document | Skipped) -> None:
        """Pass over a portion that was stored before."""
        if isinstance(portion, Document):
            self._read.add(portion.source)
        elif isinstance(portion, Skipped) and portion.is_wrong:
            self._wrong.append(portion.line)

    async def finish(self) -> None:
        """Remove what was known of documents that are no longer there, where some were read.

        An import that found nothing to store is an error, and so is a file that is wrong: then
        nothing is removed, as it may be what is not there.
        """
        check_read(self._wrong)
        if not self._read and self.done == Imported(left_out=self.done.left_out):
            raise InvalidArgument(UNKNOWN)
        for source in sorted((await self._sections()).keys() - self._read) if self._read else ():
            await self.replace(Document(self._folder, source, ()))

    async def sources(self) -> frozenset[str]:
        """The documents of this folder of which something is known."""
        return frozenset(await self._sections())

    async def replace(self, document: Document) -> None:
        """Bring what is known of a document up to date."""
        known = (await self._sections()).get(document.source, frozenset())
        ids = document.ids(self._target.agent_id)
        sections = dict(zip(ids, document.sections, strict=True))
        fresh = [{"message_id": it, "content": sections[it]} for it in sections if it not in known]
        owner = self._target.owner(self._target.user_id or "")
        if fresh:
            metadata = {"folder": document.folder, "source": document.source}
            task = Task("knowledge", infer=False, metadata=metadata)
            added = await add(fresh, owner, task, self._settings, self._hooks, self._deps)
            self.done = self.done.plus(_counted(added))
        gone = known - sections.keys()
        where = Where(self._scope, ids=frozenset(gone), withdrawn=True)
        for message in await read_all(Message, where, self._deps.store) if gone else ():
            await erase(message, self._deps)
        self.done = self.done.plus(
            Imported(removed=len(gone), ignored=len(known & sections.keys()))
        )
        (await self._sections())[document.source] = frozenset(sections)

    @property
    def _scope(self) -> Scope:
        return Scope(self._target.agent_id, self._target.user_id or "")

    async def _sections(self) -> dict[str, frozenset[str]]:
        """The ids of the sections that are stored of this folder, by their source."""
        if self._known is None:
            filters = split_filters({"folder": self._folder})[1]
            where = Where(self._scope, filters=filters, withdrawn=True)
            found: dict[str, set[str]] = {}
            for message in await read_all(Message, where, self._deps.store):
                found.setdefault(str(message.metadata["source"]), set()).add(message.id)
            self._known = {source: frozenset(ids) for source, ids in found.items()}
        return self._known

    async def _split(self, portion: Portion) -> tuple[Portion, int]:
        """What is not stored in the same words, whatever its metadata is; how many messages are."""
        owner, policy = self._target.owner(portion.user_id), self._settings.content_policy
        turns = read_turns(portion.messages, thinking=self._settings.store_thinking).turns
        messages = parse_turns(turns, owner, self._deps.clock(), policy).messages
        ids = frozenset(message.id for message in messages)
        where = Where(Scope(user_id=portion.user_id), ids=ids, withdrawn=True)
        known = {_words(it) for it in await read_all(Message, where, self._deps.store)}
        said = zip(turns, messages, strict=True)
        new = {turn.origin for turn, message in said if _words(message) not in known}
        items = tuple(it for at, it in enumerate(portion.items) if f"messages[{at}]" in new)
        return replace(portion, items=items), sum(turn.origin not in new for turn in turns)

    async def _store(self, portion: Portion) -> Added | Ingested:
        first, owner = portion.items[0], self._target.owner(portion.user_id)
        rest = (self._settings, self._hooks, self._deps)
        if not first.is_memory and not self._target.infer:
            return await ingest(portion.messages, owner, *rest)
        task = Task.parse(
            owner,
            self._settings.content_policy,
            None,
            None,
            first.metadata,
            first.expires_at,
            infer=not first.is_memory,
            sensitive=False,
        )
        return await add(portion.messages, owner, task, *rest)


def check_read(wrong: Sequence[str]) -> None:
    """Refuse an import of several files of which some are wrong, as these lines say."""
    if wrong:
        named = "; ".join(wrong[:_NAMED]) + ("; …" if len(wrong) > _NAMED else "")
        files = "1 file" if len(wrong) == 1 else f"{len(wrong)} files"
        raise InvalidArgument(f"{files} could not be read to the end: {named}")


def _words(message: Message) -> tuple[str, ...]:
    """What a message says, and where."""
    place = (message.message_id, message.agent_id, message.session_id)
    return (*place, message.role, message.content_type, message.content)


def _counted(stored: Added | Ingested) -> Imported:
    inserted = stored.message_ids if isinstance(stored, Added) else stored.inserted
    return Imported(
        inserted=len(inserted),
        ignored=len(stored.ignored),
        truncated=len(stored.truncated),
        skipped=len(stored.skipped),
        notes=len(stored.results) if isinstance(stored, Added) else 0,
        pending=stored.pending,
        problems=stored.problems,
    )


def located(error: KeMemError, portion: Portion) -> KeMemError:
    """An error of a portion as an error of its place in the file, where one message is to blame."""
    item = _ITEM.match(str(error.details.get("field", "")))
    taken = error.details.get("message_ids")
    if isinstance(taken, list | tuple):
        named = str(taken[0])
        own = (it for it in reversed(portion.items) if named.startswith(it.fields["message_id"]))
        place = next(own, portion.items[0]).place
        return type(error)(f"{place}: another message has this message_id")
    if item:
        reason = error.message.removeprefix(item[0]).strip()
        return type(error)(f"{portion.items[int(item[1])].place}: {reason}")
    return error


def plan(
    work: Iterable[Portion | Document | Skipped],
    target: Target,
    now: Micros,
    policy: ContentPolicy,
) -> Plan:
    """What an import would do; whatever it would refuse is refused here, too."""
    messages, memories, users = Counter[str](), Counter[str](), Counter[str]()
    sessions: set[tuple[str, object]] = set()
    documents = sections = 0
    skipped: list[Skipped] = []
    for it in work:
        if isinstance(it, Skipped):
            skipped.append(it)
        elif isinstance(it, Document):
            documents, sections = documents + 1, sections + len(it.sections)
        else:
            try:
                turns = read_turns(it.messages).turns
                parse_turns(turns, target.owner(it.user_id), now, policy)
            except KeMemError as error:
                raise located(error, it) from None
            counted, amount = (memories, len(it.items)) if it.items[0].is_memory else (messages, 0)
            counted[it.items[0].format] += amount or len(turns)
            users[it.user_id] += amount or len(turns)
            sessions |= {(it.user_id, item.fields.get("session_id")) for item in it.items}
    left_out, wrong = (
        tuple(it.line for it in some) for some in (skipped, [it for it in skipped if it.is_wrong])
    )
    counts = (len(sessions), documents, sections)
    return Plan(messages, memories, users, *counts, left_out, wrong)
