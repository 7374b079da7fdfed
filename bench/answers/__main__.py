"""Which questions does a model answer rightly from what a memory hands it?

python -m bench.answers --data FILE --truth FILE --base-url URL --model NAME
    [--sets locomo,longmemeval,truth] [--systems nothing,bm25,search,recall] [--questions N]
    [--resume] [--report] [--answers FILE] [--evidence]

--data is a file of conversations as `bench.retrieval` reads it, --truth one of lives as
`bench.truth` does. The same model answers each question, with the same short prompt, from what
each system finds. Answers are appended to a file as they come: a run that was stopped goes on with
--resume, which asks nothing twice. The tables are printed from that file, so that --report alone
judges anew what was answered. With --evidence no model is asked, and what counts is whether the
answer can be read in what a system finds.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from openai import OpenAIError

from bench.answers.model import Model, NoModel
from bench.answers.prompt import Line
from bench.answers.questions import (
    CONVERSATIONS,
    SETS,
    TRUTH,
    History,
    read_conversations,
    read_lives,
    sample,
)
from bench.answers.report import Row, evidence_report, report
from bench.answers.systems import (
    DEFAULT,
    SYSTEMS,
    WITHOUT_MODEL,
    Answerer,
    Limits,
    Peers,
    TooLong,
)
from kemem.errors import KeMemError

FOLDER = Path("build/answers")
FAILURES = 3  # in a row, after which a run ends


def read_rows(path: Path) -> list[Row]:
    """The answers of a file; a line that was cut off is left out."""
    rows = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        evidence = tuple(Line(*it) for it in item.pop("evidence"))
        rows.append(Row(**item, evidence=evidence))
    return rows


def append(path: Path, row: Row) -> None:
    """Keep one more answer."""
    item = {**asdict(row), "evidence": [[it.at, it.speaker, it.text] for it in row.evidence]}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(item, ensure_ascii=False) + "\n")


async def ask(
    histories: Iterable[History], systems: Sequence[str], model: Model, path: Path, limits: Limits
) -> None:
    """Every question of every system that is not in the file yet."""
    answered, failures = {it.key for it in read_rows(path)}, 0
    async with AsyncExitStack() as peers_stack:
        peers = Peers(peers_stack, model)
        for history in histories:
            async with AsyncExitStack() as stack:
                answerer = Answerer(history, model, peers, stack, limits)
                for question in history.questions:
                    for system in systems:
                        if (model.name, system, question.dataset, question.key) in answered:
                            continue
                        try:
                            one = await answerer.answer(system, question)
                        except TooLong:
                            continue
                        except (OpenAIError, KeMemError) as error:
                            failures += 1
                            print(f"{system}, {question.key}: {error}", file=sys.stderr)
                            if failures == FAILURES:
                                raise SystemExit("the model fails; --resume goes on") from error
                            continue
                        failures = 0
                        about = (model.name, system, question.dataset, question.key, question.text)
                        reply = one.reply
                        cost = (reply.prompt_tokens, reply.completion_tokens, reply.seconds)
                        append(path, Row(*about, reply.text, one.evidence, *cost))
                        print(".", end="", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(
        prog="python -m bench.answers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="systems:\n" + "\n".join(f"  {name:9} {it}" for name, it in SYSTEMS.items()),
    )
    options.add_argument("--data", type=Path, help="the file of conversations")
    options.add_argument("--truth", type=Path, help="the file of lives")
    options.add_argument("--base-url", help="of a server that speaks OpenAI's protocol")
    options.add_argument("--model", default="")
    options.add_argument("--sets", default=",".join(SETS), help="separated by commas")
    options.add_argument("--systems", help="separated by commas; all that fit without it")
    options.add_argument("--questions", type=int, default=150, help="of each set")
    options.add_argument("--seed", type=int, default=0, help="which questions")
    options.add_argument("--context", type=int, default=6_000, help="most tokens of a prompt")
    options.add_argument("--chat-recall", choices=("call", "note"), default="note")
    options.add_argument("--answers", type=Path, help="where answers are kept")
    options.add_argument("--resume", action="store_true", help="go on with a file of answers")
    options.add_argument("--report", action="store_true", help="ask nothing, print the tables")
    options.add_argument("--evidence", action="store_true", help="ask no model")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask and print."""
    options = parser()
    chosen = options.parse_args(arguments)
    known = WITHOUT_MODEL if chosen.evidence else tuple(SYSTEMS)
    usual = WITHOUT_MODEL if chosen.evidence else DEFAULT
    sets = _names(options, "sets", chosen.sets, SETS)
    systems = _names(options, "systems", chosen.systems or ",".join(usual), known)
    histories = sample(_histories(options, chosen, sets), chosen.questions, chosen.seed)
    path = chosen.answers or FOLDER / ("evidence.jsonl" if chosen.evidence else "answers.jsonl")
    if not (chosen.evidence or chosen.model):
        options.error("--model must be the name of a model")
    if not chosen.report:
        if not (chosen.evidence or chosen.base_url):
            options.error("--base-url must be the address of a server")
        if path.exists() and not chosen.resume:
            options.error(f"{path} has answers already: --resume goes on with it")
        path.parent.mkdir(parents=True, exist_ok=True)
        key = os.environ.get("OPENAI_API_KEY", "none")
        model = NoModel() if chosen.evidence else Model(chosen.base_url, chosen.model, key)
        limits = Limits(chosen.context, chosen.chat_recall)
        asyncio.run(ask(histories, systems, model, path, limits))
    rows = [it for it in read_rows(path) if it.system in systems]
    if chosen.evidence:
        print(*evidence_report(rows, histories), sep="\n")
    else:
        rows = [it for it in rows if it.model == chosen.model]
        print(*report(rows, histories), sep="\n")


def _histories(
    options: argparse.ArgumentParser, chosen: argparse.Namespace, sets: Sequence[str]
) -> list[History]:
    conversations = [it for it in sets if it in CONVERSATIONS]
    for name, wanted in (("data", bool(conversations)), ("truth", TRUTH in sets)):
        path: Path | None = getattr(chosen, name)
        if wanted and (path is None or not path.is_file()):
            options.error(f"--{name} must be a file, not {path}")
    histories = read_conversations(chosen.data, conversations) if conversations else []
    return histories + (read_lives(chosen.truth) if TRUTH in sets else [])


def _names(
    options: argparse.ArgumentParser, option: str, value: str, known: Sequence[str]
) -> list[str]:
    names = [*filter(None, value.split(","))]
    if missing := [it for it in names if it not in known]:
        options.error(f"--{option} must be of {', '.join(known)}, not {', '.join(missing)}")
    return names


if __name__ == "__main__":
    main()
