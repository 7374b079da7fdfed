"""How fast an export is imported, how much memory that takes, and that a second run stores nothing.

    python -m bench.imports [--messages 100000] [--embedder local] [--infer]

The export is made up: conversations of ChatGPT with 20 messages each, in Chinese and English, and
answers that were generated again. `kemem import` runs in a process of its own, whose peak of memory
the system tells.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LENGTH = 20  # messages of a conversation
SENTENCES = (
    "我不吃辣，火锅要清汤。",
    "I moved to Berlin last spring.",
    "周五下午要去机场接妈妈。",
    "My dog Rex likes the river.",
    "公司换了新的办公室，在三楼。",
    "The train at 9:40 was late again.",
)


def conversation(number: int, chance: random.Random) -> dict[str, Any]:
    """A conversation as ChatGPT exports it, one answer of which was generated again."""
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "children": []}}
    parent = "root"
    for turn in range(LENGTH):
        for version in range(2 if turn == LENGTH - 1 else 1):
            node = f"{number:08}-{turn:04}-{version:04}-0000-000000000000"
            text = " ".join(chance.choices(SENTENCES, k=chance.randint(1, 12)))
            mapping[node] = {
                "id": node,
                "parent": parent,
                "children": [],
                "message": {
                    "id": node,
                    "author": {"role": "assistant" if turn % 2 else "user", "metadata": {}},
                    "create_time": 1_700_000_000.0 + number * 1000 + turn * 10 + version,
                    "content": {"content_type": "text", "parts": [f"{number}.{turn} {text}"]},
                    "status": "finished_successfully",
                    "metadata": {"model_slug": "gpt", "request_id": "0" * 200, "citations": []},
                    "recipient": "all",
                },
            }
            mapping[parent]["children"].append(node)
        parent = node
    name = f"{number:08}-0000-0000-0000-000000000000"
    times = {"create_time": 1_700_000_000.0 + number * 1000, "update_time": 1_800_000_000.0}
    ids = {"conversation_id": name, "current_node": parent}
    return {"title": f"Talk {number}", **times, **ids, "mapping": mapping}


def write_export(path: Path, messages: int) -> None:
    """An export on one line, as ChatGPT writes it."""
    chance = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        for number in range(messages // LENGTH):
            file.write("[" if number == 0 else ", ")
            file.write(json.dumps(conversation(number, chance)))
        file.write("]")


def run_import(path: Path, home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What `kemem import` printed, its seconds, and the peak of its memory in MB."""
    command = [sys.executable, "-m", "kemem.serve.cli.main", "import", str(path)]
    command += ["--user", "bench", "--json", *(["--infer"] if options.infer else [])]
    inherited = {name: it for name, it in os.environ.items() if not name.startswith("KEMEM_")}
    settings = {"KEMEM_DATA_DIR": str(home), "KEMEM_EMBEDDER": options.embedder}
    started = time.perf_counter()
    with subprocess.Popen(
        command, env={**inherited, **settings, "KEMEM_LLM": "none"}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the import failed with {process.returncode}")
    seconds = time.perf_counter() - started
    counts: dict[str, Any] = json.loads(printed)
    return {**counts, "seconds": seconds, "peak_mb": usage.ru_maxrss / 1024}


def report(messages: int, size: int, runs: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each run."""
    yield f"{messages} messages, {size / 1e6:.0f} MB"
    for name, run in zip(("first", "second"), runs, strict=True):
        done = run["inserted"] + run["ignored"]
        rate = f"{done / run['seconds']:.0f} messages/s"
        stored = f"{run['inserted']} stored, {run['ignored']} ignored"
        yield f"{name} run: {run['seconds']:.1f} s, {rate}, peak {run['peak_mb']:.0f} MB, {stored}"


def main() -> None:
    """Import a made-up export twice."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--embedder", choices=["local", "none"], default="local")
    parser.add_argument("--infer", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "conversations.json")
        write_export(path, options.messages)
        runs = [run_import(path, Path(folder, "data"), options) for _ in range(2)]
        print("\n".join(report(options.messages, path.stat().st_size, runs)))


if __name__ == "__main__":
    main()
