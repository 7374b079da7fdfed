"""Where a text answers a query: short extracts with the matches marked."""

from collections import defaultdict
from dataclasses import dataclass

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
    for start, end in spans:
        near = windows and start - windows[-1][-1][1] <= _MARGIN
        if near and end - windows[-1][0][0] <= _WIDEST:
            windows[-1].append((start, end))
        else:
            windows.append([(start, end)])
    snippets = tuple(_extract(content, window) for window in windows[:_MOST])
    return Matches(snippets, tuple(dict.fromkeys(content[start:end] for start, end in spans)))


def _find(text_tokens: list[Token], units: tuple[Phrase, ...]) -> list[Span]:
    """Spans of the text that hold a unit."""
    texts = [token.text for token in text_tokens]
    places: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        places[text].append(place)
    spans = []
    for unit in units:
        (*head, last), size = unit.tokens, len(unit.tokens)
        starts = places.get(unit.tokens[0], [])
        if unit.prefix and not head:
            starts = [at for text in places if text.startswith(last) for at in places[text]]
        for at in starts:
            *before, text = texts[at : at + size]
            if before == head and (text == last or (unit.prefix and text.startswith(last))):
                spans.append((text_tokens[at].start, text_tokens[at + size - 1].end))
    return spans


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


def _extract(content: str, window: list[Span]) -> str:
    at = start = max(window[0][0] - _MARGIN, 0)
    end = min(window[-1][1] + _MARGIN, len(content))
    pieces = ["…" if start else ""]
    for opens, closes in window:
        pieces += [content[at:opens], OPEN, content[opens:closes], CLOSE]
        at = closes
    return "".join([*pieces, content[at:end], "…" if end < len(content) else ""])
