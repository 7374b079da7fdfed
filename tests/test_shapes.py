"""Histories of any format go in: what is said is kept, tools are told apart, nothing crashes."""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import Memory
from kemem.add.parse import check_metadata, parse_messages, parse_turns
from kemem.errors import InvalidArgument, KeMemError
from kemem.records import Message
from kemem.records.privacy import ContentPolicy
from kemem.scope import Owner
from kemem.settings import Settings
from kemem.text.attachments import Attachment
from kemem.text.ids import is_blank
from kemem.text.shapes import to_items
from kemem.text.turns import NO_CONTENT, Reading, read_turns
from tests.cases import each

ROOT = Path(__file__).parents[1]
NOW = 1_767_225_600_000_000
PNG = b"\x89PNG\r\n\x1a\n"
DIGEST = sha256(PNG).hexdigest()
LINE = f"[image image/png, 8 bytes, sha256 {DIGEST[:16]}]"


def read(messages: Any, **options: Any) -> Reading:
    items = to_items(messages)
    assert items is not None
    return read_turns(items, **options)


def told(messages: Any, **options: Any) -> list[tuple[str, str]]:
    """Who says what."""
    turns = read(messages, **options).turns
    return [(turn.fields["role"], turn.fields["content"]) for turn in turns]


# A history in many formats


class Event(NamedTuple):
    """Something in a history: a text of a role, a call or a result."""

    kind: str
    text: str
    number: int = 0


WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0[]"), min_size=1, max_size=12
).filter(lambda text: not is_blank(text))
EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(["user", "assistant", "call", "result", "thought", "nothing"]),
        WORDS,
        st.integers(0, 3),
    ),
    max_size=6,
)


def arguments(event: Event) -> dict[str, Any]:
    return {"q": event.text}


def in_openai(event: Event) -> Any:
    name, written = f"tool_{event.number}", json.dumps(arguments(event), ensure_ascii=False)
    call = {"id": f"c{event.number}", "function": {"name": name, "arguments": written}}
    forms: dict[str, Any] = {
        "user": {"role": "user", "content": [{"type": "text", "text": event.text}]},
        "assistant": {"role": "assistant", "content": event.text, "refusal": None},
        "call": {"role": "assistant", "content": None, "tool_calls": [call]},
        "result": {"role": "tool", "tool_call_id": f"c{event.number}", "content": event.text},
        "thought": {"role": "assistant", "content": "", "reasoning_content": event.text},
        "nothing": {"role": "assistant", "content": None},
    }
    return forms[event.kind]


def in_anthropic(event: Event) -> Any:
    call_id = f"c{event.number}"
    use = {"type": "tool_use", "id": call_id, "name": f"tool_{event.number}"}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": event.text}
    blocks: dict[str, Any] = {
        "user": {"type": "text", "text": event.text},
        "assistant": {"type": "text", "text": event.text, "citations": None},
        "call": {**use, "input": arguments(event)},
        "result": result,
        "thought": {"type": "thinking", "thinking": event.text, "signature": "s"},
        "nothing": {"type": "redacted_thinking", "data": "x"},
    }
    role = "user" if event.kind in ("user", "result") else "assistant"
    return {"role": role, "content": [blocks[event.kind]]}


def in_gemini(event: Event) -> Any:
    call = {"id": f"c{event.number}", "name": f"tool_{event.number}", "args": arguments(event)}
    answer = {"id": f"c{event.number}", "name": f"tool_{event.number}"}
    parts: dict[str, Any] = {
        "user": {"text": event.text},
        "assistant": {"text": event.text},
        "call": {"functionCall": call},
        "result": {"functionResponse": {**answer, "response": event.text}},
        "thought": {"text": event.text, "thought": True},
        "nothing": {"text": ""},
    }
    role = "user" if event.kind in ("user", "result") else "model"
    return {"role": role, "parts": [parts[event.kind]]}


