"""Names of persons, places, organisations and works in Chinese and English text.

Chinese by a tagger and a few patterns, English by capitals and what stands around them. The tables
are in `names.rules`. A pet counts as a person.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple, cast

from kemem.facts.tagger import Word, words
from kemem.text.lexicon import Lexicon, load

Kind = Literal["person", "place", "organisation", "work"]

_TAGS: dict[str, Kind] = {"PER": "person", "LOC": "place", "ns": "place"}
_TAGS |= {"ORG": "organisation", "nt": "organisation", "nw": "work"}
_KNOWN: dict[str, Kind] = {"FIRST": "person", "PLACES": "place", "ORGANISATIONS": "organisation"}
# The word of a name that tells its kind: a table, the place of the word in the name, the kind.
_HEADS: tuple[tuple[str, int, Kind], ...] = (
    ("TITLES", 0, "person"),
    ("ORGANISATION_HEADS", -1, "organisation"),
    ("ORGANISATION_HEADS", 0, "organisation"),
    ("PLACE_HEADS", -1, "place"),
    ("PLACE_OPENINGS", 0, "place"),
)
_HAN = re.compile(r"[\u3400-\u9fff]")
_NOUNS = ("n", "nz", "PER", "nr", "a", "an", "vn", "xc", "m")
_WEEKDAY = re.compile(r"周[一二三四五六日末]")
_CLAUSE = re.compile(r"[\u3400-\u9fff·]{1,4}(?=[，。！？；、,.!?;”\"」\s（(]|$)")
_INSIDE = re.compile(r"[在住到]$|搬去$|来自$")
_AT_SOMEBODY = re.compile(r"[家那这身眼面旁的和跟与]")
_COMING = re.compile(r"[来來](?=...)")
_TITLE = re.compile(r"《([^《》\n]{1,60})》")
_LETTER = "A-Za-z0-9À-ÖØ-öø-ɏ"  # not \w, which takes in Chinese
_CAPITAL = (
    rf"[A-ZÀ-ÖØ-ÞĀ-Ž](?:[{_LETTER}]|[-&](?=[{_LETTER}])|['’](?!(?:s|m|re|ve|ll|d)\b)(?=[{_LETTER}])"
    r"|['’]s(?= (?:College|Hospital|School|Church|Cross|Academy|Park|Square|University)\b))*"
)
_JOINT = (
    r"(?:(?<=\b[A-Z])\.|(?<=\b(?:St|Dr|Mr|Ms|Mt))\.|(?<=\bMrs)\.|(?<=\bProf)\.)? "
    r"(?:(?:of(?: the)?|de(?: la)?|da|di|del|dos|der|van(?: der)?|von|el|al|bin|&) )?"
)
_SPAN = re.compile(rf"(?<![{_LETTER}_.@/#'’-]){_CAPITAL}(?:{_JOINT}{_CAPITAL})*")
_WORD = re.compile(r"\S+")
_OPENING = re.compile(r"(?:^|[.!?:;…\n。！？；])[\s\"“”'‘’(*•>-]*$")
_BEFORE, _AFTER = 60, 40  # characters that tell what a name is of
_LIST = (", ", " and ", ", and ", " & ", " or ", "、", "和", "跟")
_DIGIT = re.compile(r"\d")
_BREAK = "\n"
_MARK = "\ue001"  # stands for the name in its context


class Name(NamedTuple):
    """A name, where it stands, and what it is of.  ("北京", 3, 5, "place")"""

    text: str
    start: int
    end: int
    kind: Kind


class _Rule(NamedTuple):
    kind: Kind
    opening: bool  # also for the word that opens a sentence
    pattern: re.Pattern[str]


class _Tables(NamedTuple):
    lexicon: Lexicon
    known: dict[str, Kind]
    rules: list[_Rule]


def names(text: str) -> list[Name]:
    """The names in a text, in order and without overlap.

    names("我哥赵立冬住在 Berlin") -> [("赵立冬", 2, 5, "person"), ("Berlin", 8, 14, "place")]
    """
    tagged = words(text) if _HAN.search(text) else []
    titles = (Name(it[1], *it.span(1), "work") for it in _TITLE.finditer(text))
    candidates = [*titles, *_chinese(text, tagged), *_latin(text, {it.start: it for it in tagged})]
    hits: list[Name] = []
    for name in sorted(candidates, key=lambda it: (it.start, -it.end)):
        if not hits or name.start >= hits[-1].end:
            hits.append(name)
    return hits


def _chinese(text: str, tagged: Sequence[Word]) -> Iterator[Name]:
    """Names of Chinese characters: what the tagger says, joined and amended."""
    pattern, at = _tables().lexicon.pattern, 0
    while at < len(tagged):
        word, after = tagged[at], at + 1
        start, end, kind = word.start, word.end, _TAGS.get(word.tag)
        if not _HAN.search(word.text) or _WEEKDAY.match(word.text):
            kind = None
        elif word.tag in _NOUNS and pattern("CALLED").search(text, max(0, start - 12), start):
            kind, end = "person", _clause_end(text, word)
        elif word.tag in (*_NOUNS, "v") and pattern("NICKNAME").fullmatch(word.text):
            kind = "person"
        elif kind == "person":
            start, end, kind = _amended(text, word)
        elif kind == "place":
            after, kind = _joined(tagged, at)
            start, end = start + bool(_COMING.match(word.text)), tagged[after - 1].end
        elif kind is None and word.tag in _NOUNS:
            end, kind = _compound(word, text[start - 1 : start] == "在")
        if kind and end - start > 1 and not word.text.endswith("族"):
            yield Name(text[start:end], start, end, kind)
        at = after
    starts = {it.start for it in tagged}
    for name, of in (("TITLED", "person"), ("CHINESE_FIRMS", "organisation")) if tagged else ():
        for match in pattern(name).finditer(text):
            if match.start() in starts:  # not 感谢老师
                yield Name(match[0], *match.span(), cast(Kind, of))


def _clause_end(text: str, word: Word) -> int:
    """Where a name after 叫 ends: a short rest of the clause belongs to it.  叫小 + 米粒"""
    rest = _CLAUSE.match(text, word.start)
    return rest.end() if rest else word.end


def _amended(text: str, word: Word) -> tuple[int, int, Kind]:
    """A name of a person without what the tagger took in, or as the place that it is."""
    if len(word.text) == 3 and _tables().lexicon.pattern("NICKNAME").match(word.text):
        return word.start, word.end - 1, "person"  # 老张约
    if word.text.startswith("喺"):
        return word.start + 1, word.end, "place"
    inside = _INSIDE.search(text, max(0, word.start - 2), word.start)
    is_place = inside and not _AT_SOMEBODY.match(text, word.end)
    return word.start, word.end, "place" if is_place else "person"


def _compound(word: Word, inside: bool) -> tuple[int, Kind | None]:
    """The name in a noun: of the place whose people it means, or of an office.  重庆人, 财政局"""
    if len(word.text) > 2 and word.text.endswith("人"):
        tags = [it.tag for it in words(word.text[:-1])]
        return (word.end - 1, "place") if tags in (["LOC"], ["ns"]) else (word.end, None)
    is_office = _tables().lexicon.pattern("ORGANISATION_ENDS").search(word.text)
    return word.end, "organisation" if is_office and (len(word.text) > 3 or inside) else None


def _joined(tagged: Sequence[Word], at: int) -> tuple[int, Kind]:
    """Where a name that opens with a place ends, and its kind.  烟台 + 海关, 山东 + 菏泽"""
    ends = _tables().lexicon.pattern("ORGANISATION_ENDS")
    places = after = at + 1
    while after < min(at + 4, len(tagged)) and tagged[after].start == tagged[after - 1].end:
        tag = tagged[after].tag
        if tag not in ("n", "nz", "ORG", "nt", "LOC", "ns", "vn"):
            break
        after += 1
        if ends.search(tagged[after - 1].text):
            return after, "organisation"
        if tag in ("LOC", "ns") and places == after - 1:
            places = after
    return places, "place"


def _latin(text: str, tagged: dict[int, Word]) -> Iterator[Name]:
    """Names of Latin letters: words with a capital, by what stands around them."""
    last: Name | None = None
    for span in _SPAN.finditer(text):
        for start, end in _parts(text, span):
            kind = _kind(text, start, end, last, tagged)
            if kind:
                last = Name(text[start:end], start, end, kind)
                yield last


def _parts(text: str, span: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The names in a row of words with capitals: words that are no names divide it."""
    tables = _tables().lexicon.tables
    start = end = -1
    for word in _WORD.finditer(text, *span.span()):
        plain = word[0].rstrip(".")
        if not plain[:1].isupper():  # "of", "de la"
            continue
        low = plain.lower()
        opens = word.end() < span.end() and (
            low in tables["TITLES"] or low in tables["PLACE_OPENINGS"]
        )
        closes = start >= 0 and low in tables["ORGANISATION_HEADS"]
        if opens or closes or low not in tables["NO_NAMES"]:
            start, end = (word.start() if start < 0 else start), word.start() + len(plain)
        elif start >= 0:
            yield start, end
            start = -1
    if start >= 0:
        yield start, end


