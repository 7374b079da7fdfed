"""Tool calls that a model writes into its text: detected, hidden and parsed, whatever the form."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from kemem.text.leaks import bare
from kemem.text.leaks.forms import DSML, FORMS, read_name, skip_closers
from kemem.text.leaks.parsing import (
    BARS,
    Block,
    Buffer,
    LeakedCall,
    MarkerSet,
    Steps,
    UntypedText,
    tool_name,
)
from kemem.text.loose_json import MAX_CHARACTERS

__all__ = ["FilteredText", "Leak", "LeakedCall", "StreamGuard", "UntypedText", "filter_text"]

MAX_BLOCK = MAX_CHARACTERS  # of a block: longer JSON would be read in part
_READERS = {**FORMS, **bare.FORMS}
_OPENERS = MarkerSet(*_READERS)
_LEAST_NAME = 3  # letters of a tool's name where a text is cut in it
_CANDIDATE = re.compile(rf"`|{_OPENERS.start.pattern}", re.IGNORECASE)
_TICKS = re.compile("`*+")
_DSML = MarkerSet(*DSML)
_DSML_PREFIX = re.compile(rf"[<＜][\s/]*+(?:[{BARS[1:]}]|[{BARS}]++[\s/{BARS}]*+D)", re.IGNORECASE)
_CALL_PREFIX = re.compile(r"\s*+(?:[\[{][\[{\s]*+[\"'“]?\w*+[\"'”]?\s*+|[<＜][^<>/][^<>]*+)\Z")
_WORD = re.compile(r"(?:\A\s*+|[>\].:=\"'“(\[])([\w-]++)")  # directly behind markup


@dataclass(frozen=True, slots=True)
class Leak:
    """Markup that was hidden, with the calls in it."""

    form: str  # "dsml", "hermes", "mistral", …
    calls: tuple[LeakedCall, ...]  # empty: it could not be read
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class FilteredText:
    """What may be shown now, and the leaks that have ended."""

    text: str
    leaks: tuple[Leak, ...]


class StreamGuard:
    """Filters streamed text: returns it without leaked calls, however it is split into pieces.

    >>> guard = StreamGuard(tools=["recall_memory"])
    >>> guard.feed('好的。<tool_call>{"name": "recall_memory", "arg').text
    '好的。'
    >>> guard.feed('uments": {"query": "成都"}}</tool_call>').text + guard.close().text
    ''
    """

    def __init__(self, tools: Collection[str] = ()) -> None:
        self._tools = frozenset(tools)
        self._begin()

    def _begin(self) -> None:
        self._buffer = Buffer()
        self._output = _Output()
        self._fence = self._span = 0  # backticks of the Markdown code that is open
        self._example_end = 0  # up to there calls are an example in code
        self._steps = self._scan()

    def feed(self, piece: str) -> FilteredText:
        """Text that is safe to show now, and leaks that have ended."""
        self._buffer.append(piece)
        next(self._steps)
        return self._output.take()

    def close(self) -> FilteredText:
        """The rest, at the end of the text; what is fed next is a new text."""
        self._buffer.closed = True
        for _ in self._steps:
            pass
        self._output.end()
        shown = self._output.take()
        self._begin()
        return shown

    def _scan(self) -> Steps[None]:
        buffer, at = self._buffer, 0
        while True:
            match = _CANDIDATE.search(buffer.text, at)
            self._show(buffer.text[at : match.start() if match else len(buffer.text)])
            if match:
                at = yield from self._decide(match.start())
            elif buffer.closed:
                return
            else:
                at = len(buffer.text)
                yield
            if at * 2 > len(buffer.text):  # not each time: the rest is copied
                buffer.drop(at)
                at, self._example_end = 0, self._example_end - at

    def _decide(self, start: int) -> Steps[int]:
        """Hide a block that begins here, or show a character; returns where to continue."""
        buffer, ticks = self._buffer, 0
        if buffer.text[start] == "`":
            ticks = (yield from buffer.skip(_TICKS, start)) - start
        block = (yield from self._block(start)) if ticks in (0, 3) else None
        if block and self._is_example(block):
            self._example_end, block = block.end, None
        if block:
            end = yield from skip_closers(buffer, block.end)
            self._output.hide(Leak(block.form, block.calls, buffer.text[start:end]))
            return end
        if self._fence:
            self._fence = 0 if ticks >= self._fence else self._fence
        elif ticks >= 3:
            self._fence, self._span = ticks, 0
        elif ticks:
            self._span = 0 if ticks == self._span else self._span or ticks
        end = start + (ticks or 1)
        self._show(buffer.text[start:end])
        return end

    def _block(self, start: int) -> Steps[Block | None]:
        buffer = self._buffer
        marker, at = yield from buffer.marker_at(start, _OPENERS)
        if not marker:
            is_cut = _DSML_PREFIX.match(buffer.text, start) and buffer.ends_in_marker(start, _DSML)
            return Block("dsml", buffer.end, ()) if is_cut else None
        if start < self._example_end and marker not in DSML:
            return None
        if self._fence and marker in bare.FENCED:  # it ends the fence
            return None
        form, reader = _READERS[marker]
        buffer.starved = False
        buffer.set_limit(start + MAX_BLOCK)
        if marker in bare.NAMING and not (yield from self._names_tool(at)):
            buffer.set_limit(None)
            return None
        block = yield from reader(buffer, form, start, at)
        is_full = buffer.starved and buffer.end == buffer.limit
        buffer.set_limit(None)
        if block and is_full:
            return Block(block.form, start + MAX_BLOCK, ())
        if not block and buffer.starved and buffer.closed and self._is_cut_call(at):
            return Block(form, buffer.end, ())
        return block

    def _names_tool(self, at: int) -> Steps[bool]:
        """Whether the name of a known tool comes next, or what a cut has left of one."""
        name, end = yield from read_name(self._buffer, at)
        is_cut = end == self._buffer.end
        return tool_name(name) in self._tools or (is_cut and self._may_become_tool(name))

    def _may_become_tool(self, name: str) -> bool:
        return len(name) >= _LEAST_NAME and any(it.startswith(name) for it in self._tools)

    def _is_cut_call(self, at: int) -> bool:
        """Whether the text ends in the beginning of a call, which may name a known tool."""
        rest = self._buffer.text[at:]
        if self._fence or self._span:
            return False
        words = _WORD.findall(rest)
        if bool(_CALL_PREFIX.match(rest)) or not self._tools.isdisjoint(words):
            return True
        return any(
            len(it) >= _LEAST_NAME and tool.startswith(it)
            for it in words[:1]
            for tool in self._tools
        )

    def _is_example(self, block: Block) -> bool:
        """Whether the text only quotes a call, as an example."""
        if block.form == "dsml" or (block.certain and not (self._fence or self._span)):
            return False
        return not any(call.name in self._tools for call in block.calls)

    def _show(self, text: str) -> None:
        if "\n" in text:
            self._span = 0  # code within a line ends with it
        self._output.show(text)


class _Output:
    """The text to show and hidden leaks; blanks wait for a word, and go with leaks at the end."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._leaks: list[Leak] = []
        self._before, self._after = "", ""  # blanks around the pending leaks
        self._pending: list[Leak] = []  # no word follows them yet

    def show(self, text: str) -> None:
        if words := text.rstrip():
            self._release()
            self._shown.append(words)
        self._after += text[len(words) :]

    def hide(self, leak: Leak) -> None:
        """Hide one more leak, and the blanks between it and the last."""
        if not self._pending:
            self._before, self._after, self._pending = self._after, "", [leak]
            return
        last = self._pending.pop()
        text, self._after = last.text + self._after, ""
        if last.form == leak.form:
            leak = Leak(leak.form, last.calls + leak.calls, text + leak.text)
        else:
            self._pending.append(replace(last, text=text))
        self._pending.append(leak)

    def end(self) -> None:
        """The text is over: blanks around pending leaks are hidden with them."""
        if pending := self._pending:
            pending[0] = replace(pending[0], text=self._before + pending[0].text)
            pending[-1] = replace(pending[-1], text=pending[-1].text + self._after)
            self._before = self._after = ""
        self._release()

    def take(self) -> FilteredText:
        """The output since the last call."""
        taken = FilteredText("".join(self._shown), tuple(self._leaks))
        self._shown, self._leaks = [], []
        return taken

    def _release(self) -> None:
        self._shown += self._before, self._after
        self._leaks += self._pending
        self._before, self._after, self._pending = "", "", []


def filter_text(text: str, tools: Collection[str] = ()) -> FilteredText:
    """A whole text at once.  '好。<tool_call>{"name": "a", …}</tool_call>' -> "好。", one leak"""
    guard = StreamGuard(tools)
    first, last = guard.feed(text), guard.close()
    return FilteredText(first.text + last.text, first.leaks + last.leaks)
