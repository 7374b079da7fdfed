"""Lists of questions and texts that the reader of search learns from.

python -m bench.reader_lists --talks talks.jsonl.gz --clones DIRECTORY --vocabularies DIRECTORY
    --save DIRECTORY

The talks are those of `bench.talks`. The clones may have two repositories more:

| repository | what it has | licence |
|---|---|---|
| google-research-datasets/dstc8-schema-guided-dialogue | chats with an assistant | CC BY-SA 4.0 |
| DRCKnowledgeTeam/DRCD, in simplified characters | questions about passages | CC BY-SA 3.0 |

A list has a question, and texts as search would show them to the reader: those that answer, others
that share its words, their neighbours and chance ones, of the same memory and of all others. What
people ask each other in a talk makes a list, too, and so does a statement: which texts answer them
is for a teacher to say. Nothing comes from the sets that search is measured by, nor from
`bench/data/strangers`. The vocabularies are the `tokenizer.json` of the teachers, as en.json and
zh.json.
"""

import argparse
import gzip
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.lives import in_haystack, read_lives
from kemem.search.reader import LONGEST, Reader, Shown
from kemem.text.passage import content_words, last_question, passage
from kemem.text.summary import sentences

ALIKE, ELSEWHERE, CHANCE = 14, 6, 3  # texts of a list that share words, here and in other memories
ASKED, STATED, OF_LIFE = 30, 10, 2  # questions and statements of a memory that make lists
LENGTHS = {"en": (16, 110), "zh": (6, 40)}  # characters of these
DIALOGUES, PER_MEMORY, FILES = 64, 8, 70  # of the chats with an assistant
COMMON = 400  # a word that one of so many texts has finds nothing elsewhere


words_of = lru_cache(maxsize=1 << 18)(content_words.__wrapped__)


class Told(NamedTuple):
    """A message."""

    speaker: str
    session: str
    text: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Messages, and questions with the places of their answers; of "-" nobody knows any."""

    name: str
    language: str
    told: Sequence[Told]
    asked: Sequence[tuple[str, frozenset[int]]]


class Vocabulary(Reader):
    """The tokens of a reader that has no weights yet."""

    def __init__(self, path: Path) -> None:
        self._places = json.loads(path.read_text("utf-8"))["model"]["vocab"]
        self._pieces = lru_cache(maxsize=1 << 17)(self._split)


def of_talks(path: Path) -> Iterator[Memory]:
    """The memories of a file of talks."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            user = json.loads(line)
            messages = [it for it in user["messages"] if it["content"].strip()]
            places = {it["message_id"]: at for at, it in enumerate(messages)}
            asked = []
            for query in user["queries"]:
                names = {name for group in query["evidence_groups"] for name in group}
                if gold := frozenset(places[it] for it in names if it in places):
                    asked.append((query["query"], gold))
            told = [Told(it.get("speaker") or "", it["session"], it["content"]) for it in messages]
            yield Memory(user["dataset"], user["lang"], told, asked)


def of_lives(chance: random.Random) -> Iterator[Memory]:
    """The memories of lives, alone and among sessions of others."""
    lives = read_lives()
    for sessions in (0, 10, 30):
        for life in lives:
            hidden = in_haystack(life, lives, sessions, chance)
            told = [Told("", it.session, it.content) for it in hidden.messages]
            asked = [(it.text, it.gold) for it in life.questions]
            yield Memory("lives", life.language, told, asked)


def of_assistants(clone: Path, chance: random.Random) -> Iterator[Memory]:
    """Chats with an assistant about things to do, some in each memory; nobody knows the answers."""
    paths = sorted(clone.glob("*/dialogues_*.json"))
    for path in chance.sample(paths, min(FILES, len(paths))):
        dialogues = json.loads(path.read_text("utf-8"))[:DIALOGUES]
        for start in range(0, len(dialogues), PER_MEMORY):
            told = [
                Told("", it["dialogue_id"], turn["utterance"])
                for it in dialogues[start : start + PER_MEMORY]
                for turn in it["turns"]
            ]
            yield Memory("assistant", "en", told, ())


def of_passages(clone: Path) -> Iterator[Memory]:
    """Questions about passages, whose sentences are the texts."""
    for path in sorted(clone.glob("DRCD_*.json")):
        for article in json.loads(path.read_text("utf-8"))["data"]:
            told, asked = list[Told](), list[tuple[str, frozenset[int]]]()
            for it in article["paragraphs"]:
                spans = [
                    match.span() for match in re.finditer(r"[^。！？\n]+[。！？\n]*", it["context"])
                ]
                for query in it["qas"]:
                    at = query["answers"][0]["answer_start"]
                    gold = {
                        len(told) + n for n, (start, end) in enumerate(spans) if start <= at < end
                    }
                    asked.append((query["question"], frozenset(gold)))
                told += [Told("", it["id"], it["context"][start:end]) for start, end in spans]
            yield Memory("passages", "zh", told, [it for it in asked if it[1]])


