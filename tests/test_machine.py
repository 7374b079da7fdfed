"""A memory against a dict: whatever is done in whatever order, both know the same."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as bounds
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kemem import Memory, NotFound
from kemem.settings import load
from kemem.testing import FakeClock, HashingEmbedder
from tests.fixtures import EXAMPLES

NOW = 1_767_225_600_000_000
USERS = st.sampled_from(["u", "u_", "%"])
SESSIONS = st.sampled_from(["s", "t"])
WORDS = ("火锅", "hotpot", "咖啡", "coffee", "北京")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
PICKS = st.integers(0, 100)  # ids differ from run to run: places do not
KINDS = ["user_info", "short_term", "message"]


@dataclass(slots=True)
class Kept:
    """What the model knows of a note."""

    user: str
    session: str
    text: str
    source: str
    short: bool
    metadata: dict[str, Any] = field(default_factory=dict)


class MemoryMachine(RuleBasedStateMachine):
    """Adds word by word, changes, deletes, searches, ends sessions and begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kemem-machine-"))
        self.clock = FakeClock(NOW)
        self.notes: dict[str, Kept] = {}
        self.messages: dict[str, tuple[str, str, str]] = {}
        self.gone: list[str] = []
        self.open()

    def open(self) -> None:
        settings = load(data_dir=self.directory, embedder="none", llm="none")
        self.memory = Memory(settings=settings, clock=self.clock, embedder=HashingEmbedder(16))

    def teardown(self) -> None:
        self.memory.close()
        shutil.rmtree(self.directory)

    def forget(self, *notes: str) -> None:
        for note in notes:
            del self.notes[note]
            self.gone.append(note)

    @rule(
        texts=st.lists(TEXTS, min_size=1, max_size=3),
        user=USERS,
        session=SESSIONS,
        short=st.booleans(),
    )
    def add(self, texts: list[str], user: str, session: str, short: bool) -> None:
        told = [{"role": "user", "content": text} for text in texts]
        kind = "short" if short else "long"
        added = self.memory.add(told, user, session_id=session, infer=False, memory_type=kind)
        assert [it.memory for it in added.results] == texts
        for outcome, source, text in zip(added.results, added.message_ids, texts, strict=True):
            assert outcome.id not in self.notes and outcome.id not in self.gone
            self.notes[outcome.id] = Kept(user, session, text, source, short, {"role": "user"})
            self.messages[source] = (user, session, text)

    @precondition(lambda self: self.notes)
    @rule(pick=PICKS, text=TEXTS, number=st.none() | st.integers(0, 2))
    def update(self, pick: int, text: str, number: int | None) -> None:
        note = list(self.notes)[pick % len(self.notes)]
        metadata = None if number is None else {"n": number}
        assert self.memory.update(note, text, metadata).memory == text
        self.notes[note].text = text
        self.notes[note].metadata = self.notes[note].metadata if metadata is None else metadata

    @precondition(lambda self: self.notes)
    @rule(pick=PICKS)
    def delete_note(self, pick: int) -> None:
        note = list(self.notes)[pick % len(self.notes)]
        self.memory.delete(note)
        self.forget(note)

    @precondition(lambda self: self.messages)
    @rule(pick=PICKS)
    def delete_message(self, pick: int) -> None:
        """With a message goes the note that was made of it, whatever it says by now."""
        message = list(self.messages)[pick % len(self.messages)]
        self.memory.delete(message, user_id=self.messages.pop(message)[0])
        self.forget(*[name for name, it in self.notes.items() if it.source == message])

    @rule(user=USERS, session=st.none() | SESSIONS)
    def delete_all(self, user: str, session: str | None) -> None:
        notes = [it for it, kept in self.notes.items() if self.covers(user, session, kept)]
        messages = [
            it
            for it, (of, within, _) in self.messages.items()
            if of == user and session in (None, within)
        ]
        dropped = self.memory.delete_all(user, session_id=session)
        assert dropped == len(notes) + len(messages)
        self.forget(*notes)
        for message in messages:
            del self.messages[message]

    @staticmethod
    def covers(user: str, session: str | None, kept: Kept) -> bool:
        return kept.user == user and session in (None, kept.session)

    @rule(user=USERS, session=SESSIONS)
    def end_session(self, user: str, session: str) -> None:
        """Its short-term notes go, and no more; too few words for an experience."""
        try:
            assert self.memory.end_session(session, user).results == ()
        except NotFound:
            assert not any(self.covers(user, session, it) for it in self.notes.values())
        self.forget(
            *[n for n, it in self.notes.items() if it.short and self.covers(user, session, it)]
        )

    @rule()
    def restart(self) -> None:
        self.memory.close()
        self.open()

    @rule(seconds=st.integers(0, 100_000))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.memory.run_jobs()

    @rule(user=USERS, word=st.sampled_from(WORDS))
    def search(self, user: str, word: str) -> None:
        """Every note that has the word is found, and nothing of anybody else."""
        hits = self.memory.search(word, user, kinds=["user_info", "short_term"], limit=1000)
        found = {hit.id for hit in hits}
        assert len(found) == len(hits) and all(0 <= hit.score <= 1 for hit in hits)
        own = {name for name, it in self.notes.items() if it.user == user}
        assert {name for name in own if word in self.notes[name].text} <= found <= own
        assert all(hit.memory == self.notes[hit.id].text for hit in hits)

    @invariant()
    def both_know_the_same(self) -> None:
        listed = self.memory.get_all(agent_id="default", kinds=KINDS, limit=1000)
        notes = {it.id: it for it in listed if it.kind != "message"}
        assert {
            name: (it.row.user_id, it.row.session_id, it.memory, it.metadata)
            for name, it in notes.items()
        } == {name: (it.user, it.session, it.text, it.metadata) for name, it in self.notes.items()}
        said = {
            it.id: (it.row.user_id, it.row.session_id, it.memory)
            for it in listed
            if it.kind == "message"
        }
        assert said == self.messages
        assert len(listed) == len(notes) + len(said)

    @invariant()
    def counts_agree_and_nothing_waits(self) -> None:
        health = self.memory.health()
        assert (health.notes, health.messages) == (len(self.notes), len(self.messages))
        assert health.vectors == health.notes + health.messages
        assert health.pending_jobs == health.failed_jobs == 0

    @precondition(lambda self: self.gone)
    @rule(pick=PICKS)
    def what_is_gone_stays_gone(self, pick: int) -> None:
        note = list(self.gone)[pick % len(self.gone)]
        with pytest.raises(NotFound):
            self.memory.get(note)


MemoryMachine.TestCase.settings = bounds(max_examples=EXAMPLES, stateful_step_count=25)
TestMemory = MemoryMachine.TestCase