def in_responses(event: Event) -> Any:
    call_id, written = f"c{event.number}", json.dumps(arguments(event), ensure_ascii=False)
    call = {"type": "function_call", "call_id": call_id, "name": f"tool_{event.number}"}
    summary = [{"type": "summary_text", "text": event.text}]
    output = [{"type": "output_text", "text": event.text}]
    forms: dict[str, Any] = {
        "user": {"role": "user", "content": [{"type": "input_text", "text": event.text}]},
        "assistant": {"type": "message", "role": "assistant", "content": output},
        "call": {**call, "arguments": written},
        "result": {"type": "function_call_output", "call_id": call_id, "output": event.text},
        "thought": {"type": "reasoning", "summary": summary},
        "nothing": {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    }
    return forms[event.kind]


def in_langchain(event: Event) -> Any:
    call = {"name": f"tool_{event.number}", "args": arguments(event), "id": f"c{event.number}"}
    forms: dict[str, tuple[str, dict[str, Any]]] = {
        "user": ("human", {"content": [event.text]}),
        "assistant": ("ai", {"content": event.text, "tool_calls": []}),
        "call": ("ai", {"content": "", "tool_calls": [call]}),
        "result": ("tool", {"content": event.text, "tool_call_id": f"c{event.number}"}),
        "thought": ("ai", {"content": [{"type": "reasoning", "reasoning": event.text}]}),
        "nothing": ("ai", {"content": ""}),
    }
    kind, fields = forms[event.kind]
    return {"type": kind, "data": {"type": kind, "additional_kwargs": {}, **fields}}


def in_llama_index(event: Event) -> Any:
    call_id, name = f"c{event.number}", f"tool_{event.number}"
    call = {"tool_call_id": call_id, "tool_name": name, "tool_kwargs": arguments(event)}
    text = {"block_type": "text", "text": event.text}
    blocks: dict[str, Any] = {
        "call": {"block_type": "tool_call", **call},
        "thought": {"block_type": "thinking", "content": event.text, "num_tokens": None},
        "nothing": {"block_type": "cache", "cache_control": {"type": "ephemeral"}},
    }
    role = {"user": "user", "result": "tool"}.get(event.kind, "chatbot")
    extra = {"tool_call_id": call_id} if event.kind == "result" else {}
    return {"role": role, "additional_kwargs": extra, "blocks": [blocks.get(event.kind, text)]}


FORMATS = [in_openai, in_anthropic, in_gemini, in_responses, in_langchain, in_llama_index]


@pytest.mark.parametrize("render", FORMATS)
@given(events=EVENTS, thinking=st.booleans())
def test_nothing_that_was_said_is_lost(
    render: Callable[[Event], Any], events: list[Event], thinking: bool
) -> None:
    """In order, tools apart, thoughts only where asked for; what has no content is named."""
    reading = read_turns([render(event) for event in events], thinking=thinking)
    kept = {"user", "assistant", "call", "result", *(["thought"] if thinking else [])}
    rows = []
    for event in (it for it in events if it.kind in kept):
        written = json.dumps(arguments(event), ensure_ascii=False)
        rows += {
            "user": [("user", event.text)],
            "assistant": [("assistant", event.text)],
            "call": [("tool", f"tool_{event.number}({written})")],
            "result": [("tool", event.text)],
            "thought": [("tool", event.text)],
        }[event.kind]
    assert [(it.fields["role"], it.fields["content"]) for it in reading.turns] == rows
    empty = [f"messages[{at}]" for at, event in enumerate(events) if event.kind not in kept]
    assert list(reading.skipped) == empty
    is_empty = any(event.kind == "nothing" for event in events)
    assert reading.problems in ((), (NO_CONTENT,) * is_empty)
    for turn in reading.turns:
        metadata = turn.fields.get("metadata", {})
        if turn.fields.get("content_type") == "tool_call":
            assert set(metadata) == {"tool_name", "tool_call_id", "arguments"}
    parse_turns(reading.turns, Owner("u"), NOW, ContentPolicy(100_000))


KEYS = st.sampled_from(
    [
        *("role", "content", "type", "text", "parts", "kind", "from", "value", "data", "kwargs"),
        *("tool_calls", "function_call", "source", "image_url", "url", "output", "messages", "lc"),
        *("name", "id", "metadata", "audio", "input", "functionCall", "inline_data", "thought"),
        *("blocks", "block_type", "path", "title"),
    ]
)
VALUES = st.sampled_from(
    [
        *("user", "model", "human", "tool", "text", "image", "tool_use", "tool_result", "file"),
        *("document", "citable", "citation"),
        *("thinking", "x_call", "你好", "", "data:;base64,!", "\0", "\ud800", "http://[", b"\xff"),
        *(None, True, 0, 2**70, float("nan"), object()),
    ]
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(messages=TREES)
def test_no_value_whatever_crashes(messages: Any) -> None:
    """It is read or refused, and whatever is kept beside it can be stored."""
    try:
        parse_messages(messages, Owner("u"), NOW, ContentPolicy(10_000))
        for turn in read(messages).turns:
            check_metadata(turn.fields.get("metadata"), "metadata")
    except KeMemError as error:
        error.message.encode(errors="strict")


# Rules of reading


def answer(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **fields}


CHOICES = [{"finish_reason": "stop", "message": answer(content=text)} for text in "ab"]
SYSTEM = {"parts": [{"text": "be brief"}]}


@each(
    ("messages", "expected"),
    [
        ("我不吃辣", [("user", "我不吃辣")]),
        (["你好", "hello"], [("user", "你好"), ("user", "hello")]),
        (("human", "hi"), [("user", "hi")]),
        ([("user", "hi"), ["ai", "你好"]], [("user", "hi"), ("assistant", "你好")]),
        ([{"from": "gpt", "value": "hi"}], [("assistant", "hi")]),
        ({"conversations": [{"from": "human", "value": "hi"}]}, [("user", "hi")]),
        ({"role": "developer", "content": "be brief"}, [("system", "be brief")]),
        ({"role": "function", "name": "f", "content": "42"}, [("tool", "42")]),
        (answer(content=None, refusal="No."), [("assistant", "No.")]),
        ({"system": "be", "messages": [("user", "hi")]}, [("system", "be"), ("user", "hi")]),
        (
            {"contents": [{"parts": [{"text": "hi"}]}], "systemInstruction": SYSTEM},
            [("system", "be brief"), ("user", "hi")],
        ),
        ({"choices": CHOICES}, [("assistant", "a")]),
        (
            answer(content="hi", function_call={"name": "f", "arguments": "{"}),
            [("assistant", "hi"), ("tool", "f({)")],
        ),
        (
            answer(audio={"id": "a", "transcript": "hi", "data": "YWJj"}),
            [("assistant", "hi\n[audio a, 3 bytes, sha256 ba7816bf8f01cfea]")],
        ),
        (answer(content=["草是", " green"]), [("assistant", "草是 green")]),
        (
            answer(blocks=[{"block_type": "audio", "audio": b"YWJj", "format": "wav"}]),
            [("assistant", "[audio audio/wav, 3 bytes, sha256 ba7816bf8f01cfea]")],
        ),
        (
            answer(blocks=[{"block_type": "document", "path": "/a/菜单.pdf", "title": None}]),
            [("assistant", "[file 菜单.pdf, application/pdf]")],
        ),
        (
            answer(blocks=[{"block_type": "citation", "cited_content": {"text": "草是绿的"}}]),
            [("assistant", "草是绿的")],
        ),
        (
            answer(blocks=[{"block_type": "citable", "content": [{"text": "hi"}]}]),
            [("assistant", "hi")],
        ),
        (answer(content=["草", "green"]), [("assistant", "草\ngreen")]),
        (answer(content=[{"type": "odd", "text": "hi"}]), [("assistant", "hi")]),
        (answer(content=[{"type": "odd", "x": 1}]), [("assistant", '{"type": "odd", "x": 1}')]),
    ],
)
def test_what_a_message_says(messages: Any, expected: list[tuple[str, str]]) -> None:
    assert told(messages) == expected


ABC = "3 bytes, sha256 ba7816bf8f01cfea"
NOTE = {"type": "text", "media_type": "text/plain", "data": "abcd"}


@each(
    ("part", "line"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://u:p@a.b/c%20d.png?key=secret#x"}},
            "[image c d.png, image/png, https://a.b/c%20d.png]",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
            f"[audio audio/wav, {ABC}]",
        ),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[file file-1]"),
        (
            {"type": "file", "file": {"filename": "a]\n[b.pdf", "file_data": "data:;base64,YWJj"}},
            f"[file a) (b.pdf, application/pdf, {ABC}]",
        ),
        (
            {"type": "document", "source": NOTE},
            "[file text/plain, 4 bytes, sha256 88d4266fd4e6338d]",
        ),
        (
            {"fileData": {"fileUri": "gs://b/v.mp4", "mimeType": "video/mp4"}},
            "[video v.mp4, video/mp4, gs://b/v.mp4]",
        ),
    ],
)
def test_an_attachment_leaves_a_line(part: Any, line: str) -> None:
    """With its name, type, size and hash; its bytes and the secrets of its address are gone."""
    reading = read({"role": "user", "content": ["看", part]})
    (turn,) = reading.turns
    assert turn.fields["content"] == f"看\n{line}"
    (attachment,) = reading.attachments
    (described,) = read(
        {"role": "user", "content": [part]}, descriptions={attachment: "a cat"}
    ).turns
    assert described.fields["content"] == f"{line[:-1]}: a cat]"
    assert "secret" not in json.dumps(turn.fields)


@each("text", ["我不吃辣", "I can't eat spicy food"])
def test_unknown_keys_become_metadata_and_are_named_once(text: str) -> None:
    message = {"role": "user", "content": text, "mood": "好", "when": {1, 2}, "metadata": {"a": 1}}
    reading = read([message, {**message, "huge": "x" * 9_000}])
    first, second = (turn.fields["metadata"] for turn in reading.turns)
    assert first == second == {"mood": "好", "when": [1, 2], "a": 1}
    assert reading.problems == (
        "unknown key 'mood' of a message, kept as metadata",
        "unknown key 'when' of a message, kept as metadata",
        "unknown key 'huge' of a message, too large to keep",
    )


def test_ids_of_split_messages_stay_the_same_and_lead_to_the_own_id() -> None:
    """Each turn is the parent of the next, the last has the id of the message."""
    calls = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": "hi", "tool_calls": calls, "parent_message_id": "p"}
    for message_id, first in (("m5", "m5.1"), ("x" * 64, None)):
        turns = read({**message, "message_id": message_id}).turns
        again = read({**message, "message_id": message_id}).turns
        one, two = (turn.fields for turn in turns)
        assert (turns, two["message_id"]) == (again, message_id)
        assert one["message_id"] == (first or one["message_id"]) != message_id
        assert (one["parent_message_id"], two["parent_message_id"]) == ("p", one["message_id"])
        parse_turns(turns, Owner("u"), NOW, ContentPolicy(100))


@each("messages", [[None], [{"text": 1}], [{"role": "user", "content": 5}], [[["a"]]], [b"x"]])
def test_what_has_no_shape_is_refused_by_its_place(messages: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(messages)
    assert str(caught.value.details["field"]).startswith("messages[0]")


# In the memory


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(data_dir=tmp_path) as opened:
        yield opened


HISTORY: list[Any] = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "我住在上海。What is the weather?", "name": None},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "function": {"name": "get_profile", "arguments": '{"user": "我喜欢滑雪"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "我住在巴黎。I love skiing in Grenoble."},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "content": "晴。", "color": "red"},
]


def test_tools_are_found_and_never_taken_for_facts(memory: Memory) -> None:
    added = memory.add(HISTORY, "u")
    assert added.skipped == ("messages[4]",)
    assert added.problems == (NO_CONTENT, "unknown key 'color' of a message, kept as metadata")
    assert [it.memory for it in added.results] == ["用户住在上海"]
    (hit, *_) = memory.search("Grenoble skiing", "u", kinds=["message"])
    assert (hit.message.content_type, hit.message.metadata["tool_name"]) == (
        *("tool_result", "get_profile"),
    )
    (hit, *_) = memory.search("get_profile", "u", kinds=["message"])
    assert hit.message.metadata["arguments"] == {"user": "我喜欢滑雪"}
    assert hit.message.content_type == "tool_call"
    assert added.to_dict()["skipped"] == ["messages[4]"]
    assert "skipped" not in memory.add("hi", "u").to_dict()


def test_tools_become_no_notes_without_inference(memory: Memory) -> None:
    added = memory.add(HISTORY, "u", infer=False)
    contents = [it.memory for it in added.results]
    assert contents == ["You are helpful.", HISTORY[1]["content"], "晴。"]


def test_a_batch_without_any_content_stores_nothing(memory: Memory) -> None:
    empty = [{"role": "assistant", "content": None}, {"role": "user", "content": " "}]
    added = memory.add(empty, "u")
    assert (added.skipped, added.problems) == (("messages[0]", "messages[1]"), (NO_CONTENT,))
    ingested = memory.ingest(empty, "u")
    assert (ingested.inserted, ingested.skipped) == ((), ("messages[0]", "messages[1]"))
    misnamed = memory.add([{"role": "user", "text": "I like tea"}], "u")
    assert misnamed.problems == (f"{NO_CONTENT}; it has 'text'",)
    assert memory.messages("u").items == ()


def test_messages_that_were_read_can_be_stored_again(memory: Memory) -> None:
    """Records and their JSON are a format, too; another user's are refused."""
    memory.ingest([{"role": "user", "content": "我不吃辣", "message_id": "m"}], "u")
    (message,) = memory.messages("u").items
    for form in (message, message.to_dict()):
        assert memory.ingest([form], "u").ignored == ("m",)
        with pytest.raises(InvalidArgument, match="user_id"):
            memory.ingest([form], "v")


def test_a_hook_describes_what_is_attached(memory: Memory) -> None:
    """It gets the bytes; what fails leaves the plain line; rules take no fact from the line."""
    seen: list[Attachment] = []

    def describe(attachment: Attachment) -> str | None:
        seen.append(attachment)
        if attachment.kind != "image":
            raise ValueError
        return "我住在\n北京 [sic]"

    memory.process(describe, stage="describe")
    url = f"data:image/png;base64,{b64encode(PNG).decode()}"
    image = {"type": "image_url", "image_url": {"url": url}}
    sound = {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}
    told = [{"role": "user", "content": [image, image, sound]}]
    added = memory.add(told, "u")
    assert [it.data for it in seen] == [PNG, b"abc"]
    assert added.problems == ("hook 'describe' failed: ValueError",)
    assert added.results == ()
    (message,) = memory.messages("u").items
    line = f"{LINE[:-1]}: 我住在 北京 (sic)]"
    assert message.content == f"{line}\n{line}\n[audio audio/wav, 3 bytes, sha256 ba7816bf8f01cfea]"
    assert memory.ingest(told, "u").problems == added.problems


def test_thoughts_are_stored_only_where_a_setting_says_so(tmp_path: Path) -> None:
    told = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "我住在北京"}]}]
    for wanted in (False, True):
        chosen = Settings(data_dir=tmp_path / str(wanted), store_thinking=wanted)
        with Memory(settings=chosen) as memory:
            added = memory.add(told, "u")
            assert (added.results, bool(added.skipped), added.problems) == ((), not wanted, ())
            kinds = [it.content_type for it in memory.messages("u").items]
            assert kinds == (["thinking"] if wanted else [])


