"""What has ended: below what replaced it, in no prompt, and first where the past is asked for."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from kemem import AsyncMemory, InvalidArgument, Memory
from kemem.compat.tools import ToolContext
from kemem.ports.request import Context, key_of
from kemem.records import Message
from kemem.results import Hit
from kemem.search.endings import below_successors
from kemem.serve.mcp.server import create_mcp
from kemem.serve.rpc.methods import MemoryTools
from kemem.settings import load
from kemem.testing import HashingEmbedder, ScriptedLLM, calling
from tests.chats import results, staged
from tests.command import kemem
from tests.proxied import ask, recalled, running_site
from tests.recalls import handing

JANUARY, MARCH = "2026-01-05T09:00:00Z", "2026-03-05T09:00:00Z"


@dataclass(frozen=True, slots=True)
class Talk:
    """Something that was so, what it became, and how people ask for either."""

    before: str
    after: str
    old: str  # a word of what was so
    new: str
    question: str
    past_question: str
    words: str  # a query that is no question
    asked: str  # by the assistant
    answer: str
    about_answer: str


TALKS = {
    "zh": Talk(
        *("我住在成都", "我搬到厦门了", "成都", "厦门"),
        *("我住在哪里？", "我以前住在哪里？", "住在 城市"),
        *("真好！你家的狗叫什么名字？", "豆包", "我的狗叫什么名字？"),
    ),
    "en": Talk(
        *("I live in Berlin.", "I moved to Munich.", "Berlin", "Munich"),
        *("Where do I live?", "Where did I live before?", "live moved"),
        *("Lovely! What is your dog called?", "Biscuit.", "What is my dog called?"),
    ),
}
EACH = pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)
OPTIONS = {"embedder": "none", "llm": "none"}


def tell(talk: Talk) -> list[dict[str, Any]]:
    """The arguments of the calls that tell a memory both."""
    return [
        {"messages": talk.before, "session_id": "s1", "timestamp": JANUARY},
        {"messages": talk.after, "session_id": "s2", "timestamp": MARCH},
    ]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    settings = load(data_dir=tmp_path, **OPTIONS)
    with Memory(settings=settings, embedder=HashingEmbedder()) as memory:
        yield memory


@pytest.fixture
def told(memory: Memory, talk: Talk) -> Memory:
    for call in tell(talk):
        memory.add(user_id="u", **call)
    return memory


# Searches


@EACH
def test_what_has_ended_ranks_below_what_replaced_it(told: Memory, talk: Talk) -> None:
    """In whatever way it is asked for; it says when it ended and what replaced it."""
    (note,) = told.get_all("u")
    for query in (talk.question, talk.words, talk.before):
        for hits in (told.search(query, "u"), told.hybrid_search(query, "u")):
            texts = [hit.memory for hit in hits]
            old, new = (
                texts.index(next(text for text in texts if word in text))
                for word in (talk.old, talk.new)
            )
            assert new < old
            assert hits[old].superseded_by == note.id and hits[new].ended is None
            assert hits[old].to_dict()["valid_until"].startswith("2026-03-05")
    (hit,) = told.lexical_search(f'"{talk.old}"', "u").items
    assert hit.marks["superseded_by"] == note.id


@EACH
def test_the_past_comes_first_where_it_is_asked_for(told: Memory, talk: Talk) -> None:
    """By the words of a question, by the time that it names, or by `past`; marked as such."""
    for query, past in ((talk.past_question, False), (talk.question, True)):
        first = told.search(query, "u", past=past)[0]
        assert talk.old in first.memory and first.ended is not None
        notes = told.search(query, "u", kinds=["user_info"], past=past)
        (note,) = [it for it in notes if it.ended]
        assert talk.old in note.memory and note.superseded_by
        evidence = told.recall(query, "u", past=past).evidence
        assert talk.old in evidence[0].content and evidence[0].valid_until is not None
        assert evidence[0].to_dict()["superseded_by"] == note.superseded_by


@EACH
def test_a_prompt_does_not_show_it_unless_asked(told: Memory, talk: Talk) -> None:
    assert talk.old in "".join(hit.memory for hit in told.search(talk.question, "u"))
    for find in (told.search, told.recall):
        prompt = str(find(talk.question, "u"))
        assert talk.new in prompt and talk.old not in prompt
        prompt = str(find(talk.question, "u", past=True))
        assert "2026-03-05" in next(it for it in prompt.splitlines() if talk.old in it)
    assert talk.old not in f"{told.search(talk.words, 'u')}{told.recall(talk.words, 'u')}"


@pytest.mark.parametrize(
    ("first", "then", "question", "right"),
    [
        ("I'm 34.", "Actually I'm 35.", "How old am I?", "35"),
        ("My son Max is 7.", "Max is 8 now.", "How old is Max?", "8"),
        ("我今年34岁。", "我今年35岁了。", "我多大了？", "35"),
    ],
)
def test_how_old_somebody_is_does_not_ask_for_the_past(
    memory: Memory, first: str, then: str, question: str, right: str
) -> None:
    memory.add(first, user_id="u", timestamp="2026-01-05T10:00:00Z")
    memory.add(then, user_id="u", timestamp="2026-02-05T10:00:00Z")
    assert right in memory.search(question, user_id="u")[0].memory


@pytest.mark.parametrize(
    ("first", "then", "place"),
    [
        ("I live in Derby with my sister.", "I've moved into a small flat in Hove.", "Hove"),
        ("I live in Derby.", "We moved into an apartment in Aarhus last weekend.", "Aarhus"),
        ("I live in Leeds.", "moved into a narrow house in Ghent, the piano barely fits", "Ghent"),
        (
            "I live in Leeds.",
            "We broke up last week, I'm staying at my parents' for now",
            "parents",
        ),
        ("我住在滨江区。", "上周分手了，我先回我妈那儿住了", "妈那儿"),
        ("我住在滨江区，离公司走路十分钟。", "我从滨江搬到西湖区了，跟表哥一起住。", "西湖区"),
        ("我妈住在绵阳。", "我妈上个月从绵阳搬来成都了。", "成都"),
    ],
)
def test_a_move_ends_the_home_before(memory: Memory, first: str, then: str, place: str) -> None:
    memory.add(first, user_id="u", timestamp="2026-01-05T10:00:00Z")
    memory.add(then, user_id="u", timestamp="2026-02-05T10:00:00Z")
    (home,) = memory.get_all(user_id="u", filters={"memory_type": "residence"})
    assert place in home.memory


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ("I work at Siemens.", "First day at Bosch done, so tired", "Bosch"),
        ("I work at Siemens.", "I quit my job yesterday", "quit"),
        ("I work at Siemens.", "Handed in my notice today, feels great", "notice"),
        ("I work at Siemens.", "today was my last day at Siemens, bit sad", "last day"),
        ("我在腾讯上班。", "我昨天从腾讯离职了", "离职"),
        ("我在腾讯上班。", "我今天交了辞职信", "辞职信"),
    ],
)
def test_a_new_job_or_a_last_day_ends_the_job_before(
    memory: Memory, first: str, then: str, told: str
) -> None:
    memory.add(first, user_id="u", timestamp="2026-01-05T10:00:00Z")
    memory.add(then, user_id="u", timestamp="2026-02-05T10:00:00Z")
    (job,) = memory.get_all(user_id="u", filters={"memory_type": "work"})
    assert told in job.memory


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("I work at Siemens.", "I'm quitting my job next month"),
        ("我在腾讯上班。", "我下个月要离职"),
    ],
)
def test_a_job_that_will_end_has_not_ended(memory: Memory, first: str, then: str) -> None:
    memory.add(first, user_id="u", timestamp="2026-01-05T10:00:00Z")
    memory.add(then, user_id="u", timestamp="2026-02-05T10:00:00Z")
    (job,) = memory.get_all(user_id="u", filters={"memory_type": "work"})
    assert job.memory.endswith(("Siemens", "上班"))


@EACH
def test_as_of_an_earlier_time_it_had_not_ended(told: Memory, talk: Talk) -> None:
    hits = told.search(talk.question, "u", as_of="2026-02-01T00:00:00Z")
    assert all(hit.ended is None for hit in hits)
    assert talk.old in str(hits) and talk.new not in str(hits)


def test_a_time_in_the_question_asks_for_what_was_so_then(memory: Memory) -> None:
    for call in tell(TALKS["en"]):
        memory.add(user_id="u", **call)
    assert "Berlin" in str(memory.search("Where did I live in February 2026?", "u"))
    assert "Berlin" not in str(memory.search("Where do I live?", "u"))


def test_a_message_that_says_something_else_too_has_not_ended(memory: Memory) -> None:
    memory.add("I live in Berlin. I can't eat spicy food.", "u", timestamp=JANUARY)
    memory.add("I moved to Munich.", "u", timestamp=MARCH)
    hits = memory.search("Berlin", "u", kinds=["message"])
    assert [hit.ended for hit in hits if "Berlin" in hit.memory] == [None]


@EACH
def test_a_message_whose_note_was_rewritten_by_hand_is_the_past(memory: Memory, talk: Talk) -> None:
    """It said what the note says no longer; a change of metadata changes nothing."""
    memory.add(user_id="u", **tell(talk)[0])
    (note,) = memory.get_all("u")
    memory.update(note.id, metadata={"checked": True})
    assert all(hit.ended is None for hit in memory.search(talk.question, "u"))
    memory.update(note.id, note.memory.replace(talk.old, talk.new))
    hits = memory.search(talk.question, "u")
    assert [talk.old in hit.memory for hit in hits] == [False, True]
    assert (hits[0].ended, hits[1].superseded_by) == (None, note.id)
    assert talk.old not in str(hits) and talk.old not in str(memory.recall(talk.question, "u"))
    assert talk.old in memory.search(talk.past_question, "u")[0].memory
    memory.add(note.memory.replace(talk.old, talk.new), "u", timestamp="2031-01-01T00:00:00Z")
    said = memory.search(talk.new, "u", kinds=["message"])
    assert [hit.ended for hit in said if talk.new in hit.memory] == [None]  # what supports it now


def test_what_has_expired_is_not_the_past(memory: Memory) -> None:
    memory.add("I live in Berlin.", "u", timestamp=JANUARY, expires_at=MARCH)
    assert memory.search("Where did I live before?", "u", kinds=["user_info"]).items == ()
    assert memory.search("Where do I live?", "u", kinds=["user_info"], past=True).items == ()


def test_past_is_true_or_false(memory: Memory) -> None:
    for call in (memory.search, memory.recall, memory.hybrid_search):
        with pytest.raises(InvalidArgument, match="past must be True or False, not 'yes'"):
            call("x", "u", past="yes")  # type: ignore[arg-type]


MOVES = {
    "Where do I live?": ("I live in Berlin.", "I moved to Munich.", "Where do people of {} live?"),
    "我住在哪里？": ("我住在北京。", "我搬到上海了。", "第{}区的人住在哪里？"),
}


@pytest.mark.parametrize(("question", "place"), [*zip(MOVES, ("Munich", "上海"), strict=True)])
def test_the_first_hit_is_the_same_for_every_limit(
    memory: Memory, question: str, place: str
) -> None:
    """What took the place of an answer is brought in, however far from the question it is."""
    old, new, noise = MOVES[question]
    others = [{"role": "user", "content": noise.format(at)} for at in range(150)]
    memory.add(others, "u", timestamp=JANUARY, infer=False)
    memory.add(old, "u", timestamp=JANUARY)
    memory.add(new, "u", timestamp=MARCH)
    for limit in (1, 3, 10, 100, 1000):
        assert place in memory.search(question, "u", limit=limit)[0].memory


CHAINS = st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True)


@given(CHAINS, st.integers(1, 3))
def test_nothing_that_has_ended_stands_above_its_successor(order: list[int], step: int) -> None:
    """Each is replaced by the number above it, in a note "n" that cites the message of it."""
    hits, contexts = [], {}
    for place, number in enumerate(order):
        row = Message(f"m{number}", "a", "u", "s", "user", "x", number, number)
        by = f"n{number + step}" if number + step < 8 else None
        ended = number if by else None
        hits.append(Hit(row, 1 - place / 10, ended=ended, superseded_by=by))
        successors = frozenset(f"m{later}" for later in range(number + step, 8, step))
        contexts[key_of(row)] = Context(ended=ended, superseded_by=by, successors=successors)
    ranked = below_successors(hits, {}, contexts)
    places = {hit.id: place for place, hit in enumerate(ranked)}
    assert sorted(places) == sorted(hit.id for hit in hits)
    assert [hit.score for hit in ranked] == [hit.score for hit in hits]
    for number in order:
        if f"m{number + step}" in places:
            assert places[f"m{number + step}"] < places[f"m{number}"]


# A recall that a model plans


async def test_a_model_is_shown_it_only_where_it_asks_for_the_past(tmp_path: Path) -> None:
    talk, any_score = TALKS["en"], {"min_relevance_score": 0.0, "limit": 10}
    now, past = (
        calling("search_memories", query=query, **any_score) for query in ("live", "live former")
    )
    settings = load(data_dir=tmp_path, **OPTIONS)
    async with AsyncMemory(settings=settings) as memory:
        for call in tell(talk):
            await memory.add(user_id="u", **call)
    for search, shown in ((now, False), (past, True)):
        llm = ScriptedLLM([search, handing()])
        async with AsyncMemory(settings=settings, llm=llm) as memory:
            result = await memory.recall("city?", "u", session_id="s2")
        assert (talk.old in str(llm.calls)) is shown
        assert any(step.keys for step in result.trace)


# Short answers


@EACH
async def test_a_short_answer_is_shown_with_the_question_before_it(
    tmp_path: Path, talk: Talk
) -> None:
    async with staged(tmp_path) as stage:
        memory = stage.memory
        turns = [("assistant", talk.asked), ("user", talk.answer)]
        messages = [{"role": role, "content": content} for role, content in turns]
        await memory.add(messages, "u", session_id="s1")
        question = talk.asked[3:] if talk.asked[0] == "真" else talk.asked.partition("! ")[2]
        hit = (await memory.search(talk.about_answer, "u"))[0]
        assert (hit.memory, hit.in_reply_to) == (talk.answer, question)
        assert f"assistant: {question} user: {talk.answer}" in str(hit)
        recalled = await memory.recall(talk.about_answer, "u")
        assert f"assistant: {question} user: {talk.answer}" in str(recalled)
        stage.model.says("ok")
        await stage.turn(talk.about_answer, "u", "s2")
        (shown,) = results(stage.model.asked[0])
        (answer,) = [it for it in shown["events"] if it["content"] == talk.answer]
        assert answer["in_reply_to"] == question
        context = ToolContext(memory.for_user("u"), shared=None)
        async with Client(create_mcp(lambda _: context, "en")) as client:
            for tool, arguments in (
                ("search_memories", {"query": talk.about_answer, "min_relevance_score": 0.0}),
                ("search_memories", {"query": talk.answer, "min_relevance_score": 0.0}),
                ("recall_memories", {"question": talk.about_answer}),
            ):
                told = await client.call_tool(tool, arguments)
                assert question in json.dumps(told.structured_content, ensure_ascii=False)


# Other faces


@EACH
async def test_a_chat_is_told_of_it_only_where_it_asks(tmp_path: Path, talk: Talk) -> None:
    async with staged(tmp_path) as stage:
        for call in tell(talk):
            await stage.memory.add(user_id="u", **call)
        for number, query in enumerate((talk.question, talk.past_question)):
            stage.model.says("ok")
            await stage.turn(query, "u", f"chat{number}")
            (shown,) = results(stage.model.asked[0])
            old = [it for it in shown["events"] if talk.old in it["content"]]
            assert {it["no_longer_true_since"][:10] for it in old} == {*["2026-03-05"] * number}


def test_the_proxy_is_told_of_it_only_where_it_asks(tmp_path: Path) -> None:
    with Memory(settings=load(data_dir=tmp_path / "data", **OPTIONS)) as memory:
        for user, talk in TALKS.items():
            for call in tell(talk):
                memory.add(user_id=user, **call)
    with running_site(tmp_path / "data") as site:
        for user, talk in TALKS.items():
            for query, shown in ((talk.question, False), (talk.past_question, True)):
                site.model.says("ok")
                with site.application(user) as application:
                    ask(application, False, query)
                (texts,) = recalled(site.model.asked[0])
                assert any(talk.new in text for text in texts)
                assert any(talk.old in text for text in texts) is shown


@EACH
def test_a_server_marks_and_finds_it(client: httpx.Client, talk: Talk) -> None:
    whose = {"user_id": f"past_{talk.new}"}
    for call in tell(talk):
        assert client.post("/v1/memories", json={**call, **whose}).is_success

    def post(path: str, **body: Any) -> Any:
        answer = client.post(path, json={**whose, **body})
        assert answer.is_success, answer.text
        return answer.json()

    hits = post("/v1/memories/search", query=talk.question, past=True)["results"]
    assert talk.old in hits[0]["memory"] and hits[0]["superseded_by"]
    recalled = post("/v1/recall", question=talk.question)
    assert talk.old not in recalled["text"]
    recalled = post("/v1/recall", question=talk.question, past=True)
    assert recalled["evidence"][0]["valid_until"].startswith("2026-03-05")
    for way in ("lexical", "hybrid"):
        items = post(f"/v1/messages/{way}_search", query_text=talk.old)["items"]
        assert [it["superseded_by"] for it in items if talk.old in it["content"]]
    items = post("/v1/messages/hybrid_search", query_text=talk.question, past=True)["items"]
    assert talk.old in items[0]["content"]


@EACH
async def test_mcp_shows_it_where_it_is_asked_for(tmp_path: Path, talk: Talk) -> None:
    async with AsyncMemory(settings=load(data_dir=tmp_path, **OPTIONS)) as memory:
        for call in tell(talk):
            await memory.add(user_id="u", **call)
        context = ToolContext(memory.for_user("u"), shared=None)
        async with Client(create_mcp(lambda _: context, "en")) as client:

            async def shown(tool: str, **arguments: Any) -> str:
                told = await client.call_tool(tool, arguments)
                assert not told.is_error
                return json.dumps(told.structured_content, ensure_ascii=False)

            every: dict[str, Any] = {"min_relevance_score": 0.0, "limit": 10}
            assert talk.old not in await shown("search_memories", query=talk.question, **every)
            past = await shown("search_memories", query=talk.past_question, **every)
            assert talk.old in past and "2026-03-05" in past
            assert talk.old not in await shown("recall_memories", question=talk.question)
            past = await shown("recall_memories", question=talk.question, past=True)
            assert talk.old in past and '"valid_until": "2026-03-05' in past


async def test_rpc_finds_knowledge_that_was_replaced(tmp_path: Path) -> None:
    def fact(text: str, *replaced: int) -> dict[str, Any]:
        return {"text": text, "type": "general", "date": "", "replaces": [*replaced]}

    old, new = "The office is in Berlin", "The office moved to Paris"
    llm = ScriptedLLM([{"facts": [fact(old)]}, {"facts": [fact(new, 1)]}])
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none"), llm=llm) as memory:
        for text, at in ((old, JANUARY), (f"{new}, it is no longer in Berlin", MARCH)):
            await memory.add(text, agent_id="default", timestamp=at)
        tools = MemoryTools(memory, "default")
        assert (await tools.query("Berlin"))["results"] == []
        (found,) = (await tools.query("Berlin", past=True))["results"]
        assert found["content"] == old and found["superseded_by"]


@EACH
def test_the_command_line_marks_it(tmp_path: Path, talk: Talk) -> None:
    with Memory(settings=load(data_dir=tmp_path / "data", **OPTIONS)) as memory:
        for call in tell(talk):
            memory.add(user_id="u", **call)

    def run(*arguments: str) -> str:
        given = {"KEMEM_DATA_DIR": str(tmp_path / "data"), "KEMEM_EMBEDDER": "none"}
        ran = kemem(tmp_path, *arguments, "--user", "u", **given)
        assert ran.returncode == 0, ran.stderr
        return str(ran.stdout)

    assert "until 2026-03-05" in run("search", talk.old)
    assert run("search", talk.question, "--past").index(talk.old) > 0
    assert talk.old not in run("recall", talk.question)
    assert talk.old in run("recall", talk.question, "--past")
    shown = json.loads(run("search", talk.question, "--past", "--json"))["results"]
    assert talk.old in shown[0]["memory"] and shown[0]["superseded_by"]


@pytest.mark.parametrize(
    ("told", "over", "question", "of_the_rest"),
    [
        ("我老公叫李强，是消防员", "我和李强离婚了", "我老公是谁", "李强做什么工作"),
        (
            "My husband is Ravi and he works at a bank",
            "Ravi and I got divorced",
            "Who is my husband now?",
            "Which bank does Ravi work at?",
        ),
    ],
)
def test_what_is_over_in_part_stands_below_what_ended_that_part(
    tmp_path: Path, told: str, over: str, question: str, of_the_rest: str
) -> None:
    """Where that part is asked for; what still holds of it is found as before."""
    with Memory(settings=load(data_dir=tmp_path, llm="none", embedder="local")) as memory:
        memory.add(told, user_id="u", session_id="s1", timestamp=JANUARY)
        memory.add(over, user_id="u", session_id="s2", timestamp=MARCH)
        first, *rest = memory.search(question, user_id="u")
        (message,) = memory.search(over, user_id="u", kinds=["message"], limit=1)
        assert message.id in first.sources and any(told == it.memory for it in rest)
        best, *_ = memory.search(of_the_rest, user_id="u")
        assert message.id not in best.sources
        with pytest.raises(AttributeError, match=f"{message.id} is a message: see .message"):
            message.note  # noqa: B018
