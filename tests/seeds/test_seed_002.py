"""Seed 002 line by line: the Memory class, its two terms of memory, its demo and its example."""

import inspect
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, Hit, InvalidArgument, Memory, NotFound
from kemem.records import Matrix
from kemem.settings import load
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM, running_openai_server
from tests import warm
from tests.cases import each

ROOT = Path(__file__).parents[2]
SEED = ROOT.parent / "shared" / "seeds" / "002_e92251cc4c899574.txt"
NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
REQUIRED = inspect.Parameter.empty

# Chapter 1, character by character. It does not say where OpenAI comes from.
DEMO = '''from kemem import Memory

# 初始化
memory = Memory()
client = OpenAI()
USER_ID = "user_001"

def chat(user_message):
    """处理聊天消息"""
    print(f"\\n用户: {user_message}")

    # 1. 从 kemem 搜索相关记忆
    memories = memory.search(user_message, user_id=USER_ID, limit=5)

    # 2. 构建提示词 (包含记忆上下文)
    system_prompt = f"你是一个友好的助手。"
    system_prompt += f"\\n\\n关于用户的记忆: \\n{memories}"

    # 3. 调用大语言模型
    response = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": system_prompt},
            {"role": "user", "content": user_message}
        ]
    )

    # 4. 获取大语言模型的回复
    assistant_reply = response.choices[0].message.content
    print(f"助手: {assistant_reply}")

    # 5. 将对话存入 kemem
    memory.add([
        {"role": "user", "content": user_message},
        {"role": "assistant", "content": assistant_reply}
    ], user_id=USER_ID)

    return assistant_reply
'''
PROGRAM = (
    "import sys\nfrom openai import OpenAI\n{demo}\nfor said in sys.argv[1:]:\n    chat(said)\n"
)

OF_ADD = {
    "messages": REQUIRED,
    "user_id": None,
    "agent_id": None,
    "session_id": None,
    "metadata": None,
    "infer": True,
    "memory_type": None,
    "prompt": None,
}
OF_GET_ALL = {
    "user_id": None,
    "agent_id": None,
    "session_id": None,
    "filters": None,
    "limit": 100,
}
OF_SEARCH = {
    "query": REQUIRED,
    "user_id": None,
    "agent_id": None,
    "run_id": None,
    "limit": 10,  # the seed has 100; ten hits fit a prompt
    "filters": None,
    "threshold": None,
    "rerank": True,
}
OF_DELETE_ALL = {"user_id": None, "agent_id": None, "session_id": None, "filters": None}
PROTOTYPES: dict[str, dict[str, Any]] = {
    "add": OF_ADD,
    "get": {"memory_id": REQUIRED},
    "get_all": OF_GET_ALL,
    "search": OF_SEARCH,
    "delete": {"memory_id": REQUIRED},
    "delete_all": OF_DELETE_ALL,
    **{name: {} for name in ("extract", "summarize", "process", "checkpoint")},
}

ABOUT = "我叫李明，在北京大学学习计算机科学。我的导师是张教授，他在人工智能领域非常有名。"
TYPES = {
    **{"李明": "person", "张教授": "person", "北京大学": "organization"},
    **{"计算机科学": "field", "人工智能": "field"},
}
RELATIONS = {
    ("李明", "studies_at", "北京大学"),
    ("李明", "studies", "计算机科学"),
    ("李明", "advised_by", "张教授"),
    ("张教授", "expert_in", "人工智能"),
}