# Ids of others


def langchain(number: int, text: str) -> dict[str, Any]:
    return {"type": "human" if number % 2 else "ai", "content": text, "id": f"run-{number}"}


def responses(number: int, text: str) -> dict[str, Any]:
    if number % 3 == 2:
        return {"type": "function_call", "id": f"fc_{number}", "name": "f", "arguments": text}
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "id": f"msg_{number}", "content": content}


@given(
    history=st.lists(st.sampled_from(["好的 ok", "我不吃辣", "I live in Rome"]), max_size=5),
    ends=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    written=st.sampled_from([langchain, responses]),
)
def test_a_history_that_grows_has_each_message_once(
    history: list[str], ends: list[int], written: Callable[[int, str], dict[str, Any]]
) -> None:
    """However often its beginning comes again: ids follow from what others call a message."""
    messages = [written(number, text) for number, text in enumerate(history, start=1)]
    stored: dict[str, Message] = {}
    for at, end in enumerate([*sorted(ends), 5]):
        if part := messages[:end]:
            parsed = parse_messages(part, Owner("u"), NOW + at, ContentPolicy(10_000))
            assert parsed.has_ids
            for message in parsed.messages:
                before = stored.setdefault(message.message_id, message)
                assert before == replace(message, ts=before.ts, ingest_time=before.ingest_time)
    assert len(stored) == len(messages)


