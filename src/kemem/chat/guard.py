"""An OpenAI client whose answers show no leaked call; those that may be run are tool calls."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any, TypeVar, cast

from kemem.chat.choices import Heard, HeardStream, heard_whole
from kemem.chat.counts import LeakCounts
from kemem.chat.offer import Offer
from kemem.chat.wire import call_ids, mended, noted
from kemem.errors import Unavailable

C = TypeVar("C")


def guard(client: C, *, only: Collection[str] | None = None, counts: LeakCounts | None = None) -> C:
    """The same client, sync or async, with guarded `chat.completions`: create, stream and parse.

    A call that leaked into the text is hidden, and becomes an ordinary tool call if the request
    offers its tool, `only` (where given) names it, and its arguments fit the tool's schema. An
    answer that leaves nothing to show is asked for once more; `parse` cannot do that. A stream that
    ends without a reason has broken off, and is Unavailable after what came of it. Not guarded
    are raw responses (`with_raw_response`, `with_streaming_response`). Needs the extra `agents`.

        client = guard(AsyncOpenAI(base_url="https://api.deepseek.com"), only={"recall_memory"})
    """
    return cast(C, _Client(client, _Rules(only, counts or LeakCounts())))


@dataclass(frozen=True, slots=True)
class _Rules:
    only: Collection[str] | None
    counts: LeakCounts
    base_url: str = ""


class _Exchange:
    """A request and its answer, or its two answers where the first was nothing but a leak."""

    def __init__(self, request: Mapping[str, Any], rules: _Rules) -> None:
        self.request = mended(request, base_url=rules.base_url)
        tools = self.request.get("tools") or ()
        wanted = not tools or (bool(request.get("tools")) and request.get("tool_choice") != "none")
        self._offer = Offer.of(tools, rules.only, wanted=wanted)
        self._used = call_ids(self.request.get("messages") or ())
        self._counts = rules.counts
        self._heard: list[Heard] = []
        self._streams: dict[int, HeardStream] = {}
        self._last: Any = None
        self._has_begun = self._has_ended = False
        self._is_repeated = False

    def whole(self, completion: Any) -> Any:
        """A completion that came at once, guarded."""
        given = getattr(completion, "choices", None) or []
        choices = [heard_whole(choice, self._listen()) for choice in given]
        return completion.model_copy(update={"choices": choices}) if choices else completion

    def feed(self, chunk: Any) -> list[Any]:
        """The chunks that may be sent on for one that came."""
        self._last = chunk
        given = getattr(chunk, "choices", None) or []
        self._has_begun |= bool(given)
        self._has_ended |= any(choice.finish_reason for choice in given)
        choices = [it for choice in given for it in self._fed(choice)]
        if choices == given:
            return [chunk]
        chunks = [chunk.model_copy(update={"choices": [it], "usage": None}) for it in choices]
        if chunk.usage is None:
            return chunks
        last = chunks.pop() if chunks else chunk.model_copy(update={"choices": []})
        return [*chunks, last.model_copy(update={"usage": chunk.usage})]

    def close(self) -> list[Any]:
        """The chunks that are left when the stream ends."""
        choices = [it for stream in self._streams.values() for it in stream.close()]
        self._streams = {}
        return [self._last.model_copy(update={"choices": [it], "usage": None}) for it in choices]

    def again(self) -> dict[str, Any] | None:
        """The request to send once more, if the answer hid something and showed nothing."""
        is_empty = any(it.hid for it in self._heard) and not any(it.told for it in self._heard)
        if self._is_repeated or not is_empty:
            return None
        self._is_repeated, self._heard = True, []
        self._has_begun = self._has_ended = False
        return noted(self.request)

    def check_end(self) -> None:
        """Refuse a stream that ended in the middle of an answer as if that were its end."""
        if self._has_begun and not self._has_ended:
            raise Unavailable("the model's answer broke off")

    def give_up(self) -> None:
        """Count what was hidden so far: nobody reads on."""
        for heard in self._heard:
            heard.give_up()

    def _fed(self, choice: Any) -> list[Any]:
        if choice.index not in self._streams:
            self._streams[choice.index] = HeardStream(self._listen())
        return self._streams[choice.index].feed(choice)

    def _listen(self) -> Heard:
        self._heard.append(Heard(self._offer, self._counts, self._used))
        return self._heard[-1]


class _Part:
    """What is not guarded is the guarded object's own."""

    def __init__(self, inner: Any, rules: _Rules) -> None:
        self._inner = inner
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Client(_Part):
    @property
    def chat(self) -> "_Chat":
        return _Chat(self._inner.chat, self._rules_here())

    @property
    def beta(self) -> "_Client":
        return _Client(self._inner.beta, self._rules_here())  # has a `chat` as well

    def __getattr__(self, name: str) -> Any:
        own = super().__getattr__(name)
        if name not in ("with_options", "copy"):
            return own
        return lambda **options: _Client(own(**options), self._rules)

    def __enter__(self) -> "_Client":
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    async def __aenter__(self) -> "_Client":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    def _rules_here(self) -> _Rules:
        base_url = self._rules.base_url or str(getattr(self._inner, "base_url", ""))
        return replace(self._rules, base_url=base_url)


