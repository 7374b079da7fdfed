"""Streamed text without the tool calls that a model wrote into it."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from kemem.chat.leaks.calls import Block, LeakedCall, Opener, Written
from kemem.chat.leaks.forms import DSML, FORMS, OPENERS, behind
from kemem.chat.leaks.tape import BARS, Marks, Steps, Tape
from kemem.text.loose_json import MAX_CHARACTERS

__all__ = ["Leak", "LeakedCall", "Shown", "StreamGuard", "Written", "guarded"]

LONGEST = MAX_CHARACTERS  # of a block: longer JSON would be read in part
_CANDIDATE = re.compile(rf"`|{OPENERS.first.pattern}")
_TICKS = re.compile("`*+")
_DSML = Marks(*DSML)
_DSML_CUT = re.compile(rf"[<＜][\s/]*+(?:[{BARS[1:]}]|[{BARS}]++[\s/{BARS}]*+D)", re.IGNORECASE)
_CALL_CUT = re.compile(r"\s*+(?:[\[{][\[{\s]*+[\"'“]?\w*+[\"'”]?\s*+|[<＜][^<>/][^<>]*+)\Z")
_WORD = re.compile(r"(?:\A\s*+|[>\].:=\"'“(\[])([\w-]++)")  # directly behind markup


@dataclass(frozen=True, slots=True)
class Leak:
    """Markup that was hidden, with the calls in it."""

    form: str  # "dsml", "hermes", "mistral", …
    calls: tuple[LeakedCall, ...]  # empty: it could not be read
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Shown:
    """What may be shown now, and the leaks that have ended."""

    text: str
    leaks: tuple[Leak, ...]


_NOTHING = Shown("", ())


class StreamGuard:
    """Takes a text in pieces and gives it back without leaked calls, whatever the pieces.

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
        self._tape = Tape()
        self._view = _View()
        self._code = _Code()
        self._example_end = 0  # up to there calls are an example in code
        self._steps = self._scan()

    def feed(self, piece: str) -> Shown:
        """Text that is safe to show now, and leaks that have ended."""
        self._tape.add(piece)
        next(self._steps)
        return self._view.taken()

    def close(self) -> Shown:
        """The rest, at the end of the text; what is fed next is another one."""
        self._tape.closed = True
        for _ in self._steps:
            pass
        self._view.end()
        shown = self._view.taken()
        self._begin()
        return shown

    def _scan(self) -> Steps[None]:
        tape, at = self._tape, 0
        while True:
            found = _CANDIDATE.search(tape.text, at)
            self._show(tape.text[at : found.start() if found else len(tape.text)])
            if found:
                at = yield from self._decide(found.start())
            elif tape.closed:
                return
            else:
                at = len(tape.text)
                yield
            if at * 2 > len(tape.text):  # not each time: the rest is copied
                tape.drop(at)
                at, self._example_end = 0, self._example_end - at

    def _decide(self, start: int) -> Steps[int]:
        """Hides a block that begins here, or shows a character; says where to go on."""
        tape, ticks = self._tape, 0
        if tape.text[start] == "`":
            ticks = (yield from tape.run(_TICKS, start)) - start
        block = (yield from self._block(start)) if ticks in (0, 3) else None
        if block and self._example(block):
            self._example_end, block = block.end, None
        if block:
            end = yield from behind(tape, block.end)
            self._view.hide(Leak(block.form, block.calls, tape.text[start:end]))
            return end
        self._code.ticks(ticks)
        end = start + (ticks or 1)
        self._show(tape.text[start:end])
        return end

    def _block(self, start: int) -> Steps[Block | None]:
        tape = self._tape
        mark, at = yield from tape.mark(start, OPENERS)
        if not mark:
            cut = _DSML_CUT.match(tape.text, start) and tape.cut(start, _DSML)
            return Block("dsml", tape.end, ()) if cut else None
        if start < self._example_end and mark not in DSML:
            return None
        form, reader = FORMS[mark]
        tape.short = False
        tape.stop_at(start + LONGEST)
        block = yield from reader(tape, Opener(form, start, at))
        full = tape.short and tape.end == tape.limit
        tape.stop_at(None)
        if block and full:
            return Block(block.form, start + LONGEST, ())
        if not block and tape.short and tape.closed and self._cut(at):
            return Block(form, tape.end, ())
        return block

    def _cut(self, at: int) -> bool:
        """Whether the text ends where a call has just begun: it may have named a known tool."""
        rest = self._tape.text[at:]
        if self._code.inside:
            return False
        return bool(_CALL_CUT.match(rest)) or not self._tools.isdisjoint(_WORD.findall(rest))

    def _example(self, block: Block) -> bool:
        """Whether a call is only written about."""
        if block.form == "dsml" or (block.sure and not self._code.inside):
            return False
        return not any(call.name in self._tools for call in block.calls)

    def _show(self, text: str) -> None:
        self._code.text(text)
        self._view.show(text)


class _Code:
    """Whether Markdown code is open: a fence, or a span up to the end of its line."""

    def __init__(self) -> None:
        self._fence = 0
        self._span = 0

    @property
    def inside(self) -> bool:
        return bool(self._fence or self._span)

    def ticks(self, count: int) -> None:
        """So many backticks in a row."""
        if self._fence:
            self._fence = 0 if count >= self._fence else self._fence
        elif count >= 3:
            self._fence, self._span = count, 0
        elif count:
            self._span = 0 if count == self._span else self._span or count

    def text(self, text: str) -> None:
        """Anything else."""
        if self._span and "\n" in text:
            self._span = 0


class _View:
    """What is shown and hidden.

    Blanks wait for the word behind them: around leaks that end the text they are hidden as well.
    """

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._leaks: list[Leak] = []
        self._before, self._after = "", ""  # blanks around the leaks that no word follows yet
        self._last: list[Leak] = []

    def show(self, text: str) -> None:
        if words := text.rstrip():
            self._release()
            self._shown.append(words)
        self._after += text[len(words) :]

    def hide(self, leak: Leak) -> None:
        """Hides one more leak, and the blanks between it and the last."""
        if not self._last:
            self._before, self._after, self._last = self._after, "", [leak]
            return
        last, text = self._last[-1], self._last[-1].text + self._after
        self._after = ""
        if last.form == leak.form:
            self._last[-1] = Leak(leak.form, last.calls + leak.calls, text + leak.text)
        else:
            self._last[-1:] = [replace(last, text=text), leak]

    def end(self) -> None:
        """No word follows any more."""
        if self._last:
            self._last[0] = replace(self._last[0], text=self._before + self._last[0].text)
            self._last[-1] = replace(self._last[-1], text=self._last[-1].text + self._after)
            self._before = self._after = ""
        self._release()

    def taken(self) -> Shown:
        """What has come since the last time."""
        if not self._shown and not self._leaks:
            return _NOTHING
        taken = Shown("".join(self._shown), tuple(self._leaks))
        self._shown, self._leaks = [], []
        return taken

    def _release(self) -> None:
        self._shown += self._before, self._after
        self._leaks += self._last
        self._before, self._after, self._last = "", "", []


def guarded(text: str, tools: Collection[str] = ()) -> Shown:
    """A whole text at once.  '好。<tool_call>{"name": "a", …}</tool_call>' -> "好。", one leak"""
    guard = StreamGuard(tools)
    first, last = guard.feed(text), guard.close()
    return Shown(first.text + last.text, first.leaks + last.leaks)
