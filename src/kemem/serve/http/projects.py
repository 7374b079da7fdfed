"""Projects behind one server: which one a request is for."""

from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from kemem.errors import NotFound
from kemem.serve.http.auth import Caller, is_open, is_page
from kemem.serve.http.errors import NOT_FOUND
from kemem.settings import unknown_project

HEADER = "X-KeMem-Project"
COOKIE = "kemem_project"  # what an operator chose on the dashboard, and for the dashboard only
QUERY = "project"


def app_of(app: FastAPI, caller: Caller, scope: Scope) -> FastAPI:
    """The app of the project that a request is for, or the server's own for none.

    A key of a project reaches that project. Operators of the server name one; to all others a
    project that they name is not found, whether it exists or not.
    """
    path, headers = scope["path"], Headers(scope=scope)
    if is_open(path):
        return app
    projects: dict[str, FastAPI] = app.state.projects
    named = headers.get(HEADER) or None
    if named is None and is_page(path):
        named = _chosen(scope, headers, caller)
    if caller.project is not None:
        if named not in (None, caller.project):
            raise NotFound(NOT_FOUND)
        return projects[caller.project]
    if named is None:
        return app
    if not caller.is_operator:
        raise NotFound(NOT_FOUND)
    if named not in projects:
        raise NotFound(unknown_project(named, projects))
    return projects[named]


def _chosen(scope: Scope, headers: Headers, caller: Caller) -> str | None:
    """The project that an address of the dashboard names, or else the one chosen before.

    What was chosen before may be gone, or out of reach of who has signed in since.
    """
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if QUERY in query:
        return query[QUERY][-1] or None
    chosen = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    is_there = caller.project is None and chosen in scope["app"].state.projects
    return chosen if is_there else None
