"""An application gets a memory by another base URL: recall, the guard, the turn that is stored."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import NotFoundError

from kemem.testing import Streamed, calling
from kemem.testing.openai_server import STRICT
from tests.cases import each
from tests.proxied import (
    CHINESE,
    ENGLISH,
    MODEL_NAME,
    RECALL,
    Site,
    Tongue,
    ask,
    joined,
    recalled,
    running_site,
)
from tests.routes import token

EACH = pytest.mark.parametrize("tongue", [CHINESE, ENGLISH], ids=["zh", "en"])
ONE = pytest.mark.parametrize("tongue", [CHINESE], ids=["zh"])
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
EITHER_WAY = pytest.mark.parametrize(
    ("tongue", "stream"), [(CHINESE, True), (ENGLISH, False)], ids=["zh-stream", "en-whole"]
)
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "天气 the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server, and the model that it asks, which takes no history with gaps."""
    data_dir = tmp_path_factory.mktemp("proxy") / "data"
    with running_site(data_dir, strict=STRICT) as running:
        yield running


def user_says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def leak(tongue: Tongue) -> str:
    """A call of recall_memory, written as DeepSeek writes it."""
    query = f'<｜DSML｜parameter name="query" string="true">{tongue.words}</｜DSML｜parameter>'
    invoked = f'<｜DSML｜invoke name="{RECALL}">\n{query}\n</｜DSML｜invoke>\n'
    return f"\n\n<｜DSML｜function_calls>\n{invoked}</｜DSML｜function_calls>"


# Recall


@EACH
@BOTH_WAYS
def test_the_model_is_shown_what_is_remembered(site: Site, tongue: Tongue, stream: bool) -> None:
    """As a call of its own and a result after the user's message, with the tool for real."""
    user = site.new_user(tongue.note)
    site.model.says(tongue.reply, tongue.reply)
    with site.application(user) as client:
        told = ask(client, stream, tongue.asked)
        ask(client, stream, tongue.asked)
    assert (told.text, told.calls, told.finish) == (tongue.reply, (), "stop")
    request, again = site.model.asked
    instructions, said, call, result = request["messages"]
    assert instructions["role"] == "system" and "2" in instructions["content"]
    assert (said, call["role"], result["role"]) == (user_says(tongue.asked), "assistant", "tool")
    (made,) = call["tool_calls"]
    assert made["function"]["name"] == RECALL
    assert json.loads(made["function"]["arguments"]) == {"query": tongue.asked}
    assert made["id"] == result["tool_call_id"] != again["messages"][3]["tool_call_id"]
    assert recalled(request) == [[tongue.note]]
    assert [it["function"]["name"] for it in request["tools"]] == [RECALL]
    assert (request["model"], "user" in request) == (MODEL_NAME, False)


@ONE
async def test_the_asynchronous_client_is_served_alike(site: Site, tongue: Tongue) -> None:
    """Whole and streamed."""
    user = site.new_user(tongue.note)
    site.model.says(tongue.reply, Streamed(tongue.reply, piece=1))
    request: dict[str, Any] = {"model": "kemem", "messages": [user_says(tongue.asked)]}
    async with site.async_application(user) as client:
        whole = await client.chat.completions.create(**request)
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        chunks = [it.to_dict() async for it in await client.chat.completions.create(**request)]
    assert whole.choices[0].message.content == joined(chunks).text == tongue.reply
    assert len(chunks) > len(tongue.reply) // 2  # words come as they are said


@ONE
@pytest.mark.parametrize(("role", "in_parts"), [("system", False), ("developer", True)])
def test_the_instructions_of_the_application_stay_first(
    site: Site, tongue: Tongue, role: str, in_parts: bool
) -> None:
    """What the model is told of its memory follows them in the same message."""
    site.model.says(tongue.reply)
    content: Any = [{"type": "text", "text": tongue.preamble}] if in_parts else tongue.preamble
    messages = [{"role": role, "content": content}, user_says(tongue.asked)]
    with site.application(site.new_user()) as client:
        ask(client, False, messages)
    (request,) = site.model.asked
    assert [it["role"] for it in request["messages"]] == [role, "user", "assistant", "tool"]
    told = request["messages"][0]["content"]
    first, last = (told[0]["text"], told[-1]["text"]) if in_parts else (told, told)
    assert first.startswith(tongue.preamble) and RECALL in last