def test_an_id_of_others_stands_for_words_in_a_session() -> None:
    """Changed words, other sessions and other users are other messages; metadata has no id."""

    def name_of(message: dict[str, Any], user: str = "u", session: str = "default") -> str:
        owner = Owner(user, session_id=session)
        return parse_messages([message], owner, NOW, ContentPolicy(10_000)).messages[0].message_id

    first = langchain(1, "我不吃辣")
    others = [name_of(langchain(1, "我吃辣")), name_of(langchain(3, "我不吃辣"))]
    others += [name_of(first, "v"), name_of(first, session="s")]
    assert name_of(first) == name_of(dict(first)) not in others
    assert len({*others}) == 4
    assert name_of({**first, "message_id": "m_1"}) == "m_1"
    for nameless in ({"metadata": {"id": "order-7"}}, {"id": ""}, {"id": {"a": 1}}, {"id": True}):
        message = {"role": "user", "content": "hi", **nameless}
        assert name_of(message) != name_of(message)


@pytest.mark.parametrize("key", ["ts", "timestamp", "created_at"])
def test_a_message_is_of_the_time_that_it_bears(key: str) -> None:
    """Also where it counts from 1970; what is no time is kept as metadata."""
    told = {"role": "user", "content": "我住在基辅 I live in Kyiv"}
    (turn,) = read_turns([{**told, key: "2024-05-01T10:00:00Z"}]).turns
    assert turn.fields["ts"] == "2024-05-01T10:00:00Z"
    if key != "ts":
        for count in (1714557600, 1714557600.0, 1714557600_000, 1714557600_000_000):
            reading = read_turns([{**told, key: count}])
            assert reading.turns[0].fields["ts"] == "2024-05-01T10:00:00Z"
            assert reading.turns[0].fields["metadata"] == {key: count} and not reading.problems
        reading = read_turns([{**told, key: 7}] * 2)
        turn, _ = reading.turns
        assert "ts" not in turn.fields and turn.fields["metadata"] == {key: 7}
        (problem,) = reading.problems
        assert problem.startswith(f"{key} of a message is no RFC 3339 time such as ")
        both = read_turns([{**told, key: 1769424420, "ts": "2024-05-01T10:00:00Z"}])
        assert both.turns[0].fields["ts"] == "2024-05-01T10:00:00Z" and not both.problems


OWN = st.sampled_from(
    ["message_id", "ts", "session_id", "agent_id", "content_type", "parent_message_id"]
)
VALUES = st.none() | st.text(max_size=3) | st.integers() | st.just("2026-01-26T10:47:00Z")


@given(
    role=st.sampled_from(["user", "assistant", "human", "ai", "tool", "system", "", None, 3, "x"]),
    content=st.text(max_size=5) | st.sampled_from(["我不吃辣", "I can't eat spicy food", " \n"]),
    rest=st.dictionaries(OWN | st.sampled_from(["user_id", "name", "id"]), VALUES),
    metadata=st.none() | st.dictionaries(st.text(max_size=2), VALUES) | st.just(3),
)
def test_a_simple_message_is_read_as_any_other(
    role: Any, content: str, rest: dict[str, Any], metadata: Any
) -> None:
    """A dict of known fields is read directly; a mapping of another type is not."""
    message = {"role": role, "content": content, **rest, "metadata": metadata}
    assert read_turns([message]) == read_turns([MappingProxyType(message)])
