"""Where a text answers a query: short extracts with the matches marked."""

from collections import defaultdict
from dataclasses import dataclass
from operator import eq

from kemem.text.query import Phrase, Query
from kemem.text.segment import Token, tokens

OPEN, CLOSE = "<mark>", "</mark>"
_MARGIN = 40  # characters of context on each side
_WIDEST = 200  # characters from the first match of a snippet to its last
_MOST = 3

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Matches:
    """The places of a text that match, and the terms that do, as the text spells them."""

    snippets: tuple[str, ...]
    terms: tuple[str, ...]


def matches(content: str, query: Query) -> Matches:
    """Find a query in a text.  "我不吃辣" ~ "不吃辣" -> snippet "我<mark>不吃辣</mark>" """
    spans = _merge(_find(list(tokens(content)), query.units))
    windows: list[list[Span]] = []
    for span in spans:
        if windows and _near(span, windows[-1]):
            windows[-1].append(span)
        else:
            windows.append([span])
    return Matches(
        snippets=tuple(_extract(content, window) for window in windows[:_MOST]),
        terms=tuple(dict.fromkeys(content[start:end] for start, end in spans)),
    )


def _find(text_tokens: list[Token], units: tuple[Phrase, ...]) -> list[Span]:
    """Spans of the text that hold a unit."""
    texts = [token.text for token in text_tokens]
    places: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        places[text].append(place)
    spans = []
    for unit in units:
        if unit.prefix and len(unit.tokens) == 1:
            longer = (text for text in places if text.startswith(unit.tokens[0]))
            starts = [at for text in longer for at in places[text]]
        else:
            starts = places.get(unit.tokens[0], [])
        size = len(unit.tokens)
        spans += [
            (text_tokens[at].start, text_tokens[at + size - 1].end)
            for at in starts
            if size == 1 or _holds(texts[at : at + size], unit)
        ]
    return spans


def _holds(texts: list[str], unit: Phrase) -> bool:
    if len(texts) != len(unit.tokens) or not texts[-1].startswith(unit.tokens[-1]):
        return False
    return all(map(eq, texts, unit.tokens if not unit.prefix else unit.tokens[:-1]))


def _merge(spans: list[Span]) -> list[Span]:
    """Overlapping and touching spans as one, cut where that would become long."""
    merged: list[Span] = []
    reached = 0
    for start, whole in sorted(spans):
        end = min(whole, start + _WIDEST)
        if merged and start <= reached and end - merged[-1][0] <= _WIDEST:
            merged[-1] = (merged[-1][0], max(end, reached))
        elif end > reached:
            merged.append((max(start, reached), end))
        reached = merged[-1][1]
    return merged


def _near(span: Span, window: list[Span]) -> bool:
    return span[0] - window[-1][1] <= _MARGIN and span[1] - window[0][0] <= _WIDEST


def _extract(content: str, window: list[Span]) -> str:
    start = max(window[0][0] - _MARGIN, 0)
    end = min(window[-1][1] + _MARGIN, len(content))
    pieces = ["…" if start else ""]
    at = start
    for match_start, match_end in window:
        pieces += [content[at:match_start], OPEN, content[match_start:match_end], CLOSE]
        at = match_end
    pieces += [content[at:end], "…" if end < len(content) else ""]
    return "".join(pieces)
