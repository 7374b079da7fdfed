"""mem0 with its own extraction by a model: `python -m bench.answers.mem0 BASE_URL MODEL`.

Runs with the interpreter that has the peers. It reads lines of JSON: the sessions of a history,
then questions, each answered with dates and texts of memories; then perhaps another history, for
which a fresh store is opened.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.peer import USER, WIDTH, Embedder
from bench.systems.mem0 import close_mem0, open_mem0

LIMIT = 10
Session = tuple[str, list[dict[str, str]]]  # when it ended, and what was said
Search = Callable[[str], list[tuple[str, str]]]


@contextmanager
def extracted(folder: Path, sessions: list[Session], base_url: str, model: str) -> Iterator[Search]:
    """A store that holds what mem0 made of some sessions."""
    config = {"model": model, "openai_base_url": base_url, "api_key": "none", "temperature": 0.0}
    memory = open_mem0(folder, Embedder(), {"provider": "openai", "config": config}, WIDTH)
    for ended, messages in sessions:
        memory.add(messages, user_id=USER, metadata={"said": ended}, infer=True)

    def search(question: str) -> list[tuple[str, str]]:
        filters: dict[str, Any] = {"user_id": USER}
        answer = memory.search(question, filters=filters, top_k=LIMIT, threshold=0.0)
        hits = answer["results"]
        return [((it.get("metadata") or {}).get("said", ""), it["memory"]) for it in hits]

    yield search
    close_mem0(memory)


def main(base_url: str, model: str) -> None:
    """Serve standard input."""
    with ExitStack() as history:
        for line in sys.stdin:
            match json.loads(line):
                case {"sessions": sessions}:
                    history.close()
                    folder = Path(history.enter_context(tempfile.TemporaryDirectory()))
                    search = history.enter_context(extracted(folder, sessions, base_url, model))
                    print("ready", flush=True)
                case {"question": question}:
                    print(json.dumps(search(question)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
