"""The projects of the settings by command: where each is, and how much it holds."""

from typing import Any

from rich.text import Text

from kemem.errors import KeMemError
from kemem.serve.cli.console import plain
from kemem.serve.cli.doctor import has_store, only_store
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common, counts_text
from kemem.settings import Settings, shown_url
from kemem.sync import Memory

_COUNTED = ("messages", "notes")


def projects(common: Common) -> None:
    """List the projects of the settings.

    The default memory, which belongs to none, is the first line.

    $ kemem projects
    """
    process = common.settings.of_process
    items = [_described(process), *(_described(process.of_project(it)) for it in process.projects)]
    width = max(len(it["name"] or "-") for it in items)
    common.print({"items": items}, *(_line(it, width) for it in items))


def _described(settings: Settings) -> dict[str, Any]:
    """A project, where it is, and its counts or what keeps them from being known."""
    url = settings.database_url
    place = str(settings.data_dir) if url is None else shown_url(url)
    described: dict[str, Any] = {"name": settings.project, "place": place}
    if not has_store(settings):
        return {**described, **dict.fromkeys(_COUNTED, 0)}
    try:
        with Memory(settings=only_store(settings)) as memory:
            health = memory.health()
    except KeMemError as error:
        return {**described, "error": error.message}
    return {**described, **{it: getattr(health, it) for it in _COUNTED}}


def _line(item: dict[str, Any], width: int) -> Text:
    counts = {it: item[it] for it in _COUNTED if it in item}
    state = counts_text(counts) if counts else t("error: {reason}", reason=item["error"])
    return Text(plain(f"{item['name'] or '-':<{width}}  {state}  {item['place']}"))
