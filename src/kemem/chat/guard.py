"""A wrapper of OpenAI clients: answers show no leaked call, and calls of the model are metered."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar, cast

from kemem.chat.filters import ChoiceFilter, LeakCounts, ToolPolicy
from kemem.chat.requests import call_ids, retry_with_note, sanitize_request
from kemem.errors import Unavailable
from kemem.ports import OnReply, Reply

C = TypeVar("C")


def guard(client: C, *, only: Collection[str] | None = None, counts: LeakCounts | None = None) -> C:
    """The same client, sync or async, with guarded `chat.completions`: create, stream and parse.

    A call that leaked into the text is hidden, and becomes an ordinary tool call if the request
    offers its tool, `only` (where given) names it, and its arguments fit the tool's schema. An
    answer that leaves nothing to show is asked for once more; `parse` cannot do that. A stream that
    ends without a reason has broken off, and raises Unavailable after what came of it. Not guarded
    are raw responses (`with_raw_response`, `with_streaming_response`). Needs the extra `agents`.

        client = guard(AsyncOpenAI(base_url="https://api.deepseek.com"), only={"recall_memory"})
    """
    return cast(C, _wrap(client, partial(_Exchange, only=only, counts=counts or LeakCounts())))


def guard_and_meter(client: C, counts: LeakCounts, on_reply: OnReply) -> C:
    """A guarded asynchronous client that reports each call of the model to `on_reply`."""
    return cast(C, _wrap(client, partial(_Exchange, counts=counts, on_reply=on_reply)))


class _Exchange:
    """A request and its answer, or its two answers where the first was nothing but a leak.

    Each call of the model is reported once: how long it took, whether it answered, its tokens.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        *,
        counts: LeakCounts,
        only: Collection[str] | None = None,
        on_reply: OnReply | None = None,
        base_url: str = "",
    ) -> None:
        self.request = sanitize_request(request, base_url=base_url)
        tools = self.request.get("tools") or ()
        wanted = not tools or (bool(request.get("tools")) and request.get("tool_choice") != "none")
        used_ids = call_ids(self.request.get("messages") or ())
        self._new_filter = partial(
            ChoiceFilter, ToolPolicy(tools, only, wanted=wanted), counts, used_ids
        )
        self._filters: dict[int, ChoiceFilter] = {}
        self._on_reply = on_reply
        self._started: float | None = None
        self._tokens = (0, 0)
        self._last: Any = None
        self._has_ended = False
        self._is_repeated = False

    async def call(self, answer: Awaitable[Any]) -> Any:
        """Await an answer of the model, and begin to measure it."""
        self._started, self._tokens = time.perf_counter(), (0, 0)
        try:
            return await answer
        except BaseException:
            self._report(False)
            raise

    def _count_tokens(self, answer: Any) -> None:
        if usage := getattr(answer, "usage", None):  # not every server sends it
            self._tokens = (usage.prompt_tokens or 0, usage.completion_tokens or 0)

    def _report(self, has_answered: bool) -> None:
        started, self._started = self._started, None
        if self._on_reply and started is not None:
            seconds = time.perf_counter() - started
            self._on_reply(seconds, has_answered, Reply("", *self._tokens))

    def whole(self, completion: Any) -> Any:
        """A completion that came at once, filtered."""
        self._count_tokens(completion)
        self._report(True)
        choices = getattr(completion, "choices", None) or []
        shown = [self._filter(n).whole(choice) for n, choice in enumerate(choices)]
        return completion.model_copy(update={"choices": shown}) if shown else completion

    def feed(self, chunk: Any) -> list[Any]:
        """The chunks to pass on for one that came."""
        self._count_tokens(chunk)
        self._last = chunk
        choices = getattr(chunk, "choices", None) or []
        self._has_ended |= any(choice.finish_reason for choice in choices)
        shown = [it for choice in choices for it in self._filter(choice.index).feed(choice)]
        if shown == choices:
            return [chunk]
        chunks = [chunk.model_copy(update={"choices": [it], "usage": None}) for it in shown]
        if chunk.usage is None:
            return chunks
        last = chunks.pop() if chunks else chunk.model_copy(update={"choices": []})
        return [*chunks, last.model_copy(update={"usage": chunk.usage})]

    def end(self) -> tuple[list[Any], dict[str, Any] | None]:
        """The chunks that are left when the stream ends; or the request to send once more."""
        self._report(True)
        choices = [it for choice_filter in self._filters.values() for it in choice_filter.close()]
        if again := self.again():
            return [], again
        left = [self._last.model_copy(update={"choices": [it], "usage": None}) for it in choices]
        return left, None

    def again(self) -> dict[str, Any] | None:
        """The request to send once more, if the answer hid something and showed nothing."""
        filters = self._filters.values()
        has_hidden = any(it.has_hidden for it in filters)
        if self._is_repeated or not has_hidden or any(it.has_output for it in filters):
            return None
        self._is_repeated, self._has_ended, self._filters = True, False, {}
        return retry_with_note(self.request)

    def check_end(self) -> None:
        """Refuse a stream that ended in the middle of an answer as if that were its end."""
        if self._filters and not self._has_ended:
            raise Unavailable("the model's answer broke off")

    def abandon(self, *, has_answered: bool) -> None:
        """Count what was hidden so far: nobody reads on."""
        self._report(has_answered)
        for it in self._filters.values():
            it.give_up()

    def _filter(self, index: int) -> ChoiceFilter:
        return self._filters.get(index) or self._filters.setdefault(index, self._new_filter())


