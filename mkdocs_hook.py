"""For mkdocs: a block that asks not to be run as a test is shown as any other."""

import re

ASKS = re.compile(r"^( *`{3,}(?:bash|console)) no-run$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page without the word; mkdocs would not know such a fence for one."""
    return ASKS.sub(r"\1", markdown)
