"""The HTTP API: `create_app` builds it over a memory."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`create_app`, imported with the first use: other faces import small parts of this room."""
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kemem.serve.http.app import create_app

    return create_app
