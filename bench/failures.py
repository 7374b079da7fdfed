"""What does a search miss, and why? A page to read for whoever goes on.

python -m bench.failures --data PATH --page FILE [--categories multi-hop,alias] [--each 10]

The file is that of bench.retrieval. Every question of the weak categories is asked; one fails where
a group of its evidence is not among the first ten hits. The page shows some failures of each
category, drawn by chance, with what was wanted, where it stood, what stood first, and reasons that
are computed. It holds texts of the sets: mind their licences. The counts are printed, too.
"""

import argparse
import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from bench.retrievers import RETRIEVERS, terms
from bench.scoring import evidence, texts, users
from kemem.text.query import plain

WEAK = (
    "multi-hop",
    "open-domain",
    "single-session-preference",
    "Implicit Preference",
    "alias",
    "entity-in-context",
)
FIRST = 10  # hits that a caller sees
CANDIDATES = 120  # hits in which it can be said where something stands
SHOWN = 300  # characters of a text

SEVERAL = "several messages are needed"
ASSISTANT = "said by the assistant"
NO_WORD = "no word in common"
NEARBY = "its words stand elsewhere in the session"
FEWER = "others have more of the words"
OUTRANKED = "others have no more of the words"
FAR = f"not among the first {CANDIDATES}"
REASONS = (SEVERAL, ASSISTANT, NO_WORD, NEARBY, FEWER, OUTRANKED, FAR)

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """A question that is not answered by ten hits: what was wanted, where it stood, and why."""

    question: str
    wanted: Message
    rank: int | None  # among the candidates, from 1
    first: Message | None
    reasons: tuple[str, ...]


class Words:
    """Which words of a question the messages of a user hold, and how rare these are."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._terms = {it["message_id"]: terms(it["content"]) for it in messages}

    def shared(self, question: str) -> dict[str, float]:
        """For each message, the rarity of the words that it shares with a question."""
        shares = dict.fromkeys(self._terms, 0.0)
        for unit in plain(question).units:
            term = " ".join(unit.tokens)
            holding = [name for name, own in self._terms.items() if term in own]
            rarity = log(1 + (len(shares) - len(holding) + 0.5) / (len(holding) + 0.5))
            for name in holding:
                shares[name] += rarity
        return shares


def failure(
    question: str,
    groups: Sequence[Sequence[str]],
    ranked: Sequence[str],
    messages: Mapping[str, Message],
    shared: Mapping[str, float],
) -> Failure | None:
    """The first group of evidence that is missing among ten hits, and why; None where none is."""
    missing = next((it for it in groups if {*it}.isdisjoint(ranked[:FIRST])), None)
    if missing is None:
        return None
    best = min(missing, key=lambda it: ranked.index(it) if it in ranked else len(ranked))
    own = max(shared[it] for it in missing)
    before = [shared[it] for it in ranked[:FIRST]]
    sessions = {messages[it]["session"] for it in missing}
    around = any(shared[name] for name, it in messages.items() if it["session"] in sessions)
    holds = {
        SEVERAL: len(groups) > 1,
        ASSISTANT: all(messages[it]["role"] == "assistant" for it in missing),
        NO_WORD: not own,
        NEARBY: not own and around,
        FEWER: own and sum(it > own for it in before) * 2 > len(before),
        OUTRANKED: own and sum(it > own for it in before) * 2 <= len(before),
        FAR: best not in ranked,
    }
    return Failure(
        question,
        messages[best],
        ranked.index(best) + 1 if best in ranked else None,
        messages[ranked[0]] if ranked else None,
        tuple(reason for reason in REASONS if holds[reason]),
    )


async def failures(
    user: Mapping[str, Any], categories: Sequence[str]
) -> list[tuple[str, Failure | None]]:
    """The weak questions of a user: their categories, and how they fail."""
    messages = texts(user)
    asked = [
        (str(it["category"]), it, groups)
        for it in user["queries"]
        if any(name in str(it.get("category")) for name in categories)
        and (groups := evidence(it, messages))
    ]
    if not asked:
        return []
    by_id, words, found = {it["message_id"]: it for it in messages}, Words(messages), []
    async with RETRIEVERS["kemem"](messages) as ask:
        for category, query, groups in asked:
            # More hits can change the first ten, which are those that a caller sees.
            first, more = [[it for it, _ in await ask(query, k)] for k in (FIRST, CANDIDATES)]
            ranked = [*first, *(it for it in more if it not in first)]
            shared = words.shared(query["query"])
            found.append((category, failure(query["query"], groups, ranked, by_id, shared)))
    return found


def counts(found: Mapping[str, Sequence[Failure | None]]) -> Iterator[str]:
    """How many questions fail, and of those the share that each reason holds for."""
    yield "| category | questions | fail | " + " | ".join(REASONS) + " |"
    yield "|---" * (3 + len(REASONS)) + "|"
    for name, rows in found.items():
        failed = [it for it in rows if it]
        cells = [str(sum(reason in it.reasons for it in failed)) for reason in REASONS]
        yield f"| {name} | {len(rows)} | {len(failed)} | " + " | ".join(cells) + " |"


def page(found: Mapping[str, Sequence[Failure | None]], each: int) -> Iterator[str]:
    """The counts, then some failures of each category."""
    yield "# What a search misses"
    yield ""
    yield from counts(found)
    for name, rows in found.items():
        failed = [it for it in rows if it]
        yield from ("", f"## {name}")
        for it in random.Random(0).sample(failed, min(each, len(failed))):
            rank = f"rank {it.rank}" if it.rank else FAR
            yield from ("", f"### {_line(it.question)}", "")
            yield f"- wanted, {rank}: {_said(it.wanted)}"
            yield f"- first: {_said(it.first) if it.first else 'nothing'}"
            yield f"- {'; '.join(it.reasons)}"


def _said(message: Message) -> str:
    speaker = message.get("speaker") or message["role"]
    return f"[{message['ts'][:10]}] {speaker}: {_line(message['content'])}"


def _line(text: str) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= SHOWN else f"{whole[:SHOWN]} …"


async def main(arguments: Sequence[str] | None = None) -> None:
    """Ask, write the page and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m bench.failures", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file of conversations")
    parser.add_argument("--page", type=Path, required=True, help="where the page is written")
    parser.add_argument("--datasets", default="", help="names of sets, separated by commas")
    parser.add_argument("--categories", default=",".join(WEAK), help="parts of their names")
    parser.add_argument("--each", type=int, default=10, help="failures of a category on the page")
    chosen = parser.parse_args(arguments)
    if not chosen.page.parent.is_dir():
        parser.error(f"--page must be in a folder that is there, not {chosen.page}")
    categories = [*filter(None, chosen.categories.split(","))]
    found: dict[str, list[Failure | None]] = defaultdict(list)
    for user in users(chosen.data, [*filter(None, chosen.datasets.split(","))]):
        for category, one in await failures(user, categories):
            found[f"{user['dataset']}, {category}"].append(one)
        print(f"{user['user']}: {sum(map(len, found.values()))} questions", file=sys.stderr)
    if not found:
        raise SystemExit(f"{chosen.data} has no question of the categories {chosen.categories}")
    chosen.page.write_text("\n".join(page(found, chosen.each)) + "\n", "utf-8")
    print(*counts(found), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
