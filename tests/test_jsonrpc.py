"""JSON-RPC 2.0: the examples of the specification, and what is sent to break it."""

import asyncio
import json
from typing import Annotated, Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from kemem.errors import (
    Conflict,
    Exhausted,
    InvalidArgument,
    KeMemError,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from kemem.serve.rpc.jsonrpc import MAX_BATCH, Method, respond
from tests.cases import each

PARSE_ERROR = {"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": None}
INVALID = {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": None}


called: list[tuple[int, int]] = []


async def subtract(minuend: int, subtrahend: Annotated[int, Field(ge=0)]) -> object:
    called.append((minuend, subtrahend))
    return minuend - subtrahend


async def get_data() -> object:
    return ["hello 你好", 5]


async def echo(text: str) -> object:
    return {"text": text}


async def fail(text: str) -> object:
    raise FAILURES[text]


FAILURES: dict[str, Exception] = {
    "NOT_FOUND": NotFound("not found"),
    "CONFLICT": Conflict("it exists"),
    "PERMISSION_DENIED": PermissionDenied("no"),
    "RESOURCE_EXHAUSTED": Exhausted("too much"),
    "INVALID_ARGUMENT": InvalidArgument("错了 wrong"),
    "UNAVAILABLE": Unavailable("cannot reach db.internal:5432 机密"),
    "INTERNAL": RuntimeError("password hunter2 机密"),
}
METHODS: dict[str, Method] = {
    "subtract": subtract,
    "update": subtract,
    "get_data": get_data,
    "echo": echo,
    "fail": fail,
}


def ask(sent: object) -> Any:
    """The answer to a text, or to what JSON can say; None where there is none."""
    raw = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    answer = asyncio.run(respond(raw, METHODS))
    return None if answer is None else json.loads(answer)


def request(method: str, params: object = None, **more: object) -> dict[str, object]:
    """A request without an id, unless one is given."""
    named = {} if params is None else {"params": params}
    return {"jsonrpc": "2.0", "method": method, **named, **more}


def code(answer: Any) -> int:
    """The code of an error, whose form is that of the specification."""
    assert answer.keys() == {"jsonrpc", "error", "id"} and answer["jsonrpc"] == "2.0"
    assert {"code", "message"} <= answer["error"].keys() <= {"code", "message", "data"}
    number = answer["error"]["code"]
    assert isinstance(number, int) and isinstance(answer["error"]["message"], str)
    return number


# The examples of the specification


@each(
    ("params", "id_", "result"),
    [
        ([42, 23], 1, 19),
        ([23, 42], 2, -19),
        ({"subtrahend": 23, "minuend": 42}, 3, 19),
        ({"minuend": 42, "subtrahend": 23}, 4, 19),
    ],
)
def test_parameters_go_by_position_or_by_name(params: object, id_: int, result: int) -> None:
    answer = ask(request("subtract", params, id=id_))
    assert list(answer.items()) == [("jsonrpc", "2.0"), ("result", result), ("id", id_)]


@each(
    "sent",
    [
        request("update", [1, 2]),
        request("foobar"),
        request("subtract", {"minuend": "3"}),
        request("subtract", [1, 2, 3]),
        request("fail", ["INTERNAL"]),
        request("__class__"),
        [request("update", [1, 2]), request("没有", ["你好"])],
    ],
)
def test_a_notification_gets_no_answer(sent: object) -> None:
    """Whatever is wrong with it."""
    assert ask(sent) is None


def test_a_notification_is_carried_out() -> None:
    called.clear()
    assert ask(request("update", [7, 5])) is None
    assert called == [(7, 5)]


@each(
    "raw",
    [
        b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]',
        b'[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},'
        b'{"jsonrpc": "2.0", "method"]',
        b"",
        b"\xff\xfe",
        '{"jsonrpc": "2.0", "method": "get_data", "id": 1}'.encode("utf-16"),
        '{"jsonrpc": "2.0", "method": "get_data", "id": 1}'.encode("utf-16-le"),
        b'\xef\xbb\xbf{"jsonrpc": "2.0", "method": "get_data", "id": 1}',
        b'{"jsonrpc": "2.0", "method": "echo", "params": ["\xc3\x28"], "id": 1}',
        b'{"jsonrpc": "2.0", "method": "echo", "params": ["\\ud800"], "id": 1}',
        b'{"jsonrpc": "2.0", "method": "echo", "params": ["x"], "id": "\\udfff"}',
        b'{"jsonrpc": "2.0", "method": "echo", "params": [NaN], "id": 1}',
        b'{"jsonrpc": "2.0", "method": "echo", "params": [-Infinity], "id": 1}',
        b'{"jsonrpc": "2.0", "method": "echo", "params": [' + b"1" * 5000 + b'], "id": 1}',
        b"[" * 100_000,
        b'{"params":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_what_is_no_json_is_a_parse_error(raw: bytes) -> None:
    assert ask(raw) == PARSE_ERROR


@each(
    "sent",
    [
        {"jsonrpc": "2.0", "method": 1, "params": "bar"},
        1,
        "你好",
        None,
        {},
        [],
        {"method": "get_data"},
        {"jsonrpc": 2.0, "method": "get_data"},
        {"jsonrpc": "1.0", "method": "get_data"},
        {"jsonrpc": "2.0", "method": None},
        request("get_data", "bar"),
        request("get_data", 5),
        request("get_data", id=True),
        request("get_data", id=[1]),
        request("get_data", id={"a": 1}),
        b'{"jsonrpc": "2.0", "method": "get_data", "id": 1e999}',
    ],
)
def test_what_is_no_request_is_invalid(sent: object) -> None:
    assert ask(sent) == INVALID


def test_an_invalid_request_is_answered_with_its_id() -> None:
    for id_ in (7, "中"):
        assert ask({"jsonrpc": "2.0", "method": 1, "id": id_}) == {**INVALID, "id": id_}


def test_batches_are_answered_as_the_specification_shows() -> None:
    assert ask([1]) == [INVALID]
    assert ask([1, 2, 3]) == [INVALID] * 3
    mixed = [
        request("subtract", [42, 23], id="2"),
        request("update", [7, 5]),
        {"foo": "boo"},
        request("foo.get", {"name": "myself"}, id="5"),
        request("get_data", id="9"),
    ]
    missing = {"code": -32601, "message": "Method not found: 'foo.get'"}
    assert ask(mixed) == [
        {"jsonrpc": "2.0", "result": 19, "id": "2"},
        INVALID,
        {"jsonrpc": "2.0", "error": missing, "id": "5"},
        {"jsonrpc": "2.0", "result": ["hello 你好", 5], "id": "9"},
    ]


def test_a_batch_has_a_largest_size() -> None:
    """One error for all of it, and nothing of it is done."""
    called.clear()
    assert len(ask([request("get_data", id=1)] * MAX_BATCH)) == MAX_BATCH
    for size in (MAX_BATCH + 1, 20_000):
        answer = ask([request("update", [7, 5], id=1)] * size)
        assert (code(answer), answer["id"]) == (-32600, None)
        assert str(MAX_BATCH) in answer["error"]["message"]
    assert called == []


# What must not break it


@each("method", ["get_data", "nothing"])
def test_an_id_comes_back_with_its_type(method: str) -> None:
    for id_ in (1, 0, -1, "", "1", "中", 1.5, 2**53, 2**53 + 1, 10**4000, None):
        answer = ask(request(method, id=id_))
        assert answer["id"] == id_ and type(answer["id"]) is type(id_)


@each(
    "name",
    ["rpc.discover", "rpc.", "__class__", "__init__", "_answer", "keys", "get", "", "方法", "\0"],
)
def test_only_methods_of_the_table_can_be_called(name: str) -> None:
    """Nothing is looked up by name on any object."""
    assert code(ask(request(name, id=1))) == -32601


@each(
    "params",
    [
        [],
        [1],
        ["3", 1],
        [3, -1],
        [1, 2, 3],
        [True, 1],
        [1.0, 1],
        [None, None],
        {"minuend": 1},
        {"minuend": 1, "subtrahend": 1, "额外 extra": 1},
        {"minuend": 1, "subtrahend": [[[]]]},
        {"Minuend": 1, "subtrahend": 1},
    ],
)
def test_wrong_parameters_are_refused(params: object) -> None:
    """With the reason, and nothing is called."""
    called.clear()
    answer = ask(request("subtract", params, id=1))
    assert code(answer) == -32602
    assert answer["error"]["message"].startswith("Invalid params: ")
    assert answer["error"]["data"] == {"code": "INVALID_ARGUMENT"}
    assert called == []


def test_parameters_that_are_null_are_no_parameters() -> None:
    """Not an object and not a list, but what some clients send for none."""
    assert ask(b'{"jsonrpc": "2.0", "method": "get_data", "params": null, "id": 1}') == {
        **INVALID,
        "id": 1,
    }


@each(
    ("name", "number"),
    [
        ("INVALID_ARGUMENT", -32602),
        ("PERMISSION_DENIED", -32003),
        ("NOT_FOUND", -32004),
        ("CONFLICT", -32009),
        ("RESOURCE_EXHAUSTED", -32013),
        ("UNAVAILABLE", -32050),
        ("INTERNAL", -32603),
    ],
)
def test_a_failure_has_the_code_of_its_kind(name: str, number: int) -> None:
    """What is no fault of the caller is not explained to them."""
    answer = ask(request("fail", {"text": name}, id=1))
    assert code(answer) == number
    assert answer["error"]["data"] == {"code": name}
    assert "机密" not in answer["error"]["message"]
    known = FAILURES[name]
    if isinstance(known, KeMemError) and name != "UNAVAILABLE":
        assert known.message in answer["error"]["message"]


@each("text", ["我不吃辣", "I can't eat spicy food", "\0", "😀", "\u2028"])
def test_texts_come_back_as_they_went(text: str) -> None:
    assert ask(request("echo", [text], id=text)) == {
        "jsonrpc": "2.0",
        "result": {"text": text},
        "id": text,
    }


@given(raw=st.binary(max_size=200))
def test_no_bytes_break_it(raw: bytes) -> None:
    """Any bytes get one error object, or none where they happen to be a notification."""
    answer = ask(raw)
    assert answer is None or code(answer) in (-32700, -32600)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "method": st.sampled_from([*METHODS, "none"]) | JSON,
        "params": JSON,
        "id": JSON,
    },
)


@given(sent=st.lists(REQUESTS | JSON, min_size=1, max_size=5))
def test_every_request_of_a_batch_is_answered_by_itself(sent: list[Any]) -> None:
    """A batch is answered as its requests one by one; bad input is never a fault of the server."""
    raw = json.dumps(sent).encode()
    if ask(raw) == PARSE_ERROR:  # NaN, or half a character
        return
    alone = [ask([each]) for each in sent]
    answers = [answer[0] for answer in alone if answer is not None]
    assert ask(raw) == (answers or None)
    assert all("result" in it or code(it) != -32603 for it in answers)