class _Wrapper:
    """Delegates every attribute that is not overridden to the wrapped object."""

    def __init__(self, inner: Any, **attributes: Any) -> None:
        self._inner = inner
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _wrap(client: Any, exchange: Callable[..., _Exchange]) -> "_Client":
    base_url = str(getattr(client, "base_url", ""))
    return _Client(client, _exchange=partial(exchange, base_url=base_url))


class _Client(_Wrapper):
    _exchange: Callable[..., _Exchange]

    @property
    def chat(self) -> _Wrapper:
        inner = self._inner.chat
        return _Wrapper(
            inner, completions=_Completions(inner.completions, _exchange=self._exchange)
        )

    @property
    def beta(self) -> "_Client":
        return _Client(self._inner.beta, _exchange=self._exchange)  # has a `chat` as well

    def __getattr__(self, name: str) -> Any:
        attribute = super().__getattr__(name)
        if name not in ("with_options", "copy"):
            return attribute
        return lambda **options: _wrap(attribute(**options), self._exchange)

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


class _Completions(_Wrapper):
    _exchange: Callable[..., _Exchange]

    def create(self, **request: Any) -> Any:
        exchange = self._exchange(request)
        answer = self._inner.create(**exchange.request)
        if isawaitable(answer):
            return self._receive(answer, exchange)
        if hasattr(answer, "__next__"):
            return _Stream(answer, exchange, self._inner.create)
        filtered = exchange.whole(answer)
        again = exchange.again()
        return exchange.whole(self._inner.create(**again)) if again else filtered

    async def _receive(self, coming: Awaitable[Any], exchange: _Exchange) -> Any:
        answer = await exchange.call(coming)
        if hasattr(answer, "__anext__"):
            return _AsyncStream(answer, exchange, self._inner.create)
        filtered = exchange.whole(answer)
        if again := exchange.again():
            return exchange.whole(await exchange.call(self._inner.create(**again)))
        return filtered

    def stream(self, **request: Any) -> Any:
        return type(self._inner).stream(self, **request)  # calls this object's `create`

    def parse(self, **request: Any) -> Any:
        # `parse` of the openai package calls its private `_post`, here on this object: only there
        # can the text be filtered before it is parsed. tests/test_guard.py pins that it does.
        return type(self._inner).parse(self, **request)

    def _post(self, path: str, *, body: Any, options: Any, **more: Any) -> Any:
        exchange, parse = self._exchange(body), options["post_parser"]
        options = {**options, "post_parser": lambda completion: parse(exchange.whole(completion))}
        return self._inner._post(path, body=exchange.request, options=options, **more)


class _StreamBase(_Wrapper):
    """A filtered stream; it continues with another where the first held nothing but a leak.

    Subclasses define `_filtered`, a generator of the chunks to pass on.
    """

    def __init__(self, inner: Any, exchange: _Exchange, create: Callable[..., Any]) -> None:
        super().__init__(inner, _exchange=exchange, _create=create)
        self._chunks = self._filtered()

    def close(self) -> Any:  # an awaitable where the stream is async
        self._exchange.abandon(has_answered=True)
        return self._inner.close()


class _Stream(_StreamBase):
    def _filtered(self) -> Iterator[Any]:
        again: dict[str, Any] | None = {}
        try:
            while again is not None:
                self._inner = self._create(**again) if again else self._inner
                for chunk in self._inner:
                    yield from self._exchange.feed(chunk)
                left, again = self._exchange.end()
                yield from left
        except Exception:  # of whatever kind: an open block was not the end of a call
            self._exchange.abandon(has_answered=False)
            raise
        self._exchange.check_end()

    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> Any:
        return next(self._chunks)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class _AsyncStream(_StreamBase):
    async def _filtered(self) -> AsyncIterator[Any]:
        again: dict[str, Any] | None = {}
        try:
            while again is not None:
                if again:
                    self._inner = await self._exchange.call(self._create(**again))
                async for chunk in self._inner:
                    for shown in self._exchange.feed(chunk):
                        yield shown
                left, again = self._exchange.end()
                for shown in left:
                    yield shown
        except Exception:  # of whatever kind: an open block was not the end of a call
            self._exchange.abandon(has_answered=False)
            raise
        self._exchange.check_end()

    def __aiter__(self) -> "_AsyncStream":
        return self

    async def __anext__(self) -> Any:
        return await anext(self._chunks)

    async def __aenter__(self) -> "_AsyncStream":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    aclose = _StreamBase.close
