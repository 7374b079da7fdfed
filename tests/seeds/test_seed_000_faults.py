"""Seed 000, chapters 5, 6.1 and 7: what goes wrong, what is kept for a while, who is safe."""

import ast
import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, InvalidArgument
from kemem.errors import PermissionDenied, Unauthenticated, Unavailable
from kemem.ports.request import SearchResponse
from kemem.recall import Budget, Caches, RecallAgent
from kemem.recall.schemas import Language
from kemem.records import Row
from kemem.settings import load
from kemem.testing import ScriptedLLM, calling
from kemem_conformance.ram import RamStore
from tests.cases import each
from tests.typed_notes import Fact, notebook, state_for, used

SQL = Path(__file__).parents[2] / "src" / "kemem" / "store"
LANGUAGES = pytest.mark.parametrize("language", ["zh", "en"])
FACT = {"zh": Fact("数据库是 PostgreSQL"), "en": Fact("The database is PostgreSQL")}
ASKED = {"zh": "数据库", "en": "database"}
SECRET = "SELECT secret FROM /var/lib/kemem.db"
SLOW = {
    "zh": "搜索超时。请缩小搜索范围，使用更精确的关键词",
    "en": "the search took too long. Narrow it down, use more precise keywords",
}
DENIED = {
    "zh": "无权限访问。请报告给上级 Agent，可能需要重新认证",
    "en": "access is denied. Report this to the calling agent: it may have to authenticate again",
}
MISSING = {
    "zh": "未找到记忆: {!r}。可以尝试模糊搜索，或询问用户更多信息",
    "en": "no memory {!r}. Try a broader search, or ask the user for more",
}
BROKEN = {
    "zh": "数据库错误，重试一次后仍然失败。请结束任务并报告，稍后再试",
    "en": "the store failed, also when tried again. Finish and report it; it may work later",
}


class OperationalError(Exception):
    """What a driver raises."""


class Faulty(RamStore):
    """A store whose searches hang, or raise one error after the other."""

    hangs = False
    errors: tuple[Exception, ...] = ()
    asked = 0

    async def search(self, *given: Any, **named: Any) -> SearchResponse:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.asked <= len(self.errors):
            raise self.errors[self.asked - 1]
        return await super().search(*given, **named)


class Unreadable(RamStore):
    """A store whose messages cannot be read."""

    error: Exception | None = None  # None: it hangs

    async def read(self, *given: Any, **named: Any) -> list[Row]:
        if self.error is None:
            await asyncio.Event().wait()
        raise self.error or AssertionError


async def answer_of(store: Faulty, language: Language, **budget: Any) -> dict[str, Any]:
    """What a search answers in a store that fails from now on, in the shape of the seed."""
    memory = await notebook([FACT[language]], store=store)
    state = await state_for(memory, language, budget=Budget(**budget))
    store.asked = 0
    output = await used(state, "search_memories", query=ASKED[language])
    answered: dict[str, Any] = output.model_dump(exclude_none=True)
    assert state.problems == ([] if answered["success"] else [answered["message"]])
    return answered


def failure(message: str) -> dict[str, Any]:
    """Chapter 5.2, character by character."""
    return {"success": False, "total_found": 0, "results": [], "message": message}


# 5. Errors


@LANGUAGES
async def test_a_search_that_takes_too_long_is_given_up(language: Language) -> None:
    """With the advice of the seed; it is not tried again."""
    store = Faulty()
    store.hangs = True
    assert await answer_of(store, language, seconds=0.05) == failure(SLOW[language])
    assert store.asked <= 1


@LANGUAGES
@each("error", [PermissionDenied(SECRET), Unauthenticated(SECRET)])
async def test_a_search_that_is_not_allowed_is_reported(
    language: Language, error: Exception
) -> None:
    """To the calling agent, without what the store said; it is not tried again."""
    store = Faulty()
    store.errors = (error,)
    assert await answer_of(store, language) == failure(DENIED[language])
    assert store.asked == 1


@LANGUAGES
@each("error", [OperationalError(SECRET), Unavailable(SECRET), OSError(SECRET)])
async def test_a_broken_store_is_tried_once_more_and_then_reported(
    language: Language, error: Exception
) -> None:
    """Nothing of the error is told: no class, no path, no SQL."""
    store = Faulty()
    store.errors = (error, error, error)
    assert await answer_of(store, language) == failure(BROKEN[language])
    assert store.asked == 2


@LANGUAGES
async def test_a_store_that_works_the_second_time_has_worked(language: Language) -> None:
    store = Faulty()
    store.errors = (OperationalError(SECRET),)
    answer = await answer_of(store, language)
    assert (answer["success"], answer["total_found"], store.asked) == (True, 1, 2)


