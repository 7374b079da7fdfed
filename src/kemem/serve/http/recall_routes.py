"""Recalls over HTTP: one answer, or events while they go on."""

from functools import partial

from fastapi import APIRouter, Request, Response

from kemem.recall import Recalled
from kemem.serve.http.responses import to_json
from kemem.serve.http.routing import GuardedRoute, Memory
from kemem.serve.http.schemas import RecallRequest
from kemem.serve.http.sse import Emit, EventStream, described, wants_events

_EVENTS = described(
    "a `step` (Step) for each tool call as it happens, then the `result` (Recalled) or an "
    "`error` (Failure)."
)

router = APIRouter(route_class=GuardedRoute, tags=["memories"])


@router.post("/v1/recall", response_model=Recalled, responses=_EVENTS)
async def recall(body: RecallRequest, request: Request, memory: Memory) -> Response:
    """The evidence that a question needs, found step by step; as events for who accepts them."""
    arguments = body.arguments()
    granted = request.state.caller.grant(arguments.pop("sensitive"))
    user_id, agent_id = arguments.pop("user_id"), arguments.pop("agent_id")
    handle = memory.for_user(user_id, agent_id=agent_id, sensitive=granted)
    recalling = partial(handle.recall, **arguments)
    if not wants_events(request):
        recalled = await recalling()
        return Response(to_json(recalled.to_dict()), media_type="application/json")

    async def work(emit: Emit) -> None:
        recalled = await recalling(on_step=lambda step: emit("step", step.to_dict()))
        emit("result", recalled.to_dict())

    return EventStream(work)
