"""Routes for those who run the server: metrics and the description of the API."""

from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from kemem.serve.http.guarded import OperatorRoute
from kemem.serve.http.overview import overview
from kemem.serve.telemetry.prometheus import report

_NOTHING_LOADED = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}

router = APIRouter(route_class=OperatorRoute, tags=["operators"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Counts and times in the text format of Prometheus."""
    text = await report(request.app.state.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json")
async def openapi(request: Request) -> dict[str, Any]:
    """This API, described for programs."""
    described: dict[str, Any] = request.app.openapi()
    return described


@router.get("/docs", response_class=Response, responses={200: {"content": {"text/html": {}}}})
async def docs(request: Request) -> Response:
    """This API, described for people."""
    page = overview(request.app.openapi())
    return Response(page, media_type="text/html", headers=_NOTHING_LOADED)
