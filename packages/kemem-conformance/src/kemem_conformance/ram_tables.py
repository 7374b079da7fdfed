"""What the reference store holds: rows, the graph between them, and who is known."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from kemem.records import (
    Change,
    Checkpoint,
    Entry,
    Line,
    Link,
    Message,
    Micros,
    Model,
    Note,
    Relation,
    Row,
    Scope,
)
from kemem.records.batch import Configuration, Job
from kemem.records.ontology import ENTITY_TYPES
from kemem.text.segment import normalise
from kemem_conformance.ram_ranking import Direction, Stored

Pair = tuple[str, str]  # agent and user
Key = tuple[str, ...]
Edge = tuple[Pair, str, str, str]  # folded source, relationship, folded destination


def key(row: Row) -> Key:
    """What makes a row unique: a message's id within a user, a note's within a pair."""
    if isinstance(row, Message):
        return ("message", row.user_id, row.message_id)
    return note_key(row)


def note_key(named: Note | Change) -> Key:
    """The key of a note, or of the note that a change is about."""
    return ("note", named.agent_id, named.user_id, named.note_id)


def pair(row: Row | Change | Checkpoint) -> Pair:
    """Whose it is."""
    return (row.agent_id, row.user_id)


def newest_first(lines: Iterable[Line]) -> list[Line]:
    """Lines in the order of the journal: newest first, equal times by id."""
    return sorted(lines, key=lambda line: (-line.ts, line.id))


def covers(scope: Scope, agent_id: str | None, user_id: str | None, session_id: str | None) -> bool:
    """Whether ids are those that a scope gives."""
    return (
        scope.agent_id in (None, agent_id)
        and scope.user_id in (None, user_id)
        and scope.session_id in (None, session_id)
    )


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing that notes speak of."""

    name: str  # as it was first written
    type: str


@dataclass(slots=True)
class Graph:
    """Entities and the relations between them, each with the ids of the notes that support it."""

    entities: dict[tuple[Pair, str], Entity] = field(default_factory=dict)
    edges: dict[Edge, frozenset[str]] = field(default_factory=dict)

    def __copy__(self) -> "Graph":
        return Graph(dict(self.entities), dict(self.edges))

    def link(self, owner: Pair, link: Link, note_id: str) -> None:
        """Let a note support a relation."""
        source, destination = fold(link.source), fold(link.destination)
        self._meet(owner, source, Entity(link.source, link.source_type))
        self._meet(owner, destination, Entity(link.destination, link.destination_type))
        edge = (owner, source, link.relationship, destination)
        self.edges[edge] = self.edges.get(edge, frozenset()) | {note_id}

    def unlink(self, owner: Pair, note_id: str) -> None:
        """Take a note's support away; what nothing supports any more goes."""
        for edge, note_ids in list(self.edges.items()):
            if edge[0] == owner:
                self.edges[edge] = note_ids - {note_id}
        self.edges = {edge: note_ids for edge, note_ids in self.edges.items() if note_ids}
        kept = {end for edge in self.edges for end in ends(edge)}
        self.entities = {end: entity for end, entity in self.entities.items() if end in kept}

    def around(
        self, visible: Mapping[Key, Note], names: Sequence[str], types: Sequence[str], hops: int
    ) -> list[Relation]:
        """The relations that visible notes support, hop by hop from the entities named."""
        left = self._relations(visible)
        if types:
            left = {edge: it for edge, it in left.items() if it.relationship in types}
        if not names:
            return sorted(left.values(), key=_place)
        reached = {(edge[0], fold(name)) for edge in left for name in names}
        found: list[Relation] = []
        for _ in range(hops):
            hop = {edge: relation for edge, relation in left.items() if ends(edge) & reached}
            found += sorted(hop.values(), key=_place)
            left = {edge: relation for edge, relation in left.items() if edge not in hop}
            reached |= {end for edge in hop for end in ends(edge)}
        return found

    def _meet(self, owner: Pair, name: str, entity: Entity) -> None:
        known = self.entities.setdefault((owner, name), entity)
        is_own = entity.type not in ENTITY_TYPES
        if known.type == "thing" or (is_own and known.type in ENTITY_TYPES):
            self.entities[owner, name] = replace(known, type=entity.type)

    def _relations(self, visible: Mapping[Key, Note]) -> dict[Edge, Relation]:
        relations = {}
        for edge, supporters in self.edges.items():
            owner, source, relationship, destination = edge
            keys = [("note", *owner, note_id) for note_id in sorted(supporters)]
            notes = [visible[key] for key in keys if key in visible]
            if notes:
                one, other = self.entities[owner, source], self.entities[owner, destination]
                named = (one.name, relationship, other.name, one.type, other.type)
                note_ids = tuple(note.note_id for note in notes)
                relations[edge] = Relation(*owner, *named, note_ids, *_support(notes))
        return relations


def fold(name: str) -> str:
    """What makes two names one entity.  " Beijing  UNIVERSITY" -> "beijing university" """
    return " ".join(normalise(name).split())[:255]


def ends(edge: Edge) -> set[tuple[Pair, str]]:
    """The entities of a relation."""
    return {(edge[0], edge[1]), (edge[0], edge[3])}


def _support(notes: list[Note]) -> tuple[Micros, Micros | None]:
    """From when and until when a relation is true by these notes."""
    closed = [note.valid_until for note in notes if note.valid_until is not None]
    until = max(closed) if len(closed) == len(notes) else None
    return min(note.valid_from for note in notes), until


