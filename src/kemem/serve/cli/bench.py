"""The command that judges a model by what memory becomes with it."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from kemem.errors import InvalidArgument
from kemem.serve.bench import SUITES, Verdict, judge
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common, progress
from kemem.serve.http.process import configure_logs

FOLDER = Path("kemem-bench")


def bench(
    common: Common,
    model: Annotated[str | None, Option(help="Its name; default: KEMEM_LLM_MODEL.")] = None,
    base_url: Annotated[str | None, Option(help="Its server; default: KEMEM_LLM_BASE_URL.")] = None,
    suite: Annotated[
        list[str] | None, Option(metavar="|".join(SUITES), help="Which suite; default: all.")
    ] = None,
    cases: Annotated[int, Option(min=1, help="Maximum number of cases per language.")] = 1000,
    transcripts: Annotated[Path, Option(help="Folder for prompts and answers.")] = FOLDER,
) -> None:
    """Judge a model by what memory becomes with it.

    What it learns, finds and answers, beside memory without a model.

    $ kemem admin bench --base-url http://127.0.0.1:11434/v1 --model qwen3
    """
    if unknown := {*(suite or ())} - SUITES.keys():
        known = ", ".join(SUITES)
        reason = t("no suite {names}; there are {known}", names=sorted(unknown), known=known)
        raise InvalidArgument(reason, field="suite")
    # The suite of chats runs a server, whose log is not what was asked for.
    configure_logs("debug" if common.settings.log_level == "debug" else "critical")
    given = {"llm_model": model, "llm_base_url": base_url}
    named = {name: value for name, value in given.items() if value is not None}
    settings = common.settings.model_copy(update={"llm": "auto", **named})
    verdicts: list[Verdict] = []
    for name in suite or SUITES:
        with progress(t("Suite {name}", name=name)):
            verdicts.append(asyncio.run(judge(settings, name, cases, transcripts)))
    common.print([asdict(it) for it in verdicts], *map(str, verdicts))
