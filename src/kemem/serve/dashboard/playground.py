"""The search playground: one question, one or two ways to ask it, and why each hit is there."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, KeMemError
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS
from kemem.results import Hit
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.memories import Piece, link_to, suggested_users
from kemem.serve.dashboard.page import DashboardRoute, page
from kemem.serve.http.routing import Memory
from kemem.text.snippets import CLOSE, OPEN

MODES = ("hybrid", "lexical", "semantic")
KINDS = (*NOTE_KINDS, "message")
LIMIT, MAX_LIMIT = 10, 50
_COMMA = re.compile(r"[,，、;；\n]")
_SIGNAL = re.compile(r"(lexical|semantic|rerank)(?:#(\d+))? (\d\.\d+)")
_TAGS = re.compile(f"({OPEN}|{CLOSE})")

Key = tuple[str, str, str]

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class Column:
    """The hits of a search with one group of settings, or the problem with it."""

    name: str
    settings: str = "{}"  # JSON
    query: str = ""
    hits: Sequence[Hit] = ()
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    problem: KeMemError | None = None

    @property
    def ranks(self) -> dict[Key, int]:
        """The rank of each hit."""
        return {key(hit): rank for rank, hit in enumerate(self.hits, 1)}


@router.get("/dashboard/playground")
async def try_search(request: Request, memory: Memory) -> Response:
    """The form, and the hits with each group of its settings."""
    fields = Fields(request.query_params)
    columns: list[Column] = []
    if fields.text("query"):
        columns.append(await _search("a", fields, memory))
    if columns and fields.text("compare"):
        columns.append(await _search("b", fields, memory))  # after it: neither slows the other
    other_ranks = [None if it.problem else it.ranks for it in reversed(columns)]
    return page(
        request,
        "playground.html",
        status=max((it.problem.status for it in columns if it.problem), default=200),
        given=request.query_params,
        kinds=KINDS,
        modes=MODES,
        limit=LIMIT,
        most=MAX_LIMIT,
        columns=columns,
        other_ranks=other_ranks if len(columns) > 1 else [None],
        key=key,
        link_to=link_to,
        highlighted=highlighted,
        explained=explained,
        user_ids=await suggested_users(memory),
    )


async def _search(name: str, fields: Fields, memory: AsyncMemory) -> Column:
    """A search with the settings of one column; its own question, if any, comes first."""
    own = Fields(fields.values, "b_" if name == "b" else "")
    query = own.text("query") or fields.text("query") or ""
    owner: dict[str, Any] = {id_: fields.text(id_) for id_ in ("user_id", "agent_id", "session_id")}
    try:
        if not any(owner.values()):
            raise InvalidArgument(f"{', '.join(owner)}: one of them is required", field="user_id")
        settings = _settings(own)
        begun = perf_counter()
        hits = await memory.search(query, **owner, explain=True, **settings)
        taken = perf_counter() - begun
    except KeMemError as problem:
        return Column(name, problem=problem)
    text = json.dumps(settings, ensure_ascii=False, default=str)
    return Column(name, text, query, hits, hits.missing, taken)


def _settings(fields: Fields) -> dict[str, Any]:
    """The arguments of a search; those that are not given are left out."""
    keywords = [word.strip() for word in _COMMA.split(fields.text("keywords") or "")]
    settings = {
        "mode": fields.one_of("mode", MODES, "hybrid"),
        "limit": fields.integer("limit", MAX_LIMIT, LIMIT),
        "threshold": fields.fraction("threshold"),
        "kinds": fields.texts("kinds"),
        "since": fields.datetime("since"),
        "until": fields.datetime("until"),
        "keywords": list(filter(None, keywords)),
        "filters": fields.mapping("filters"),
    }
    given = {name: value for name, value in settings.items() if value not in (None, [])}
    return given | {"rerank": fields.one_of("rerank", ("yes", "no"), "yes") == "yes"}


def explained(hit: Hit) -> tuple[list[tuple[str, str, float]], list[tuple[str, str]]]:
    """The signals of a hit as (name, rank or "", score), and its other reasons as (name, text)."""
    matches = [_SIGNAL.fullmatch(reason) for reason in hit.why]
    others = [why for why, match in zip(hit.why, matches, strict=True) if not match]
    return (
        [(match[1], match[2] or "", float(match[3])) for match in matches if match],
        [(name, text) for name, _, text in (why.partition(": ") for why in others)],
    )


def highlighted(hit: Hit) -> list[Piece]:
    """The text of a hit, with the words marked that a search matched; extracts of a long text."""
    if not hit.snippets or _TAGS.search(hit.memory):  # whose own tags would pass for marks
        return [("", hit.memory)]
    pieces: list[Piece] = []
    marked = False
    for part in _TAGS.split(" ".join(hit.snippets)):
        if part in (OPEN, CLOSE):
            marked = part == OPEN
        elif part:
            pieces.append(("mark" if marked else "", part))
    return pieces


def key(hit: Hit) -> Key:
    """What tells a memory from all others."""
    return (hit.row.agent_id, hit.row.user_id, hit.row.id)