def _kind(
    text: str, start: int, end: int, last: Name | None, tagged: dict[int, Word]
) -> Kind | None:
    """What a name of Latin letters is of, or None where nothing tells."""
    tables, name = _tables(), text[start:end]
    parts = [it.rstrip(".") for it in name.lower().split()]
    single = len(parts) == 1
    if not single:
        for heads, place, kind in _HEADS:
            if parts[place] in tables.lexicon.tables[heads]:
                return kind
    if len(parts[-1]) < 2 or (not single and (name.isupper() or _DIGIT.search(name))):
        return None  # Column C, NEW OPENING TIMES, Galaxy A14
    if known := tables.known.get(parts[0] if len(parts) == 2 else name.lower()):
        return known
    before, after = text[max(0, start - _BEFORE) : start], text[end : end + _AFTER]
    opening = single and bool(_OPENING.search(before)) and not _HAN.match(after)
    if last and text[last.end : start] in _LIST and not after.startswith(" in "):
        return last.kind
    context = f"{before.rpartition(_BREAK)[2]}{_MARK}{after.partition(_BREAK)[0]}"
    for rule in tables.rules:
        if (rule.opening or not opening) and rule.pattern.search(context):
            return rule.kind if rule.kind == "organisation" or not name.isupper() else None
    word = tagged.get(start)
    if word and word.end == end and word.tag in ("PER", "LOC", "ORG") and not name.isupper():
        return _TAGS[word.tag]
    return None


@cache
def _tables() -> _Tables:
    lexicon = load(__package__, "names.rules")
    known = {word: kind for table, kind in _KNOWN.items() for word in lexicon.tables[table]}
    rules = [
        _Rule(
            cast(Kind, fields[0]),
            len(fields) > 1,
            lexicon.compile(line, lexicon.expand(line).replace("@", _MARK)),
        )
        for heading, lines in lexicon.rules
        for fields in [heading.text.split()]
        for line in lines
    ]
    return _Tables(lexicon, known, rules)