@EACH
@BOTH_WAYS
@pytest.mark.parametrize("written", [False, True], ids=["called", "leaked"])
def test_a_recall_of_the_model_is_made_on_the_way(
    site: Site, tongue: Tongue, stream: bool, written: bool
) -> None:
    """However it calls: the application sees neither the call nor its result."""
    user = site.new_user(tongue.note)
    call = calling(RECALL, query=tongue.words)
    first = Streamed(leak(tongue), piece=1) if written else Streamed("", calls=(call,))
    site.model.says(first, tongue.reply)
    with site.application(user) as client:
        told = ask(client, stream, tongue.asked)
    assert (told.text, told.calls, told.finish) == (tongue.reply, (), "stop")
    _, second = site.model.asked
    assert recalled(second) == [[tongue.note], [tongue.note]]
    assert second["messages"][:4] == site.model.asked[0]["messages"]
    asked = [it.get("content") for each in site.model.asked for it in each["messages"]]
    assert told.usage["prompt_tokens"] == sum(len(str(it or "")) for it in asked)


@ONE
def test_words_around_a_recall_are_kept_apart(site: Site, tongue: Tongue) -> None:
    """In a stream, what came before it has been shown; a whole answer is the last one."""
    user = site.new_user()
    both = (Streamed(tongue.preamble, calls=(calling(RECALL, query=tongue.words),)), tongue.reply)
    site.model.says(*both, *both)
    with site.application(user) as client:
        streamed = ask(client, True, tongue.asked)
        whole = ask(client, False, tongue.asked)
    assert streamed.text == f"{tongue.preamble}\n\n{tongue.reply}"
    assert whole.text == tongue.reply
    assert site.model.asked[1]["messages"][-2]["content"] == tongue.preamble
    replies = [text for role, text in site.stored(user) if role == "assistant"]
    assert replies == [streamed.text, whole.text]


@EITHER_WAY
def test_a_model_recalls_no_more_often_than_it_may(
    site: Site, tongue: Tongue, stream: bool
) -> None:
    """Beyond the limit it is told so; one that does not stop loses the tool."""
    user = site.new_user(tongue.note)
    site.model.says(*(calling(RECALL, query=tongue.words) for _ in range(50)))
    with site.application(user) as client:
        told = ask(client, stream, tongue.asked)
    assert (told.text, told.calls, told.finish) == (None, (), "stop")
    *_, before, last = site.model.asked
    assert len(site.model.asked) == 5
    assert recalled(before) == [[tongue.note]] * 3 + [[]]
    results = [it["content"] for it in before["messages"] if it["role"] == "tool"]
    assert [tongue.limit_reached in it for it in results] == [False] * 3 + [True]
    assert "tools" not in last and [it["role"] for it in last["messages"]] == ["system", "user"]
    assert tongue.note in last["messages"][0]["content"]
    assert site.stored(user) == [("user", tongue.asked)]


@EITHER_WAY
def test_a_model_that_lost_the_tool_answers_and_keeps_those_of_the_application(
    site: Site, tongue: Tongue, stream: bool
) -> None:
    user = site.new_user(tongue.note)
    weather = {"type": "function", "function": {"name": "weather", "parameters": {}}}

    def call_while_it_can(request: dict[str, Any]) -> Any:
        names = [it["function"]["name"] for it in request["tools"]]
        return calling(RECALL, query=tongue.words) if RECALL in names else tongue.reply

    site.model.says(*[call_while_it_can] * 50)
    with site.application(user) as client:
        told = ask(client, stream, tongue.asked, tools=[weather])
    assert (told.text, told.finish) == (tongue.reply, "stop")
    assert site.model.asked[-1]["tools"] == [weather]
    assert site.stored(user)[-1] == ("assistant", tongue.reply)


@ONE
def test_what_the_conversation_shows_is_not_recalled(site: Site, tongue: Tongue) -> None:
    """Neither the message itself nor what was said before; what is not shown any more is.

    A fact that has been drawn from it meanwhile may be: it says more.
    """
    user = site.new_user()
    site.model.says(tongue.reply, tongue.reply, tongue.reply)
    with site.application(user) as client:
        first = [user_says(tongue.note)]
        ask(client, False, first)
        talk = [*first, {"role": "assistant", "content": tongue.reply}, user_says(tongue.asked)]
        ask(client, False, talk)
        ask(client, False, talk[2:])
    results = [it["content"] for it in site.model.asked[1]["messages"] if it["role"] == "tool"]
    kinds = [it["kind"] for result in results for it in json.loads(result)["events"]]
    assert len(results) == 1 and "message" not in kinds
    assert tongue.note in recalled(site.model.asked[2])[0]


# What is stored


