"""A wrapper of OpenAI clients whose answers show no leaked call."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from functools import partial
from inspect import isawaitable
from typing import Any, Self, TypeVar, cast

from kemem.chat.filters import ChoiceFilter, LeakCounts, ToolPolicy
from kemem.chat.requests import Json, call_ids, retry_with_note, sanitize_request
from kemem.errors import Unavailable

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


class _Exchange:
    """A request and its answer, or its two answers where the first was nothing but a leak."""

    def __init__(
        self, request: Json, *, counts: LeakCounts, only: Collection[str] | None, base_url: str
    ) -> None:
        self.request = sanitize_request(request, base_url=base_url)
        tools = self.request.get("tools") or ()
        has_tools, choice = bool(request.get("tools")), request.get("tool_choice")
        policy = ToolPolicy(tools, only, takes_calls=not tools or (has_tools and choice != "none"))
        used_ids = call_ids(self.request.get("messages") or ())
        new = partial(ChoiceFilter, policy, counts, used_ids)
        self._filters = defaultdict[int, ChoiceFilter](new)  # by the index of a choice
        self._last: Any = None
        self._has_ended = False
        self._is_repeated = False

    def whole(self, completion: Any) -> Any:
        """A completion that came at once, filtered."""
        choices = getattr(completion, "choices", None) or []
        shown = [self._filters[n].whole(choice) for n, choice in enumerate(choices)]
        return completion.model_copy(update={"choices": shown}) if shown else completion

    def feed(self, chunk: Any) -> list[Any]:
        """The chunks to pass on for one that came."""
        self._last = chunk
        choices = getattr(chunk, "choices", None) or []
        self._has_ended |= any(choice.finish_reason for choice in choices)
        shown = [it for choice in choices for it in self._filters[choice.index].feed(choice)]
        if shown == choices:
            return [chunk]
        chunks = [chunk.model_copy(update={"choices": [it], "usage": None}) for it in shown]
        if chunk.usage is None:
            return chunks
        last = chunks.pop() if chunks else chunk.model_copy(update={"choices": []})
        return [*chunks, last.model_copy(update={"usage": chunk.usage})]

    def end(self) -> tuple[list[Any], dict[str, Any] | None]:
        """The chunks that are left when the stream ends; or the request to send once more."""
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
        self._is_repeated, self._has_ended = True, False
        self._filters.clear()
        return retry_with_note(self.request)

    def check_end(self) -> None:
        """Refuse a stream that ended in the middle of an answer as if that were its end."""
        if self._filters and not self._has_ended:
            raise Unavailable("the model's answer broke off")

    def abandon(self) -> None:
        """Count what was hidden so far: nobody reads on."""
        for it in self._filters.values():
            it.give_up()


class _Wrapper:
    """Delegates every attribute that is not overridden to the wrapped object."""

    def __init__(self, inner: Any, **attributes: Any) -> None:
        self._inner = inner
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()


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
        answer = await coming
        if hasattr(answer, "__anext__"):
            return _AsyncStream(answer, exchange, self._inner.create)
        filtered = exchange.whole(answer)
        if again := exchange.again():
            return exchange.whole(await self._inner.create(**again))
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
    """A filtered stream; it continues with another where the first held nothing but a leak."""

    def __init__(self, inner: Any, exchange: _Exchange, create: Callable[..., Any]) -> None:
        super().__init__(inner, _exchange=exchange, _create=create)
        self._chunks = self._filtered()  # of a subclass: the chunks to pass on

    def close(self) -> Any:  # an awaitable where the stream is async
        self._exchange.abandon()
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
            self._exchange.abandon()
            raise
        self._exchange.check_end()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._chunks)


class _AsyncStream(_StreamBase):
    async def _filtered(self) -> AsyncIterator[Any]:
        again: dict[str, Any] | None = {}
        try:
            while again is not None:
                self._inner = await self._create(**again) if again else self._inner
                async for chunk in self._inner:
                    for shown in self._exchange.feed(chunk):
                        yield shown
                left, again = self._exchange.end()
                for shown in left:
                    yield shown
        except Exception:  # of whatever kind: an open block was not the end of a call
            self._exchange.abandon()
            raise
        self._exchange.check_end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._chunks)

    aclose = _StreamBase.close