def queries(memory: Memory, chance: random.Random) -> Iterator[tuple[str, frozenset[int], int]]:
    """Questions with their answers; then what is asked and stated in the talk, with its place."""
    for question, gold in memory.asked:
        yield question, gold, -1
    least, most = LENGTHS[memory.language]
    asked, stated = list[tuple[str, int]](), list[tuple[str, int]]()
    for at, it in enumerate(memory.told):
        for sentence in sentences(it.text):
            if least <= len(sentence) <= most:
                kind = asked if sentence.endswith(("?", "？")) else stated
                kind.append((sentence.rstrip(".!。！"), at))
    for some, most in ((asked, ASKED), (stated, STATED)):
        count = OF_LIFE if memory.name == "lives" else min(most, len(memory.told) // 3)
        for sentence, at in chance.sample(some, min(count, len(some))):
            yield sentence, frozenset(), at


class Index:
    """Texts by their words."""

    def __init__(self, told: Sequence[Told], common: float) -> None:
        self.told, self._places = told, defaultdict[str, list[int]](list)
        self._common = common
        for at, it in enumerate(told):
            for word in words_of(f"{it.speaker} {it.text}"):
                self._places[word].append(at)

    def alike(self, text: str, count: int) -> list[int]:
        """Places of texts that share the rarest words with one."""
        scores, size = Counter[int](), len(self.told)
        for word in words_of(text):
            places = self._places.get(word, ())
            if 0 < len(places) <= self._common * size:
                for at in places:
                    scores[at] += math.log(1 + size / len(places))
        return [at for at, _ in scores.most_common(count)]


def lists(memories: Sequence[Memory], chance: random.Random) -> Iterator[dict[str, Any]]:
    """Lists of one language."""
    texts: dict[str, tuple[Told, str]] = {}
    for memory in memories:
        for at, it in enumerate(memory.told):
            texts.setdefault(it.text, (it, _before(memory.told, at)))
    everywhere = [*texts.values()]
    others = Index([it for it, _ in everywhere], 1 / COMMON)
    for number, memory in enumerate(memories):
        if number % 500 == 0:
            print(number, "of", len(memories), "memories", flush=True)
        here, told = Index(memory.told, 1.0), memory.told
        for question, gold, own in queries(memory, chance):
            words = words_of(question)
            places = [*sorted(gold), *here.alike(question, ALIKE)]
            places += [at + side for at in places[:4] for side in (-1, 1)]
            places += chance.sample(range(len(told)), min(CHANCE, len(told)))
            kept = [at for at in dict.fromkeys(places) if 0 <= at < len(told) and at != own]
            shown = [_shown(told[at], _before(told, at, own), words) for at in kept]
            if memory.name != "lives" or own >= 0:  # of a life, any other may tell the same
                more = others.alike(question, 4 * ELSEWHERE)
                for at in chance.sample(more, min(ELSEWHERE, len(more))):
                    one = _shown(*everywhere[at], words)
                    if one not in shown and everywhere[at][0].text not in question:
                        shown.append(one)
            if len(shown) > 3:
                yield {"question": question, "texts": shown, "answers": len(gold)}


def _before(told: Sequence[Told], at: int, own: int = -1) -> str:
    """What was said just before, in the same session."""
    known = at > 0 and at - 1 != own and told[at - 1].session == told[at].session
    return told[at - 1].text if known else ""


def _shown(it: Told, before: str, words: frozenset[str]) -> Shown:
    """A text as `kemem.search.reader` shows it."""
    return Shown(it.speaker.strip().lower(), last_question(before), passage(it.text, words))


def save(path: Path, some: Sequence[Mapping[str, Any]], vocabulary: Vocabulary) -> None:
    """Lists as arrays: tokens, kinds and lengths of pairs; where lists begin, and their answers."""
    pairs = [vocabulary.row(it["question"], text) for it in some for text in it["texts"]]
    ids, kinds = (
        np.zeros((len(pairs), LONGEST), np.uint16),
        np.zeros((len(pairs), LONGEST), np.uint8),
    )
    for at, (tokens, sides) in enumerate(pairs):
        ids[at, : len(tokens)], kinds[at, : len(sides)] = tokens, sides
    sizes = np.array([len(it["texts"]) for it in some], np.int64)
    starts = np.cumsum(sizes) - sizes
    answers = np.array([it["answers"] for it in some], np.int16)
    np.savez_compressed(path, ids=ids, kinds=kinds, starts=starts, sizes=sizes, answers=answers)
    print(path.name, len(some), "lists,", len(pairs), "pairs")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--talks", "--clones", "--vocabularies", "--save"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--language", choices=[*LENGTHS], nargs="+", default=[*LENGTHS])
    given = parser.parse_args()
    chance = random.Random(7)
    memories = [*of_talks(given.talks), *of_lives(chance)]
    memories += of_assistants(given.clones / "dstc8-schema-guided-dialogue", chance)
    memories += of_passages(given.clones / "DRCD")
    for language in given.language:
        some = [it for it in memories if it.language == language]
        vocabulary = Vocabulary(given.vocabularies / f"{language}.json")
        save(given.save / f"{language}.npz", [*lists(some, chance)], vocabulary)


if __name__ == "__main__":
    main()
