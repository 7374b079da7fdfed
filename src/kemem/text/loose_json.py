"""JSON as models write it: fenced, amid prose, cut short, with quotes that are not escaped."""

import json
import re
from contextlib import suppress
from typing import Any

MAX_CHARACTERS = 200_000  # an answer is read no further
_DEEPEST = 50

_CLOSERS = {'"': '"', "'": "'", "“": "”"}
_QUOTES = "".join(_CLOSERS)
_KEY_ENDS = {end: re.compile(rf"\\.|{end}(?=\s*[:：])", re.DOTALL) for end in _CLOSERS.values()}
# A quote ends a value only where structure follows; any other was not escaped: "他说"好", 走了"
_ITEM = rf"[{_QUOTES}{{}}\[\]\d-]|true|false|null|$"
_NEXT_KEY = rf"[{_QUOTES}]\w{{1,40}}+[{''.join(_CLOSERS.values())}]\s*+[:：]"
_AFTER = rf"\s*+(?:$|[}}\]]|,\s*+(?:{_ITEM})|{_NEXT_KEY})"
_VALUE_ENDS = {end: re.compile(rf"\\.|{end}(?={_AFTER})", re.DOTALL) for end in _KEY_ENDS}
_BARE_KEY = re.compile(rf"[^\s:：,}}\]{_QUOTES}]*")
_BARE_VALUE = re.compile(r"[^,}\]\n]*")
_INNER_QUOTE = re.compile(r'(\\.)|"', re.DOTALL)
_BLANKS = re.compile(r"\s*")
_SEPARATORS = re.compile(r"(?:[\s,]|//[^\n]*)*")
_START = re.compile(rf"\{{\s*+(?:[{_QUOTES}{{}}]|\w++\s*+:)|\[\s*+[{_QUOTES}{{\[\]]")
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)  # NaN is no value
_CUT = object()  # a value that the end of the text has cut: half a sentence is not a fact


def parse_json(text: str, *, whole: bool = False) -> Any:
    """The JSON in a model's answer, or ValueError.  'Sure: ```{"a": [1, 2]```' -> {"a": [1, 2]}

    Of a list that the end of the text has cut, only `whole` objects are kept, if that is wanted.
    """
    text = text[:MAX_CHARACTERS].strip().removeprefix("\ufeff")
    try:
        value = _strict(text)
    except ValueError:
        return _within(text.rpartition("</think>")[2], whole)
    # A text was encoded twice.
    return parse_json(value, whole=whole) if isinstance(value, str) else value


def _strict(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the answer is nested too deep") from None


def _within(text: str, whole: bool) -> Any:
    """The largest whole value somewhere in the text, else what can be read of a broken one."""
    start = _START.search(text)
    if start is None:
        raise ValueError("the answer holds no JSON")
    candidates = []
    for part in (text, *text.split("```")[1:8:2]):
        if match := _START.search(part):
            end = part.rfind("}" if match[0][0] == "{" else "]") + 1
            candidates.append(part[match.start() : end])
    for candidate in sorted(candidates, key=len, reverse=True):
        with suppress(ValueError):
            return _strict(candidate)
    return _Reader(text.removesuffix("```").rstrip(), start.start(), whole).value()


class _Reader:
    """Reads on from a place, never backwards, so that its time is linear in the text."""

    def __init__(self, text: str, at: int, whole: bool) -> None:
        self._text = text
        self._whole = whole
        self._at = at
        self._is_cut = False  # the text has ended within what was read

    def value(self, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ValueError("the answer is nested too deep")
        self._skip(_BLANKS)
        character = self._character()
        if character in ("{", "["):
            self._at += 1
            return self._object(depth) if character == "{" else self._array(depth)
        if closer := _CLOSERS.get(character):
            return self._string(_VALUE_ENDS[closer])
        word = self._skip(_BARE_VALUE).strip()
        if not word or not self._character():
            return _CUT
        if word.lower() in _WORDS:
            return _WORDS[word.lower()]
        if _NUMBER.fullmatch(word):
            return float(word) if set(word) & set(".eE") else int(word)
        return word

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._closed("}"):
            start, closer = self._at, _CLOSERS.get(self._character())
            key = self._string(_KEY_ENDS[closer]) if closer else self._skip(_BARE_KEY)
            self._skip(_BLANKS)
            if self._character() in (":", "："):
                self._at += 1
                value = self.value(depth + 1)
                if value is not _CUT and isinstance(key, str):
                    members[key] = value
            self._at = max(self._at, start + 1)
        return members

    def _array(self, depth: int) -> list[Any]:
        items = []
        while not self._closed("]"):
            item = self.value(depth + 1)
            is_half = self._whole and self._is_cut and isinstance(item, dict)
            items.append(_CUT if is_half else item)
        return [item for item in items if item is not _CUT]

    def _closed(self, bracket: str) -> bool:
        """Whether the end is reached: the right bracket, another one left to whom it closes."""
        self._skip(_SEPARATORS)
        character = self._character()
        self._at += character == bracket
        self._is_cut = self._is_cut or not character
        return character in ("", "}", "]")

    def _string(self, ends: re.Pattern[str]) -> Any:
        start = self._at + 1
        end = next((it for it in ends.finditer(self._text, start) if it[0][0] != "\\"), None)
        if end is None:
            self._at = len(self._text)
            return _CUT
        self._at = end.end()
        raw = self._text[start : end.start()]
        try:
            return _strict(f'"{_INNER_QUOTE.sub(_escaped, raw)}"')
        except ValueError:  # an escape that JSON does not know
            return raw

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match[0] if match else ""

    def _character(self) -> str:
        return self._text[self._at : self._at + 1]


def _escaped(quote: re.Match[str]) -> str:
    return "'" if quote[1] == "\\'" else quote[1] or '\\"'
