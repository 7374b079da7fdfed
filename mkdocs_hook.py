"""For mkdocs: blocks that are not run as tests look like any other; pages link to their twins."""

import re
from typing import Any

ASKS = re.compile(r"^( *`{3,}(?:bash|console)) no-run$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """The page without a word that mkdocs does not know, and with a link to the other language."""
    name: str = page.file.src_uri
    twin = f"[English](../{name[3:]})" if name.startswith("zh/") else f"[中文](zh/{name})"
    title, text = ASKS.sub(r"\1", markdown).split("\n", 1)
    return f"{title}\n\n{twin}\n{text}"