@LANGUAGES
async def test_what_does_not_exist_is_told_with_advice(language: Language) -> None:
    """A key of nobody, of another user, or of something sensitive: all the same."""
    memory = await notebook()
    (foreign,) = (await memory.add(FACT[language].text, "v", infer=False)).results
    (hidden,) = (await memory.add("密码 password", "u", infer=False, sensitive=True)).results
    for key in ("db_config_001", foreign.id, hidden.id):
        state = await state_for(memory, language)
        output = await used(state, "get_memory_detail", memory_key=key)
        shown = {"success": False, "message": MISSING[language].format(key)}
        assert output.model_dump(exclude_none=True) == shown


@LANGUAGES
@each(
    ("given", "field"),
    [({}, "query"), ({"query": ""}, "query"), ({"query": "q", "limit": 99}, "limit")],
)
async def test_a_wrong_argument_is_told_in_the_shape_of_the_seed(
    language: Language, given: dict[str, Any], field: str
) -> None:
    """Every input is checked before anything is searched."""
    state = await state_for(await notebook(), language)
    output = await used(state, "search_memories", **given)
    assert output.model_dump(exclude_none=True) == failure(output.message)
    assert field in output.message and state.searches == []


@LANGUAGES
async def test_half_characters_are_no_fault_of_the_store(language: Language) -> None:
    """A model can write them; what stands beside them is searched for and handed over."""
    state = await state_for(await notebook([FACT[language]]), language)
    output = await used(state, "search_memories", query=f"{ASKED[language]} \ud83d")
    assert output.success and output.total_found == 1
    told = {"reason": "\udc00", "search_summary": f"{ASKED[language]} \ud83d", "confidence": 1}
    output = await used(state, "handoff", **told)
    assert output.success and state.handoff is not None
    assert state.handoff.search_summary.encode().startswith(ASKED[language].encode())


@LANGUAGES
async def test_a_recall_reports_a_broken_store(language: Language) -> None:
    """By rules as well: that nothing was found is not what it says."""
    store = Faulty()
    store.errors = (OperationalError(SECRET),) * 99
    agent = RecallAgent((await notebook(store=store)).for_user("u"))
    result = await agent.recall(ASKED[language])
    assert (result.confidence, result.evidence) == (0, ())
    assert result.reason == BROKEN[language] and result.problems == (BROKEN[language],)
    done = "搜索没有完成" if language == "zh" else "The search could not be completed"
    assert result.search_summary == done
    assert not any(part in str(result.to_dict()) for part in ("SELECT", "/var", "Operational"))


@LANGUAGES
@each("error", [None, OperationalError(SECRET), Unavailable(SECRET)])
async def test_a_recall_ends_where_the_conversation_cannot_be_read(
    language: Language, error: Exception | None
) -> None:
    """Whether that fails or hangs; it is told, without what the store said."""
    store = Unreadable()
    store.error = error
    budget = Budget(seconds=0.2 if error is None else 60)
    agent = RecallAgent((await notebook(store=store)).for_user("u"), budget=budget)
    async with asyncio.timeout(20):
        result = await agent.recall(ASKED[language])
    told = "无法读取对话" if language == "zh" else "the conversation could not be read"
    assert result.problems[0] == told
    assert SECRET not in str(result.to_dict()) and result.confidence == 0


# 6.1 Caches


@pytest.mark.parametrize(
    ("tool", "seconds"),
    [("extract_search_keywords", 300), ("search_memories", 60), ("get_memory_detail", 600)],
)
async def test_a_cache_lasts_as_long_as_the_seed_says(tool: str, seconds: int) -> None:
    """Keywords five minutes, searches one, contents ten; the step says so."""
    now = 0.0
    caches = Caches(timer=lambda: now)
    memory = await notebook([FACT["zh"]])
    given = {"query": ASKED["zh"]}
    if tool == "get_memory_detail":
        given = {"memory_key": (await memory.get_all("u"))[0].id}
    answers = []
    for at, cached in ((0, False), (seconds - 1, True), (seconds, False), (seconds + 1, True)):
        now = float(at)
        state = await state_for(memory)
        state.caches = caches
        answers.append(await used(state, tool, **given))
        assert state.trace[-1].cached == cached, at
    assert answers == [answers[0]] * 4


@LANGUAGES
async def test_a_search_is_not_cached_beyond_a_change_or_for_others(language: Language) -> None:
    caches = Caches()
    memory = await notebook([FACT[language]])

    async def found(user: str) -> tuple[int, bool]:
        state = await state_for(memory)
        state.memory, state.caches = memory.for_user(user), caches
        output = await used(state, "search_memories", query=ASKED[language])
        return output.total_found, state.trace[-1].cached

    assert [await found("u"), await found("u"), await found("v")] == [
        *((1, False), (1, True), (0, False))
    ]
    await memory.add(f"{FACT[language].text} 17", "u", infer=False)
    assert [await found("u"), await found("v")] == [(2, False), (0, True)]