@EITHER_WAY
def test_a_turn_is_stored_once_however_often_it_is_sent(
    site: Site, tongue: Tongue, stream: bool
) -> None:
    """Also where instructions tell another time; the same words later on are another message."""
    user = site.new_user()
    site.model.says(*[tongue.reply] * 4)
    with site.application(user, session="s_1", agent="a_1") as client:
        turn = [user_says(tongue.asked)]
        ask(client, stream, turn)
        ask(client, stream, turn)
        ask(client, stream, [{"role": "system", "content": "12:01"}, *turn])
        once = [("user", tongue.asked), ("assistant", tongue.reply)]
        assert site.stored(user) == once
        reply = client.chat.completions.create(model="kemem", messages=turn).choices[0].message  # type: ignore[arg-type]
        site.model.says(tongue.reply)
        ask(client, stream, [*turn, reply.model_dump(), *turn])
    assert site.stored(user) == once * 2
    places = {(it["session_id"], it["agent_id"]) for it in site.messages(user)}
    assert places == {("s_1", "a_1")}


@EITHER_WAY
def test_images_pass_and_leave_a_line(site: Site, tongue: Tongue, stream: bool) -> None:
    """Parts with text are joined; for a message without words nothing is recalled."""
    user = site.new_user()
    site.model.says(tongue.reply, tongue.preamble)
    words = [{"type": "text", "text": tongue.asked}, PIXEL, {"type": "text", "text": tongue.words}]
    with site.application(user) as client:
        ask(client, stream, [{"role": "user", "content": words}])
        ask(client, stream, [{"role": "user", "content": [PIXEL]}])
    first, second = site.model.asked
    assert first["messages"][1]["content"] == words
    assert [it["role"] for it in second["messages"]] == ["system", "user"]
    assert second["messages"][1]["content"] == [PIXEL]
    (_, both), *rest = site.stored(user)
    text, line, words_after = both.split("\n")
    assert (text, line[:17], words_after) == (tongue.asked, "[image image/png,", tongue.words)
    replies = [("assistant", tongue.reply), ("user", line), ("assistant", tongue.preamble)]
    assert rest == replies


@EITHER_WAY
@pytest.mark.parametrize("piece", [1, 1000])
def test_no_leak_reaches_the_application_or_the_log(
    site: Site, tongue: Tongue, stream: bool, piece: int
) -> None:
    """Words around it do; a tool that nobody offers is not run."""
    user = site.new_user()
    leaked = leak(tongue).replace(RECALL, "delete_all")
    site.model.says(Streamed(f"{tongue.preamble}{leaked}\n{tongue.reply}", piece=piece))
    with site.application(user) as client:
        told = ask(client, stream, tongue.asked)
    assert told.text and told.calls == ()
    assert told.text.startswith(tongue.preamble) and told.text.endswith(tongue.reply)
    assert "DSML" not in told.text and "delete_all" not in told.text
    assert site.stored(user)[1] == ("assistant", told.text)


# The application's own fields and tools


@EITHER_WAY
def test_other_fields_reach_the_model_unchanged(site: Site, tongue: Tongue, stream: bool) -> None:
    """Known ones, null ones, and those that only one vendor knows; names of ours cannot be set."""
    sent = {"temperature": 0.2, "seed": 7, "stop": ["。"], "max_tokens": None, "logit_bias": {}}
    odd = {"thinking": {"type": "enabled"}, "timeout": 1, "extra_headers": {"X-Key": tongue.words}}
    site.model.says(tongue.reply)
    with site.application(site.new_user()) as client:
        ask(client, stream, tongue.asked, model="qwen3", extra_body={**sent, **odd})
        (request,) = site.model.asked
        schema = {"type": "json_schema", "json_schema": {"name": tongue.words, "schema": {}}}
        ask(client, stream, tongue.asked, response_format=schema)
    assert {name: request[name] for name in [*sent, *odd]} == {**sent, **odd}
    assert request["model"] == "qwen3"
    formatted = [it for it in site.upstream.requests if it.get("response_format") == schema]
    assert len(formatted) == 1 and len(recalled(formatted[0])) == 1