class _Chat(_Part):
    @property
    def completions(self) -> "_Completions":
        return _Completions(self._inner.completions, self._rules)


class _Completions(_Part):
    def create(self, **request: Any) -> Any:
        exchange = _Exchange(request, self._rules)
        answer = self._inner.create(**exchange.request)
        return (self._later if isawaitable(answer) else self._now)(answer, exchange)

    def stream(self, **request: Any) -> Any:
        return type(self._inner).stream(self, **request)  # asks this object's `create`

    def parse(self, **request: Any) -> Any:
        return type(self._inner).parse(self, **request)  # asks this object's `_post`

    def _post(self, path: str, *, body: Any, options: Any, **more: Any) -> Any:
        exchange, parse = _Exchange(body, self._rules), options["post_parser"]
        options = {**options, "post_parser": lambda completion: parse(exchange.whole(completion))}
        return self._inner._post(path, body=exchange.request, options=options, **more)

    def _now(self, answer: Any, exchange: _Exchange) -> Any:
        if hasattr(answer, "__next__"):
            return _Stream(answer, self._rules, exchange, self._inner.create)
        guarded = exchange.whole(answer)
        again = exchange.again()
        return exchange.whole(self._inner.create(**again)) if again else guarded

    async def _later(self, coming: Any, exchange: _Exchange) -> Any:
        answer = await coming
        if hasattr(answer, "__anext__"):
            return _AsyncStream(answer, self._rules, exchange, self._inner.create)
        guarded = exchange.whole(answer)
        again = exchange.again()
        return exchange.whole(await self._inner.create(**again)) if again else guarded


class _Chunks(_Part):
    """A guarded stream; it goes over to another where the first held nothing but a leak."""

    def __init__(
        self, inner: Any, rules: _Rules, exchange: _Exchange, ask: Callable[..., Any]
    ) -> None:
        super().__init__(inner, rules)
        self._exchange = exchange
        self._ask = ask
        self._ready: deque[Any] = deque()

    def _end(self) -> dict[str, Any] | None:
        rest = self._exchange.close()
        again = self._exchange.again()
        self._ready.extend(() if again else rest)
        return again


class _Stream(_Chunks):
    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> Any:
        while not self._ready:
            try:
                self._ready.extend(self._exchange.feed(next(self._inner)))
            except StopIteration:
                if again := self._end():
                    self._inner = self._ask(**again)
                elif not self._ready:
                    self._exchange.check_end()
                    raise
            except Exception:  # of whatever kind: what is open was not the end of a call
                self._exchange.give_up()
                raise
        return self._ready.popleft()

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        self._exchange.give_up()
        self._inner.close()


class _AsyncStream(_Chunks):
    def __aiter__(self) -> "_AsyncStream":
        return self

    async def __anext__(self) -> Any:
        while not self._ready:
            try:
                self._ready.extend(self._exchange.feed(await anext(self._inner)))
            except StopAsyncIteration:
                if again := self._end():
                    self._inner = await self._ask(**again)
                elif not self._ready:
                    self._exchange.check_end()
                    raise
            except Exception:  # of whatever kind: what is open was not the end of a call
                self._exchange.give_up()
                raise
        return self._ready.popleft()

    async def __aenter__(self) -> "_AsyncStream":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    async def close(self) -> None:
        self._exchange.give_up()
        await self._inner.close()

    aclose = close
