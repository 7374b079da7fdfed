"""Which facts of a conversation its State still tells: 20 sessions in bench/data/sessions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kemem.add.summarize import STATE_TOKENS, summarize_session
from kemem.ports import LLM, Deps
from kemem.records import Message, Scope
from kemem.records.batch import Batch
from kemem.results import Context
from kemem.session import context
from kemem.testing import FakeClock
from kemem_conformance.ram import RamStore

FOLDER = Path(__file__).parent / "data" / "sessions"
BUDGETS = (200, 600, 2000)
MINUTE = 60_000_000
START = 1_769_424_420_000_000
SCOPE = Scope("agent", "user", "session")
PATIENCE = 600.0  # seconds for a summary of a model
ROLES = {"U": "user", "A": "assistant"}


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation; a fact is given by the ways in which it may be worded."""

    name: str
    facts: tuple[tuple[str, ...], ...]
    newest: tuple[str, ...]
    turns: tuple[tuple[str, str], ...]

    @property
    def held_out(self) -> bool:
        """Whether it was left aside while the summaries were written."""
        return int(self.name[-2:]) % 2 == 0

    def is_of(self, language: str) -> bool:
        return self.name.startswith(language)


def sessions() -> list[Session]:
    return [_parsed(path) for path in sorted(FOLDER.glob("*.txt"))]


def _parsed(path: Path) -> Session:
    head, body = path.read_text("utf-8").split("\n---\n")
    listed = [line.split(": ", 1) for line in head.splitlines()[1:]]
    words = [(key, tuple(value.split("|"))) for key, value in listed]
    turns = [
        (ROLES[turn[0]], re.sub(r"\n  ", "\n", turn[3:]).strip())
        for turn in re.split(r"\n(?=[UA]: )", body)
    ]
    facts = tuple(value for key, value in words if key == "fact")
    (newest,) = (value for key, value in words if key == "newest")
    return Session(path.stem, facts, newest, tuple(turns))


def tells(text: str, wordings: Sequence[str]) -> bool:
    """Whether a text has one of the wordings; case does not count."""
    return any(wording.casefold() in text.casefold() for wording in wordings)


def messages(turns: Sequence[tuple[str, str]]) -> list[Message]:
    """Turns a minute apart; each pair of them arrives together."""
    owner = (SCOPE.agent_id or "", SCOPE.user_id or "", SCOPE.session_id or "")
    return [
        Message(
            f"m{at:05}", *owner, role, text, START + at * MINUTE, START + (at - at % 2) * MINUTE
        )
        for at, (role, text) in enumerate(turns)
    ]


async def contexts(
    turns: Sequence[tuple[str, str]], state_tokens: int = STATE_TOKENS, llm: LLM | None = None
) -> list[Context]:
    """The context of a conversation at each budget; it was summarised after each pair of turns."""
    clock, told = FakeClock(START), messages(turns)
    deps = Deps(RamStore(), None, clock, llm=llm, llm_timeout=PATIENCE)
    for at in range(0, len(told), 2):
        clock.now = START + at * MINUTE
        await deps.store.apply(Batch(put=tuple(told[at : at + 2])))
        await summarize_session(SCOPE, deps, budget=state_tokens)
    return [
        await context(SCOPE, max_tokens, deps, state_tokens=state_tokens) for max_tokens in BUDGETS
    ]


async def figures(chosen: Sequence[Session], state_tokens: int = STATE_TOKENS) -> str:
    """The share of facts that survive at each budget, and how often the newest topic does."""
    facts, kept, newest = 0, [0] * len(BUDGETS), [0] * len(BUDGETS)
    for session in chosen:
        facts += len(session.facts)
        for at, seen in enumerate(await contexts(session.turns, state_tokens)):
            kept[at] += sum(tells(seen.text, fact) for fact in session.facts)
            newest[at] += tells(seen.text, session.newest)
    shares = "".join(f"{count / facts:>8.1%}" for count in kept)
    return f"{shares}  " + " ".join(f"{count}/{len(chosen)}" for count in newest)


async def in_a_row(chosen: Sequence[Session]) -> str:
    """The same where all conversations are one long session: only 2,000 tokens are of interest."""
    seen = (await contexts([turn for session in chosen for turn in session.turns]))[-1]
    facts = [fact for session in chosen for fact in session.facts]
    kept = sum(tells(seen.text, fact) for fact in facts)
    share = f"{kept / len(facts):.1%} of {len(facts)} facts"
    return f"{share}, {seen.tokens} of {seen.full_tokens} tokens"