def drawn(*facts: object, **entities: str) -> dict[str, Any]:
    """An answer of a model."""
    listed = [{"name": name, "type": kind} for name, kind in entities.items()]
    return {"facts": list(facts), "entities": listed}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory by words and rules."""
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    with Memory(settings=settings, clock=FakeClock(NOW)) as opened:
        yield opened


# 1. The demo


def test_the_demo_is_the_seeds() -> None:
    """The copy above is what the seed shows, where the seed is at hand."""
    if not SEED.exists():
        pytest.skip("the seeds are not beside this checkout")
    assert f"```\n{DEMO}```" in SEED.read_text("utf-8")


@pytest.mark.parametrize(
    "first, second, known, model",
    [
        ("我叫李明，我不吃辣。", "推荐一家火锅店，我不吃辣吗？", "用户不吃辣", "none"),
        ("My cat is called Rice.", "How is my cat called?", "User's cat is called Rice", "auto"),
    ],
)
def test_the_demo_remembers_from_turn_to_turn(
    tmp_path: Path, first: str, second: str, known: str, model: str
) -> None:
    """With rules, and with the model that its client talks to; never closed, ends by itself."""

    def answer(request: dict[str, Any]) -> Any:
        asked_by_memory = "response_format" in request
        return drawn({"text": known, "type": "general"}) if asked_by_memory else "好的 OK"

    with running_openai_server(answer) as server:
        environment = {name: it for name, it in os.environ.items() if "KEMEM" not in name}
        environment |= {"HOME": str(tmp_path), "KEMEM_LLM": model, "PYTHONIOENCODING": "utf-8"}
        environment |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "any"}
        done = subprocess.run(
            [*warm.python(), "-c", PROGRAM.format(demo=DEMO), first, second],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        chats = [it["messages"] for it in server.requests if "response_format" not in it]
    assert (done.returncode, done.stderr) == (0, "")
    assert f"用户: {second}\n助手: 好的 OK" in done.stdout
    empty, full = (turn[0]["content"] for turn in chats)
    nothing = "(no relevant memories)" if known.isascii() else "（没有相关记忆）"
    assert empty.endswith(f"关于用户的记忆: \n{nothing}")
    assert f"- {known}" in full
    for trace in ("Hit(", "Memories(", "Note(", "Item(", " at 0x", "None", "{"):
        assert trace not in full


# 2. The interfaces


@each("kind", [Memory, AsyncMemory])
@each("name", PROTOTYPES)
def test_a_method_has_the_prototype_of_the_seed(kind: type, name: str) -> None:
    """Its parameters come first, in the seed's order, with the seed's defaults."""
    wanted = PROTOTYPES[name]
    given = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    assert {it.name: it.default for it in given[: len(wanted)]} == wanted
    assert all(it.kind is it.POSITIONAL_OR_KEYWORD for it in given[: len(wanted)])
    assert all(it.default is not REQUIRED or name == "process" for it in given[len(wanted) :])


@each("name", ["search", "get_all", "add", "delete_all", "extract"])
def test_a_session_goes_by_both_of_its_names(name: str) -> None:
    """The seed says run_id in a prototype and session_id in the text below it."""
    assert {"run_id", "session_id"} <= inspect.signature(getattr(Memory, name)).parameters.keys()


@pytest.mark.parametrize(
    "messages",
    [
        "用户喜欢编程",
        {"role": "user", "content": "I like programming"},
        [
            {"role": "user", "content": "我喜欢编程"},
            {"role": "assistant", "content": "Programming is fun"},
        ],
    ],
    ids=["text", "message", "list"],
)
@pytest.mark.parametrize("infer", [True, False])
def test_messages_come_in_three_shapes(memory: Memory, messages: Any, infer: bool) -> None:
    added = memory.add(messages, user_id="u", infer=infer)
    told = messages if isinstance(messages, list) else [messages]
    contents = [it if isinstance(it, str) else it["content"] for it in told]
    kept = memory.get_all(user_id="u", kinds=["message"])
    assert [it.memory for it in reversed(kept)] == contents
    assert len(added.message_ids) == len(told)
    if not infer:
        assert [it.memory for it in added.results] == contents


@pytest.mark.parametrize("said, fact", [("我不吃辣", "不吃辣"), ("I love tea", "loves tea")])
def test_infer_draws_facts_and_without_it_words_are_kept(
    memory: Memory, said: str, fact: str
) -> None:
    (inferred,) = memory.add(said, user_id="a").results
    (verbatim,) = memory.add(said, user_id="b", infer=False).results
    assert inferred.memory.endswith(fact) and inferred.memory != said
    assert verbatim.memory == said


@pytest.mark.parametrize(
    "said, home",
    [
        (
            ("我住在北京", "嗯，我住在北京", "我搬到了上海", "我的猫叫年糕", "年糕昨天走了"),
            "用户住在上海",
        ),
        (
            (
                *("I live in Rome", "Well, I live in Rome", "I moved to Oslo"),
                *("My cat is called Rice", "Rice died yesterday"),
            ),
            "User lives in Oslo",
        ),
    ],
    ids=["zh", "en"],
)
def test_infer_merges_updates_and_deletes(tmp_path: Path, said: Sequence[str], home: str) -> None:
    """The model adds, repeats, replaces and ends what is known."""
    old, _, new, cat, _ = said
    answers = [{"text": old}, {"text": old}, {"text": new, "replaces": [1]}, {"text": cat}]
    llm = ScriptedLLM([drawn(it) for it in (*answers, {"text": "", "replaces": [1, 2]})])
    settings = load(data_dir=tmp_path, embedder="none")
    clock = FakeClock(NOW)
    with Memory(settings=settings, llm=llm, clock=clock) as memory:
        events = []
        for text in said:
            added = memory.add(text, user_id="u")
            assert not added.pending, added.problems
            events.append([it.event for it in added.results])
            clock.advance(seconds=60)
        assert events == [["ADD"], ["NONE"], ["UPDATE"], ["ADD"], ["DELETE"]]
        assert [it.memory for it in memory.get_all(user_id="u")] == [home]


@pytest.mark.parametrize("said", ["我在看第三章", "I am on chapter three"])
def test_short_and_long_are_the_memory_types(memory: Memory, said: str) -> None:
    """What is short belongs to its session and is lost with it; what is long stays."""
    memory.add(said, "u", session_id="s", infer=False, memory_type="short")
    memory.add(said, "u", session_id="s", infer=False, memory_type="long")
    memory.add(said, "u", session_id="s", infer=False)
    assert [it.kind for it in memory.get_all("u")].count("short_term") == 1
    memory.end_session("s", "u")
    assert [it.kind for it in memory.get_all("u")] == ["user_info", "user_info"]
    for wrong in ("medium", "", "SHORT", 1):
        with pytest.raises(InvalidArgument, match="short or long"):
            memory.add(said, "u", memory_type=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", ["只记住食物", "Remember food only"])
def test_the_prompt_reaches_the_model(tmp_path: Path, prompt: str) -> None:
    with running_openai_server([drawn()]) as server:
        settings = load(data_dir=tmp_path, embedder="none", llm_base_url=server.base_url)
        with Memory(settings=settings) as memory:
            memory.add("我不吃辣, no spice", "u", prompt=prompt)
    (request,) = server.requests
    assert prompt in request["messages"][-1]["content"]


@pytest.mark.parametrize("metadata", [{"来源": "微信", "n": 3}, {"source": "mail", "tags": ["a"]}])
def test_metadata_is_kept_as_it_is(memory: Memory, metadata: dict[str, Any]) -> None:
    added = memory.add("我不吃辣", "u", metadata=metadata)
    assert memory.get(added.results[0].id).metadata == metadata
    assert memory.get(added.message_ids[0], user_id="u").metadata == metadata


def test_ids_keep_users_agents_and_sessions_apart(memory: Memory) -> None:
    """By each of the three in get_all, search and delete_all."""
    for user, agent, session in (("u", "a", "s"), ("u", "b", "t"), ("v", "a", "t")):
        memory.add(f"火锅 hotpot {user}{agent}{session}", user, agent, session, infer=False)

    def listed(**ids: Any) -> set[str]:
        return {it.memory[-3:] for it in memory.get_all(**ids)}

    def found(**ids: Any) -> set[str]:
        return {it.memory[-3:] for it in memory.search("火锅", **ids)}

    for seen in (listed, found):
        assert seen(user_id="u") == {"uas", "ubt"}
        assert seen(agent_id="a") == {"uas", "vat"}
        assert seen(session_id="t") == seen(run_id="t") == set()  # of the user "default"
        assert seen(user_id="u", session_id="t") == seen(user_id="u", run_id="t") == {"ubt"}
        assert seen(user_id="u", agent_id="b") == {"ubt"}
        assert seen(user_id="v", session_id="s") == set()
    memory.delete_all(session_id="t", user_id="v")
    assert listed(agent_id="a") == {"uas"}
    memory.delete_all(agent_id="b")
    assert listed(user_id="u") == {"uas"}


def test_get_shows_one_memory_by_its_id_alone(memory: Memory) -> None:
    (added,) = memory.add("我不吃辣", "u").results
    shown = memory.get(added.id)
    assert (shown.id, shown.memory, shown.kind) == (added.id, "用户不吃辣", "user_info")
    with pytest.raises(NotFound):
        memory.get("n_none")


def test_get_all_lists_the_newest_and_the_last_messages(memory: Memory) -> None:
    """It takes filters and a limit, 100 unless told; by kinds or a filter it reads messages."""
    memory.add([{"role": "user", "content": f"第{n}句"} for n in range(120)], "u", infer=False)
    assert len(memory.get_all("u")) == 100
    assert [it.memory for it in memory.get_all("u", limit=2)] == ["第119句", "第118句"]
    for named in ({"kinds": ["message"]}, {"filters": {"kind": "message", "role": "user"}}):
        last = memory.get_all("u", limit=2, **named)
        assert [it.message.content for it in last] == ["第119句", "第118句"]
    assert [it.memory for it in memory.get_all("u", filters={"content": "第7句"})] == ["第7句"]


@pytest.mark.parametrize("asked", ["火锅 不辣", "mild hotpot"])
def test_search_takes_limit_filters_and_threshold(memory: Memory, asked: str) -> None:
    """A threshold is a similarity from 0 to 1; everything below it is left out."""
    for n in range(8):
        text = "不辣的火锅 mild hotpot" if n % 2 else f"火锅 hotpot 第{n}家店 branch {n} far away"
        memory.add(text, "u", infer=False, metadata={"n": n})
    hits = memory.search(asked, "u", kinds=["user_info"])
    assert len(hits) == 8 and all(0 <= hit.score <= 1 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert memory.search(asked, "u", kinds=["user_info"], limit=3).items == hits.items[:3]
    bar = hits[3].score
    above = memory.search(asked, "u", kinds=["user_info"], threshold=bar)
    assert 0 < len(above) < 8 and all(hit.score >= bar for hit in above)
    (one,) = memory.search(asked, "u", filters={"n": 3}, kinds=["user_info"])
    assert one.metadata == {"n": 3, "role": "user"}


def test_delete_removes_one_and_delete_all_what_carries_the_ids(memory: Memory) -> None:
    (first,) = memory.add("我不吃辣", "u").results
    memory.add("我喜欢茶", "u")
    memory.add("I love tea", "v", metadata={"tag": "x"})
    memory.add("I love jam", "v", metadata={"tag": "y"})
    memory.delete(first.id)
    assert [it.memory for it in memory.get_all("u")] == ["用户喜欢茶"]
    assert memory.delete_all("v", filters={"tag": "x"}) == 1
    assert [it.metadata for it in memory.get_all("v")] == [{"tag": "y"}]
    memory.delete_all("u")
    assert len(memory.get_all("u")) == len(memory.get_all("u", kinds=["message"])) == 0
    assert len(memory.get_all("v")) == 1
    with pytest.raises(InvalidArgument):
        memory.delete_all()


@pytest.mark.parametrize("word", ["密码", "password"])
def test_process_is_the_users_own_algorithm(memory: Memory, word: str) -> None:
    @memory.process
    def masked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**it, "content": it["content"].replace(word, "***")} for it in messages]

    memory.add(f"{word} 1234", "u", infer=False)
    assert memory.get_all("u")[0].memory == "*** 1234"


# The classes of chapter 2


@pytest.mark.parametrize(
    "fact, asked", [("火锅店九点开门", "几点开门"), ("The shop opens at nine", "opens")]
)
def test_knowledge_is_shared_by_all_users_of_an_agent(
    memory: Memory, fact: str, asked: str
) -> None:
    """And by no user of another one."""
    (told,) = memory.add(fact, agent_id="a", infer=False).results
    assert memory.get(told.id).kind == "knowledge"
    for user in ("小明", "ann"):
        assert [it.id for it in memory.search(asked, user, "a", kinds=["knowledge"])] == [told.id]
        assert len(memory.search(asked, user, "b")) == len(memory.search(asked, user)) == 0


def test_long_term_memory_outlives_the_program_and_short_term_its_session(tmp_path: Path) -> None:
    """The experience of a session is drawn by itself."""
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    texts = (
        *("请帮我安装 torch，下载总是超时", "可以试试换一个镜像"),
        *("我试了阿里云镜像，还是失败", "那改用清华镜像", "改用清华镜像之后成功了"),
    )
    told = [{"role": "assistant" if n % 2 else "user", "content": it} for n, it in enumerate(texts)]
    with Memory(settings=settings) as memory:
        memory.add(told, "u", session_id="s")
        memory.add("我不吃辣", "u", session_id="s")
        memory.add("正在装 torch", "u", session_id="s", memory_type="short", infer=False)
        memory.end_session("s", "u")
    with Memory(settings=settings) as memory:
        kinds = {it.kind for it in memory.get_all("u")}
        assert kinds == {"user_info", "experience"}
        (lesson,) = memory.search("torch 超时", "u", kinds=["experience"])
        assert "清华镜像" in lesson.memory
        assert len(memory.get_all("u", kinds=["message"])) == 7


@pytest.mark.parametrize(
    "line", ["今天讨论了第{}个方案，大家都觉得不错", "We discussed plan {} at length today"]
)
def test_the_state_saves_tokens(tmp_path: Path, line: str) -> None:
    """add summarises by itself; the context is a fraction of the conversation."""
    settings = load(data_dir=tmp_path, embedder="none", llm="none", state_tokens=200)
    with Memory(settings=settings) as memory:
        for start in range(0, 80, 8):
            told = [{"role": "user", "content": line.format(start + n)} for n in range(8)]
            memory.add(told, "u", session_id="s", infer=False)
        seen = memory.context("s", "u", max_tokens=200)
        assert seen.summaries and seen.tokens <= 200 < seen.full_tokens / 2
        assert len((memory.summarize("s", "u") or pytest.fail("no State")).layers) > 1


def test_a_checkpoint_brings_short_term_memory_back(memory: Memory) -> None:
    (kept,) = memory.add("第三步", "u", session_id="s", infer=False, memory_type="short").results
    saved = memory.checkpoint("s", "u")
    memory.update(kept.id, "第四步")
    memory.restore_checkpoint("s", saved.checkpoint_id, "u")
    assert memory.get(kept.id).memory == "第三步"


# The adapters


class Counting(HashingEmbedder):
    """An embedder that says what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    async def embed(self, texts: Sequence[str], *, purpose: Any) -> Matrix:
        self.asked += [(purpose, text) for text in texts]
        return await super().embed(texts, purpose=purpose)