def _place(relation: Relation) -> tuple[Micros, str, str, str, str, str]:
    named = (relation.source, relation.relationship, relation.destination)
    return (-relation.valid_from, *named, relation.agent_id, relation.user_id)


@dataclass(slots=True)
class Directory:
    """The agents, users and sessions that were ever seen."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    pairs: set[Pair] = field(default_factory=set)

    def __copy__(self) -> "Directory":
        return Directory(dict(self.entries), set(self.pairs))

    def saw(self, owner: Pair, session_id: str | None, created: Micros, updated: Micros) -> None:
        """Enter who is new, open a session that had ended; an agent's shared part is no user."""
        agent_id, user_id = owner
        times = (True, created, updated)
        self.pairs.add(owner)
        self._enter(("agent", agent_id), Entry("agent", agent_id, agent_id, None, agent_id, *times))
        if user_id:
            self._enter(("user", user_id), Entry("user", user_id, agent_id, user_id, None, *times))
        if session_id is not None:
            entry = Entry("session", session_id, agent_id, user_id or None, None, *times)
            self._enter(("session", *owner, session_id), entry)

    def end(self, scope: Scope, at: Micros) -> None:
        """Mark sessions as ended."""
        for session in self.listed("session", scope):
            where = ("session", session.agent_id, session.user_id or "", session.id)
            self.entries[where] = replace(session, active=False, ended=at)

    def configure(self, given: Configuration) -> None:
        """Change what is given of one who is there."""
        for at, entry in self.entries.items():
            if entry.level != given.level or not _names(given.scope, entry):
                continue
            name = entry.name if given.name is None else given.name or None
            if entry.level == "agent":
                name = name or entry.id
            disabled = entry.disabled if given.disabled is None else given.disabled
            self.entries[at] = replace(
                entry,
                name=name,
                type=entry.type if given.type is None else given.type or None,
                config=entry.config if given.config is None else given.config,
                disabled=disabled,
                active=not disabled and entry.ended is None,
                updated=given.at,
            )

    def disabled(self, scope: Scope) -> Entry | None:
        """One that a scope names and that is disabled."""
        named: list[Key] = [("user", scope.user_id or ""), ("agent", scope.agent_id or "")]
        if scope.session_id is not None:
            sessions = [it for it in self.entries.items() if it[0][0] == "session"]
            named += [at for at, entry in sessions if _names(scope, entry)]
        entries = [self.entries[at] for at in named if at in self.entries]
        return next((entry for entry in entries if entry.disabled), None)

    def is_served(self, owner: Pair) -> bool:
        """Whether neither the agent nor the user of a pair is disabled."""
        return self.disabled(Scope(*owner)) is None

    def forget_sessions(self, scope: Scope) -> None:
        """Remove the sessions of a scope."""
        gone = self.listed("session", scope)
        self.entries = {at: entry for at, entry in self.entries.items() if entry not in gone}

    def listed(
        self, level: Literal["agent", "user", "session"], scope: Scope | None
    ) -> list[Entry]:
        """The entries of a level that belong to a pair of the scope, in their order."""
        pairs = {owner for owner in self.pairs if scope is None or self._has(scope, owner)}
        keys: set[Key] = {("agent", agent_id) for agent_id, _ in pairs}
        keys |= {("user", user_id) for _, user_id in pairs}
        keys |= {
            at
            for at in self.entries
            if at[1:3] in pairs and (scope is None or scope.session_id in (None, at[3]))
        }
        found = [entry for at, entry in self.entries.items() if at in keys]
        return sorted(
            (entry for entry in found if entry.level == level), key=lambda entry: entry.place
        )

    def _has(self, scope: Scope, owner: Pair) -> bool:
        session_id = scope.session_id
        known = session_id is None or ("session", *owner, session_id) in self.entries
        return known and covers(scope, *owner, session_id)

    def _enter(self, at: Key, entry: Entry) -> None:
        known = self.entries.setdefault(at, entry)
        updated = max(known.updated, entry.updated)
        if not known.disabled:
            self.entries[at] = replace(known, updated=updated, active=True, ended=None)
        elif entry.level != "session":  # which stays as it is
            self.entries[at] = replace(known, updated=updated)


def _names(scope: Scope, entry: Entry) -> bool:
    """Whether all ids of a scope are those of an entry."""
    session_id = entry.id if entry.level == "session" else None
    return covers(scope, entry.agent_id, entry.user_id or "", session_id)


@dataclass(slots=True)
class Tables:
    """Everything a store holds."""

    rows: dict[Key, Stored] = field(default_factory=dict)
    vectors: dict[Key, tuple[Model, Direction]] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    directory: Directory = field(default_factory=Directory)
    history: list[Change] = field(default_factory=list)  # in the order of writing, as
    checkpoints: list[Checkpoint] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    journal: dict[tuple[str, str], Line] = field(default_factory=dict)  # by kind and id
    arrivals: int = 0
    changes: Counter[Pair] = field(default_factory=Counter)  # of whatever a pair has
    model: Model | None = None

    def copy(self) -> "Tables":
        """The same tables, to be changed without changing these."""
        return Tables(**{each.name: copy(getattr(self, each.name)) for each in fields(self)})
