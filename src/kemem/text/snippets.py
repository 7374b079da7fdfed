"""Short extracts of a message with its matches marked."""

from collections.abc import Iterable

from kemem.text.query import Phrase, Query
from kemem.text.segment import Token, tokens

OPEN, CLOSE = "<mark>", "</mark>"
_MARGIN = 40  # characters of context on each side
_MOST = 3

Span = tuple[int, int]


def snippets(content: str, query: Query) -> tuple[str, ...]:
    """Where a message answers a query.  "我不吃辣" ~ "不吃辣" -> ("我<mark>不吃辣</mark>",)"""
    matches = _merge(_matches(list(tokens(content)), query.units))
    windows: list[list[Span]] = []
    for match in matches:
        if windows and match[0] - windows[-1][-1][1] <= _MARGIN:
            windows[-1].append(match)
        else:
            windows.append([match])
    return tuple(_extract(content, window) for window in windows[:_MOST])


def matched_phrases(content: str, query: Query) -> tuple[str, ...]:
    """The query's phrases that a message contains, longest first, as index tokens show them."""
    found = [token.text for token in tokens(content)]
    held = [unit for unit in query.units if any(_starts(found, unit))]
    texts = ["".join(u.tokens) if not u.tokens[0].isascii() else " ".join(u.tokens) for u in held]
    longest = sorted(dict.fromkeys(texts), key=len, reverse=True)
    return tuple(
        text for i, text in enumerate(longest) if not any(text in other for other in longest[:i])
    )


def _matches(found: list[Token], units: Iterable[Phrase]) -> list[Span]:
    texts = [token.text for token in found]
    return [
        (found[start].start, found[start + len(unit.tokens) - 1].end)
        for unit in units
        for start in _starts(texts, unit)
    ]


def _starts(texts: list[str], unit: Phrase) -> Iterable[int]:
    size = len(unit.tokens)
    first, last = unit.tokens[0], unit.tokens[-1]
    for start in range(len(texts) - size + 1):
        end = texts[start + size - 1]
        if (
            (size == 1 or texts[start] == first)
            and (end == last or (unit.prefix and end.startswith(last)))
            and (size < 3 or tuple(texts[start : start + size - 1]) == unit.tokens[:-1])
        ):
            yield start


def _merge(spans: list[Span]) -> list[Span]:
    """Overlapping and touching spans as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


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