class Reversing:
    """A reranker that turns the order around."""

    def __init__(self) -> None:
        self.asked = 0

    async def rank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.asked += 1
        return [n / len(texts) for n in range(len(texts))]


def test_an_embedding_is_asked_when_writing_and_when_reading(tmp_path: Path) -> None:
    embedder = Counting()
    llm = ScriptedLLM([drawn({"text": "不吃辣"})])
    with Memory(data_dir=tmp_path, embedder=embedder, llm=llm) as memory:
        memory.add("我不吃辣", "u")
        memory.search("hotpot", "u")
    assert ("query", "hotpot") in embedder.asked
    assert {("passage", "我不吃辣"), ("passage", "用户不吃辣")} <= set(embedder.asked)


def test_a_reranker_orders_anew_unless_it_is_not_wanted(tmp_path: Path) -> None:
    """With rerank=False it is not even asked."""
    reranker = Reversing()
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    with Memory(settings=settings, reranker=reranker) as memory:
        for text in ("火锅", "火锅 火锅 hotpot", "今天吃火锅 hotpot"):
            memory.add(text, "u", infer=False)

        def order(**more: Any) -> list[str]:
            hits: Sequence[Hit] = memory.search("火锅 hotpot", "u", kinds=["user_info"], **more)
            return [hit.memory for hit in hits]

        plain = order(rerank=False)
        assert reranker.asked == 0
        assert order() == order(rerank=True) != plain
        assert reranker.asked == 2


