"""Recalls over HTTP: one answer, or events while they go on."""

from functools import partial

from fastapi import APIRouter, Request, Response

from kemem.serve.http.failures import to_json
from kemem.serve.http.guarded import GuardedRoute, Memory
from kemem.serve.http.recall_schemas import Question, Recollection
from kemem.serve.http.sse import EventStream, Tell, described, wants_events

_EVENTS = described(
    "a `step` (StepItem) for each move as it happens, then the `result` (Recollection) or an "
    "`error` (Failure)."
)

router = APIRouter(route_class=GuardedRoute, tags=["memories"])


@router.post("/v1/recall", response_model=Recollection, responses=_EVENTS)
async def recall(asked: Question, request: Request, memory: Memory) -> Response:
    """The evidence that a question needs, found step by step; as events for who accepts them."""
    ids, granted = asked.ids, request.state.caller.grant(asked.sensitive)
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

    async def work(tell: Tell) -> None:
        found = await recalling(on_step=lambda step: tell("step", step.to_dict()))
        tell("result", found.to_dict())

    return EventStream(work)
