"""The search playground: one question, one or two ways to ask it, and why each hit is there."""

import json
import re
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter
from typing import Any, Literal, cast

from fastapi import APIRouter, Request, Response

from kemem.errors import KeMemError
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS
from kemem.results import Hit
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.marked import Piece, highlighted
from kemem.serve.dashboard.memories import SUGGESTED, link_to
from kemem.serve.dashboard.page import page
from kemem.serve.http.routing import Memory

Mode = Literal["hybrid", "lexical", "semantic"]

MODES = ("hybrid", "lexical", "semantic")
KINDS = (*NOTE_KINDS, "message")
LIMIT, MOST = 10, 50
_COMMA = re.compile(r"[,，、;；\n]")
_MEASURED = re.compile(r"(lexical|semantic|rerank)(?:#(\d+))? (\d\.\d+)")

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to ask: a question, and the settings of its search."""

    query: str
    mode: Mode = "hybrid"
    limit: int = LIMIT
    threshold: float | None = None
    kinds: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    keywords: tuple[str, ...] = ()
    filters: dict[str, Any] | None = None
    rerank: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by the names that a search gives them; what is not given is left out."""
        names = ("mode", "limit", "threshold", "kinds", "since", "until", "keywords", "filters")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value not in (None, ())} | {
            "rerank": self.rerank
        }


@dataclass(frozen=True, slots=True)
class Signal:
    """How good one way to look says that a hit is, and the place it gives it."""

    name: str
    share: float  # 0-1
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A hit as the page shows it."""

    hit: Hit
    rank: int
    link: str
    pieces: list[Piece]
    signals: tuple[Signal, ...]
    reasons: tuple[tuple[str, str], ...]  # what has no number: ("time", "上周")
    before: int | None = None  # its rank in the other column; 0: it is not there


@dataclass(frozen=True, slots=True)
class Column:
    """What a trial found, and how long that took; or the problem with it."""

    name: str
    settings: str = "{}"  # JSON
    query: str = ""
    shown: tuple[Shown, ...] = ()
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    problem: KeMemError | None = None


@router.get("/dashboard/playground")
async def try_search(request: Request, memory: Memory) -> Response:
    """The form, and what was found with each of its settings."""
    fields = Fields(request.query_params)
    columns: list[Column] = []
    if fields.text("query"):
        columns.append(await _tried("a", fields, memory))
    if columns and fields.text("compare"):
        columns.append(await _tried("b", fields, memory))  # after it: neither slows the other
        columns = [_compared(columns[0], columns[1]), _compared(columns[1], columns[0])]
    users = await memory.users(limit=SUGGESTED)
    return page(
        request,
        "playground.html",
        status=max((it.problem.status for it in columns if it.problem), default=200),
        given=request.query_params,
        kinds=KINDS,
        modes=MODES,
        limit=LIMIT,
        most=MOST,
        columns=columns,
        user_ids=sorted({entry.id for entry in users.items if entry.id}),
    )


async def _tried(name: str, fields: Fields, memory: AsyncMemory) -> Column:
    """A search with the settings of one column."""
    own = Fields(fields.given, "b_" if name == "b" else "")
    try:
        trial = _trial(own, fields.text("query") or "")
        begun = perf_counter()
        found = await memory.search(
            trial.query,
            fields.text("user_id"),
            fields.text("agent_id"),
            session_id=fields.text("session_id"),
            explain=True,
            **trial.settings,
        )
        taken = perf_counter() - begun
    except KeMemError as problem:
        return Column(name, problem=problem)
    return Column(
        name,
        settings=json.dumps(trial.settings, ensure_ascii=False, default=str),
        query=trial.query,
        shown=tuple(shown(hit, rank) for rank, hit in enumerate(found, 1)),
        missing=found.missing,
        seconds=taken,
    )


def _trial(fields: Fields, query: str) -> Trial:
    """The settings of a column; its own question, where it has one, comes first."""
    listed = [word.strip() for word in _COMMA.split(fields.text("keywords") or "")]
    return Trial(
        fields.text("query") or query,
        cast(Mode, fields.one_of("mode", MODES, "hybrid")),
        fields.whole("limit", MOST, LIMIT),
        fields.share("threshold"),
        tuple(fields.texts("kinds")),
        fields.moment("since"),
        fields.moment("until"),
        tuple(filter(None, listed)),
        fields.mapping("filters"),
        fields.one_of("rerank", ("yes", "no"), "yes") == "yes",
    )


def shown(hit: Hit, rank: int) -> Shown:
    """A hit with its reasons told apart: those that are measured, and the others."""
    measured = [_MEASURED.fullmatch(reason) for reason in hit.why]
    told = [it for it, match in zip(hit.why, measured, strict=True) if not match]
    return Shown(
        hit,
        rank,
        link_to(hit),
        highlighted(hit),
        tuple(Signal(it[1], float(it[3]), it[2] or "") for it in measured if it),
        tuple((name, text) for name, _, text in (it.partition(": ") for it in told)),
    )


def _compared(column: Column, other: Column) -> Column:
    """A column in which each hit knows its place in the other one."""
    if other.problem:
        return column
    places = {_key(it): it.rank for it in other.shown}
    moved = (replace(it, before=places.get(_key(it), 0)) for it in column.shown)
    return replace(column, shown=tuple(moved))


def _key(it: Shown) -> tuple[str, str, str]:
    row = it.hit.row
    return (row.agent_id, row.user_id, row.id)
