"""What a real model makes of memory, beside memory without one: `kemem admin bench`, and more.

python -m bench.llm [--base-url URL --model NAME] [--suite NAME] [--cases N] [--threads N]
    [--truth FILE] [--talks FILE] [--seconds N]

Without an address it downloads a small open model, verifies it and serves it on loopback. Prompts
and answers are kept for reading.
"""

import argparse
import asyncio
from contextlib import nullcontext
from pathlib import Path

from bench.llm import recall, summaries
from bench.llm.model import NAME, serving
from kemem.serve import bench as product
from kemem.serve.bench import Suite, judge
from kemem.serve.http.process import configure_logs
from kemem.settings import Settings

FOLDER = Path("build/llm")
SUITES: dict[str, Suite] = {**product.SUITES, "summaries": summaries.run}


def main() -> None:
    """Run the suites, print their tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.llm", description="Judge a model.")
    parser.add_argument("--base-url", help="of a server that speaks OpenAI's protocol")
    parser.add_argument("--model", default=NAME)
    names = [*SUITES, "recall"]
    parser.add_argument("--suite", action="append", choices=names, help="default: all")
    parser.add_argument("--cases", type=int, default=1000, help="of each language, at most")
    parser.add_argument("--threads", type=int, default=1, help="of the server that is started")
    parser.add_argument("--truth", type=Path, help="lives of bench.truth, for the suite recall")
    parser.add_argument("--talks", type=Path, help="users of bench.recall, for the suite recall")
    parser.add_argument("--seconds", type=float, default=600.0, help="of a recall")
    chosen = parser.parse_args()
    configure_logs("critical")  # of the server that the suite of chats runs
    suites = {**SUITES}
    if chosen.truth or chosen.talks:
        suites["recall"] = recall.suite(chosen.truth, chosen.talks, chosen.seconds)
    elif "recall" in (chosen.suite or ()):
        parser.error("the suite recall needs --truth or --talks")
    server = nullcontext(chosen.base_url) if chosen.base_url else serving(FOLDER, chosen.threads)
    with server as address:
        settings = Settings(llm_base_url=address, llm_model=chosen.model)
        for name in chosen.suite or suites:
            print(asyncio.run(judge(settings, name, chosen.cases, FOLDER, suites)), flush=True)


if __name__ == "__main__":
    main()
