"""Recalls over HTTP: one answer, or events while they go on."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import PermissionDenied
from kemem.serve.auth import Caller
from kemem.serve.events import EVENT_STREAM, EventStream, Told, wants_events
from kemem.serve.failures import to_json
from kemem.serve.guarded import GuardedRoute, Memory
from kemem.serve.recall_shapes import Question, Recollection

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            EVENT_STREAM: {
                "schema": {
                    "type": "string",
                    "description": "Events with JSON as data: a `step` (StepItem) for each move as "
                    "it happens, then the `result` (Recollection) or an `error` (Failure).",
                }
            }
        }
    }
}

router = APIRouter(route_class=GuardedRoute, tags=["memories"])


@router.post("/v1/recall", response_model=Recollection, responses=_EVENTS)
async def recall(asked: Question, request: Request, memory: Memory) -> Response:
    """The evidence that a question needs, found step by step; as events for who accepts them."""
    ids, granted = asked.ids, _grant(asked.sensitive, request.state.caller)
    handle = memory.for_user(asked.user_id, agent_id=ids["agent_id"], sensitive=granted)
    recalling = partial(
        handle.recall,
        asked.question,
        session_id=ids["session_id"],
        max_iterations=asked.max_iterations,
    )
    if not wants_events(request):
        found = await recalling()
        return Response(to_json(found.to_dict()), media_type="application/json")

    async def work(tell: Callable[[Told], None]) -> Told:
        found = await recalling(on_step=lambda step: tell(step.to_dict()))
        return found.to_dict()

    return EventStream(work)


def _grant(wanted: bool, caller: Caller) -> bool:
    """Whether sensitive memories may be seen, if that is asked for."""
    if wanted and caller.user_id is not None and not caller.sensitive:
        raise PermissionDenied(
            'this token does not grant sensitive memories, it lacks the claim "sensitive": true'
        )
    return wanted
