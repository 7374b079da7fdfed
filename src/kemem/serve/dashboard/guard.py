"""The way into the dashboard: operators only, changes only from its own pages."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from kemem.errors import InvalidArgument, KeMemError
from kemem.serve.dashboard.forms import check_form_token
from kemem.serve.dashboard.page import page
from kemem.serve.http.errors import public_error
from kemem.serve.http.routing import invalid_request

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms with "Origin: null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_READS = frozenset(["GET", "HEAD"])


class DashboardRoute(APIRoute):
    """A page or a change of the dashboard; what goes wrong is a page as well."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.name = f"dashboard.{self.name}"  # counted apart from what applications ask for

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                request.state.caller.check_users()
                if request.method not in _READS:
                    await check_form_token(request)
                response = await handle(request)
            except Exception as error:  # the edge: people get a page, the log gets the rest
                response = _error_page(request, error)
            response.headers.update(HEADERS)
            return response

        return guarded


def _error_page(request: Request, error: Exception) -> Response:
    explained = _explained(error)
    return page(request, "error.html", status=explained.status, error=explained)


def _explained(error: Exception) -> KeMemError:
    match error:
        case RequestValidationError():
            return invalid_request(error)
        case HTTPException():
            return InvalidArgument(str(error.detail))
        case _:
            return public_error(error)
