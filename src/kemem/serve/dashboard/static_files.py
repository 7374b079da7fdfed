"""The dashboard's own files, and those of others that npm brings."""

from os import PathLike, stat_result
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"
VENDOR = STATIC / "vendor"
VENDOR_FILES = ("htmx.min.js", "uPlot.iife.min.js", "uPlot.min.css", "force-graph.min.js")
STATIC_PATH = "/dashboard/static"

_IMMUTABLE = "public, max-age=31536000, immutable"


class CachedFiles(StaticFiles):
    """Files that browsers keep for good where their address names the version."""

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """A file, or that it has not changed."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        versioned = scope["query_string"].startswith(b"v=")
        response.headers["Cache-Control"] = _IMMUTABLE if versioned else "no-cache"
        return response


def static_url(name: str) -> str:
    """The URL of a file, with its version."""
    try:
        file = (STATIC / name).stat()
    except FileNotFoundError:
        return f"{STATIC_PATH}/{name}"
    return f"{STATIC_PATH}/{name}?v={file.st_mtime_ns ^ file.st_size:x}"


def has_all(vendor: Path) -> bool:
    """Whether the files that npm brings are there."""
    return all((vendor / name).is_file() for name in VENDOR_FILES)