# 7. Security


@LANGUAGES
async def test_a_recall_needs_a_user(tmp_path: Path, language: Language) -> None:
    """An agent alone cannot be searched; without a user and an agent it is the default user."""
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none")) as memory:
        for ids in ((), (None, None, "s")):
            assert (await memory.recall(ASKED[language], *ids)).evidence == ()
        with pytest.raises(InvalidArgument, match="user_id"):
            await memory.recall(ASKED[language], None, "a")
        with pytest.raises(InvalidArgument, match="user_id"):
            RecallAgent(memory)


@LANGUAGES
async def test_a_user_that_a_model_names_is_ignored(language: Language) -> None:
    """In every tool: another user's memories are neither found, shown nor handed over."""
    other = {"user_id": "v", "agent_id": "default", "scope": {"user_id": "v"}}
    memory = await notebook()
    (foreign,) = (await memory.add(FACT[language].text, "v", infer=False)).results
    llm = ScriptedLLM(
        [
            calling("search_memories", query=ASKED[language], min_relevance_score=0, **other),
            calling("get_memory_detail", memory_key=foreign.id, **other),
            calling(
                "handoff",
                **{"reason": "…", "search_summary": "…", "confidence": 1, **other},
                relevant_memory_keys=[foreign.id],
            ),
        ]
    )
    store = (await memory.runtime.deps()).store
    assert isinstance(store, RamStore)
    result = await RecallAgent((await notebook(store=store, llm=llm)).for_user("u")).recall(
        ASKED[language]
    )
    assert (result.evidence, result.confidence, result.by) == ((), 0, "llm")
    assert [step.keys for step in result.trace] == [(), (), ()]
    assert FACT[language].text not in str([call.messages for call in llm.calls])


@LANGUAGES
async def test_what_is_sensitive_is_recalled_only_where_that_is_granted(
    language: Language,
) -> None:
    memory = await notebook()
    await memory.add(FACT[language].text, "u", infer=False, sensitive=True)
    for granted in (False, True):
        agent = RecallAgent(memory.for_user("u", sensitive=granted))
        result = await agent.recall(ASKED[language])
        assert bool(result.evidence) == granted
        assert (FACT[language].text in str(result.to_dict())) == granted


def _is_constant(node: ast.expr, names: Mapping[str, ast.expr]) -> bool:
    """Whether an expression holds nothing but text that is written in the source."""
    match node:
        case ast.Constant():
            return True
        case ast.JoinedStr(values=parts):
            return all(_is_constant(part, names) for part in parts)
        case ast.FormattedValue(value=value):
            return _is_constant(value, names)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_constant(left, names) and _is_constant(right, names)
        case ast.IfExp(body=body, orelse=otherwise):
            return _is_constant(body, names) and _is_constant(otherwise, names)
        case ast.Tuple(elts=items):
            return all(_is_constant(item, names) for item in items)
        case ast.Name(id=name):
            return name in names and _is_constant(names[name], {})
    return False


def _composed(source: str) -> list[str]:
    """The SQL texts of a module into which something is formatted that is not written there."""
    tree = ast.parse(source)
    names: dict[str, ast.expr] = {}
    raw = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = value
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple() as value):
                names[name] = value
            case ast.Call(func=ast.Name(id="text" | "literal_column" | "DDL"), args=[sql, *_]):
                raw.append(sql)
            case ast.Call(func=ast.Attribute(attr="exec_driver_sql"), args=[sql, *_]):
                raw.append(sql)
            case ast.Call(
                func=ast.Attribute(attr="execute"),
                args=[(ast.JoinedStr() | ast.BinOp() | ast.Constant()) as sql, *_],
            ):
                raw.append(sql)
    return [ast.unparse(sql) for sql in raw if not _is_constant(sql, names)]


def test_no_value_is_formatted_into_sql() -> None:
    """Statements are built by SQLAlchemy, or are texts that stand in the source as they are."""
    found = {file.name: _composed(file.read_text("utf-8")) for file in sorted(SQL.glob("*.py"))}
    assert len(found) > 5
    # Constants of its callers, and what SQLAlchemy has compiled: values stay bound.
    assert sorted(found.pop("pipeline.py")) == ["sql", "statement"]
    assert {name: texts for name, texts in found.items() if texts} == {}


@each(
    "source",
    [
        'text(f"SELECT * FROM note WHERE id = {note_id}")',
        'connection.execute("SELECT " + name)',
        'connection.exec_driver_sql("SELECT %s" % name)',
        'text("SELECT {}".format(name))',
        "text(query)",
    ],
)
def test_a_value_that_is_formatted_into_sql_is_seen(source: str) -> None:
    """So that the test above can fail."""
    assert len(_composed(source)) == 1