@ONE
@BOTH_WAYS
def test_calls_of_the_applications_tools_are_its_own(
    site: Site, tongue: Tongue, stream: bool
) -> None:
    """Also where the model recalls in the same breath; the final text knows the memories, too."""
    user = site.new_user(tongue.note)
    weather = calling("get_weather", city=tongue.words)
    recall = calling(RECALL, query=tongue.words)
    site.model.says(Streamed(tongue.preamble, calls=(recall, weather, weather)), tongue.reply)
    with site.application(user) as client:
        turn: list[Any] = [user_says(tongue.asked)]
        told = ask(client, stream, turn, tools=[WEATHER])
        assert told.calls == (("get_weather", {"city": tongue.words}),) * 2
        assert (told.text, told.finish) == (tongue.preamble, "tool_calls")
        assert site.stored(user) == [("user", tongue.asked)]
        function = {"name": "get_weather", "arguments": weather.arguments}
        call = {"id": weather.id, "type": "function", "function": function}
        turn += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        turn += [{"role": "tool", "tool_call_id": weather.id, "content": "12 °C"}]
        last = ask(client, stream, turn, tools=[WEATHER])
    first, second = site.model.asked
    assert first["tools"][0] == WEATHER
    assert [it["function"]["name"] for it in second["tools"]] == ["get_weather", RECALL]
    assert (last.text, recalled(second)) == (tongue.reply, recalled(first))
    assert [it["role"] for it in second["messages"][1:4]] == ["user", "assistant", "tool"]
    assert second["messages"][-1]["content"] == "12 °C"
    assert site.stored(user) == [
        ("user", tongue.asked),
        ("tool", f"get_weather({weather.arguments})"),
        ("tool", "12 °C"),
        ("assistant", tongue.reply),
    ]


@EITHER_WAY
@each("why", ["own tool", "none", "functions"])
def test_memories_are_told_where_there_is_no_room_for_a_tool(
    site: Site, tongue: Tongue, stream: bool, why: str
) -> None:
    """In the instructions, as data; an application's recall_memory is the application's."""
    user = site.new_user(tongue.note)
    own = {**WEATHER, "function": {**WEATHER["function"], "name": RECALL}}
    reasons: dict[str, Any] = {
        "own tool": {"tools": [own]},
        "none": {"tools": [WEATHER], "tool_choice": "none"},
        "functions": {"functions": [WEATHER["function"]]},
    }
    call = calling(RECALL, city=tongue.words)
    site.model.says(call if why == "own tool" else tongue.reply)
    with site.application(user) as client:
        told = ask(client, stream, tongue.asked, **reasons[why])
    expected = ((RECALL, {"city": tongue.words}),) if why == "own tool" else ()
    assert told.calls == expected
    (request,) = site.model.asked
    instructions, said = request["messages"]
    assert "<memories>" in instructions["content"] and tongue.note in instructions["content"]
    assert said == user_says(tongue.asked)
    assert request.get("tools") == ([own] if why == "own tool" else None)


# Whose memory


@EITHER_WAY
def test_a_token_reaches_the_memory_of_its_own_user(
    site: Site, tongue: Tongue, stream: bool
) -> None:
    """Named or not, by the header or by the field; another's is not there."""
    alice, bob = site.new_user(tongue.note), site.new_user()
    site.model.says(*[tongue.reply] * 4)
    with site.application(None, token(alice)) as client:
        ask(client, stream, tongue.asked)
        ask(client, stream, tongue.asked, user=alice)
        named_bob = {"X-KeMem-User": bob}
        others: list[dict[str, Any]] = [{"user": bob}, {"extra_headers": named_bob}]
        others += [{"user": alice, "extra_headers": named_bob}]
        for named in others:
            with pytest.raises(NotFoundError):
                ask(client, stream, tongue.asked, **named)
    with site.application(None, token(bob)) as client:
        ask(client, stream, tongue.asked)
    found = [tongue.note in recalled(it)[0] for it in site.model.asked]
    assert found == [True, True, False]
    assert site.stored(bob) == site.stored(alice)  # each has one turn of their own


@ONE
def test_an_operator_names_the_user_in_either_way(site: Site, tongue: Tongue) -> None:
    """Percent-encoded in the header; the field does not reach the model."""
    user = site.new_user(tongue.note)
    site.model.says(*[tongue.reply] * 2)
    with site.application(None) as client:
        ask(client, False, tongue.asked, user=user)
    encoded = "".join(f"%{byte:02x}" for byte in user.encode())
    with site.application(encoded) as client:
        ask(client, False, tongue.asked)
    assert all(tongue.note in recalled(it)[0] for it in site.model.asked)
    assert all("user" not in it for it in site.model.asked)


@ONE
def test_sensitive_memories_need_the_claim(site: Site, tongue: Tongue) -> None:
    """Neither an operator's key nor a token without it shows them to the model."""
    user = site.new_user(tongue.note, sensitive=True)
    site.model.says(*[tongue.reply] * 3)
    for bearer in (None, token(user), token(user, sensitive=True)):
        with site.application(user, *([bearer] if bearer else [])) as client:
            ask(client, False, tongue.asked)
    seen = [tongue.note in recalled(it)[0] for it in site.model.asked]
    assert seen == [False, False, True]
