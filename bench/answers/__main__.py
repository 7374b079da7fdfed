"""Which questions does a model answer rightly from what a memory hands it?

python -m bench.answers --data FILE --truth FILE --base-url URL --model NAME
    [--sets locomo,longmemeval,truth] [--systems nothing,bm25,search,recall] [--questions N]
    [--resume] [--report] [--answers FILE]

--data is a file of conversations as `bench.retrieval` reads it, --truth one of lives as
`bench.truth` does. The same model answers each question, with the same short prompt, from what
each system finds. Answers are appended to a file as they come: a run that was stopped goes on with
--resume, which asks nothing twice. The tables are printed from that file, so that --report alone
judges anew what was answered.
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

from bench.answers.model import Model
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
from bench.answers.report import Row, report
from bench.answers.systems import DEFAULT, SYSTEMS, Answerer, Limits, Peers, TooLong
from kemem.errors import KeMemError

FILE = Path("build/answers/answers.jsonl")
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.answers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="systems:\n" + "\n".join(f"  {name:9} {it}" for name, it in SYSTEMS.items()),
    )
    parser.add_argument("--data", type=Path, help="the file of conversations")
    parser.add_argument("--truth", type=Path, help="the file of lives")
    parser.add_argument("--base-url", help="of a server that speaks OpenAI's protocol")
    parser.add_argument("--model", required=True)
    parser.add_argument("--sets", default=",".join(SETS), help="separated by commas")
    parser.add_argument("--systems", default=",".join(DEFAULT), help="separated by commas")
    parser.add_argument("--questions", type=int, default=150, help="of each set")
    parser.add_argument("--seed", type=int, default=0, help="which questions")
    parser.add_argument("--context", type=int, default=6_000, help="most tokens of a prompt")
    parser.add_argument("--chat-recall", choices=("call", "note"), default="note")
    parser.add_argument("--answers", type=Path, default=FILE, help="where answers are kept")
    parser.add_argument("--resume", action="store_true", help="go on with a file of answers")
    parser.add_argument("--report", action="store_true", help="ask nothing, print the tables")
    chosen = parser.parse_args(arguments)
    sets, systems = (_names(parser, name, getattr(chosen, name)) for name in ("sets", "systems"))
    conversations = [it for it in sets if it in CONVERSATIONS]
    for name, wanted in (("data", bool(conversations)), ("truth", TRUTH in sets)):
        path: Path | None = getattr(chosen, name)
        if wanted and (path is None or not path.is_file()):
            parser.error(f"--{name} must be a file, not {path}")
    if not chosen.report:
        if not chosen.base_url:
            parser.error("--base-url must be the address of a server")
        if chosen.answers.exists() and not chosen.resume:
            parser.error(f"{chosen.answers} has answers already: --resume goes on with it")
        chosen.answers.parent.mkdir(parents=True, exist_ok=True)
    histories = read_conversations(chosen.data, conversations) if conversations else []
    histories += read_lives(chosen.truth) if TRUTH in sets else []
    histories = sample(histories, chosen.questions, chosen.seed)
    if not chosen.report:
        model = Model(chosen.base_url, chosen.model, os.environ.get("OPENAI_API_KEY", "none"))
        limits = Limits(chosen.context, chosen.chat_recall)
        asyncio.run(ask(histories, systems, model, chosen.answers, limits))
    rows = [it for it in read_rows(chosen.answers) if it.model == chosen.model]
    print(*report([it for it in rows if it.system in systems], histories), sep="\n")


def _names(parser: argparse.ArgumentParser, option: str, value: str) -> list[str]:
    known = SETS if option == "sets" else tuple(SYSTEMS)
    names = [*filter(None, value.split(","))]
    if missing := [it for it in names if it not in known]:
        parser.error(f"--{option} must be of {', '.join(known)}, not {', '.join(missing)}")
    return names


if __name__ == "__main__":
    main()