# 3. The example of 李明


def by_model() -> ScriptedLLM:
    facts = [
        {"text": "李明在北京大学学习"},
        {"text": "李明学习计算机科学"},
        {"text": "李明的导师是张教授"},
        {"text": "张教授在人工智能领域非常有名"},
    ]
    return ScriptedLLM([drawn(*facts)])


@pytest.mark.parametrize("model", ["rules", "llm"])
def test_the_example_gives_its_entities_and_relations(tmp_path: Path, model: str) -> None:
    """In the answer of add, in the graph, and around each of its entities."""
    llm: dict[str, Any] = {"llm": by_model()} if model == "llm" else {}
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    with Memory(settings=settings, **llm) as memory:
        added = memory.add([{"role": "user", "content": ABOUT}], user_id="user_001")
        triples = {(it.source, it.relationship, it.destination) for it in added.relations}
        assert triples == RELATIONS
        graph = memory.graph("user_001")
        assert {(it.source, it.relationship, it.destination) for it in graph} == RELATIONS
        types: Mapping[str, str] = {
            name: kind
            for it in graph
            for name, kind in (
                (it.source, it.source_type),
                (it.destination, it.destination_type),
            )
        }
        assert types == TYPES
        near = {it.destination for it in memory.graph("user_001", around="张教授")}
        assert near == {"张教授", "人工智能"}
        assert len(memory.graph("user_001", around="李明", hops=2)) == 4
        hits = memory.search("人工智能", "user_001", explain=True)
        assert any("张教授 expert_in 人工智能" in why for hit in hits for why in hit.why)
        assert memory.graph("somebody") == []
