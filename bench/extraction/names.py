"""Precision and recall of names, and their speed: `python -m bench.extraction.names [turns.txt …]`.

`names_zh.txt` and `names_en.txt` are sentences with their names marked: [北京:l] is a place; p is a
person, o an organisation, w a work, x counts neither way. The author of the rules wrote them, and
then mended what they showed: before, precision and recall were .96/.92 and .95/.95. Of 110 names a
language drawn from talk by others, read one by one, about .88 (zh) and .84 (en) had the right
borders and kind. A name is right when its borders are; its kind is counted apart.

Files of turns that are named, one a line, may end in "=> user lives_in Leeds; user wife Ann": then
it is counted how many of these objects were found, which says nothing of precision.
"""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.extraction.score import Score
from kemem.facts.names import Name, names

HERE = Path(__file__).parent
KINDS = {"p": "person", "l": "place", "o": "organisation", "w": "work", "x": ""}
MARKED = re.compile(r"\[([^\[\]]+):([plowx])\]")
RELATIONS = {"lives_in": "place", "from": "place", "works_at": "organisation"}
RELATIONS |= {"studies_at": "organisation"}
OTHERS = {"works_as", "studies", "has_pet", "allergic_to", "speaks", "likes", "dislikes", "born_on"}
OTHERS |= {"drives"}  # any other relation is that to a person


def read(line: str) -> tuple[str, list[Name]]:
    """A sentence and the names that are marked in it."""
    text, marks, at = "", [], 0
    for match in MARKED.finditer(line):
        text += line[at : match.start()]
        name, at = match[1].strip("《》"), match.end()
        start = len(text) + match[1].index(name)
        marks.append(Name(name, start, start + len(name), KINDS[match[2]]))  # type: ignore[arg-type]
        text += match[1]
    return text + line[at:], marks


def judge(lines: list[str]) -> tuple[Score, int, list[str]]:
    """The score by borders, how many of the right ones have the right kind, and the faults."""
    score, kinds, faults = Score(), 0, []
    for line in lines:
        text, marks = read(line)
        expected = {(it.start, it.end): it.kind for it in marks if it.kind}
        free = [(it.start, it.end) for it in marks if not it.kind]
        hits = {
            (it.start, it.end): it.kind
            for it in names(text)
            if not any(start < it.end and it.start < end for start, end in free)
        }
        right = hits.keys() & expected.keys()
        score.right += len(right)
        score.wrong += len(hits) - len(right)
        score.missed += len(expected) - len(right)
        kinds += sum(hits[it] == expected[it] for it in right)
        if hits != expected:
            faults.append(f"{line}\n    {[(text[a:b], kind) for (a, b), kind in hits.items()]}")
    return score, kinds, faults


def objects(line: str) -> Iterator[tuple[str, str, str]]:
    """Text, name and kind of each relation of a turn whose object is a name in it."""
    head, _, triples = line.rpartition("=>")
    text = head.partition("|")[2].translate({ord(it): None for it in "{}"}).strip()
    for triple in triples.split(";") if head else ():
        _, relation, name = [*triple.split(maxsplit=2), "", "", ""][:3]
        if (name := name.strip()) and name in text and relation not in OTHERS:
            yield text, name, RELATIONS.get(relation, "person")


def milliseconds(text: str, runs: int = 300) -> float:
    """CPU time of one call when warm: the median."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        names(text)
        times.append(time.process_time() - begin)
    return sorted(times)[runs // 2] * 1000


def main() -> None:
    verbose = "--verbose" in sys.argv
    print(f"{'':28}{'precision':>9}{'recall':>9}{'right':>7}{'wrong':>7}{'missed':>7}   kind right")
    for language in ("zh", "en"):
        lines = (HERE / f"names_{language}.txt").read_text("utf-8").splitlines()
        score, kinds, faults = judge(lines)
        print(f"{language} ({len(lines)} sentences)".ljust(28) + f"{score}   {kinds}")
        print("\n".join(faults) if verbose else "", end="\n" if verbose else "")
    for path in [Path(it) for it in sys.argv[1:] if it != "--verbose"]:
        pairs = [pair for line in path.read_text("utf-8").splitlines() for pair in objects(line)]
        found = [[it.kind for it in names(text) if it.text == name] for text, name, _ in pairs]
        typed = sum(kind in kinds for (_, _, kind), kinds in zip(pairs, found, strict=True))
        share = sum(map(bool, found)) / max(1, len(pairs))
        print(
            f"{path.name:28}{'':9}{share:9.3f}{sum(map(bool, found)):7} of {len(pairs)}   {typed}"
        )
        for (text, name, kind), kinds in zip(pairs, found, strict=True) if verbose else ():
            if kind not in kinds:
                hits = [(it.text, it.kind) for it in names(text)]
                print(f"    {name} ({kind}): {text}\n        {hits}")
    chinese = "我妈叫王秀英，住在绵阳老家，我在腾讯上班，周末常去北京大学看姐姐赵立冬和孩子。"
    english = (
        "My brother Emeka lives in Houston, so what time is it there when my wife Klara calls?"
    )
    for text in (chinese, english):
        print(f"{len(text)} characters: {milliseconds(text):.2f} ms")


if __name__ == "__main__":
    main()
