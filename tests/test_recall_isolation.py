"""A recall sees the memories of one user, and of these what its handle was granted."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, Memory
from kemem.ports import LLM, Deps, Prompt
from kemem.recall import Budget, RecallAgent, Recalled, json_schemas
from kemem.testing import HashingEmbedder, ScriptedLLM, calling
from tests.recalls import (
    CHINESE,
    ENGLISH,
    ONE,
    TONGUES,
    Tongue,
    furnished,
    hand_over_what_is_shown,
    handing,
    handle,
    keys_of,
    notebook,
    parts_with,
    quiet,
    shown_keys,
    told,
)

STRANGER = {CHINESE.user: ENGLISH, ENGLISH.user: CHINESE}
SEARCH, DETAIL = "search_memories", "get_memory_detail"
FOREIGN = (
    *("user_id", "user", "agent_id", "session_id", "run_id"),
    *("scope", "filters", "sensitive", "owner"),
)  # what a model might try


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(settings=quiet(tmp_path), embedder=HashingEmbedder()) as memory:
        yield memory


async def recalled(deps: Deps, tongue: Tongue, llm: LLM | None, **granted: Any) -> Recalled:
    """What comes of a recall, in small rounds."""
    bound = handle(deps, tongue.user, llm, **granted)
    return await RecallAgent(bound, budget=Budget(window=3), by="llm" if llm else None).recall(
        tongue.question
    )


def moves(result: Recalled) -> list[tuple[object, ...]]:
    """What was done, without times."""
    return [(it.tool, it.arguments, it.success, it.outcome, it.keys) for it in result.trace]


# Whose memories


@pytest.mark.parametrize("language", ["zh", "en"])
def test_no_tool_takes_a_user(language: Any) -> None:
    """A01: a model cannot even ask for another's memories."""
    assert len(json_schemas(language)) == 5
    for tool in json_schemas(language).values():
        assert not {*tool["input"]["properties"]} & {*FOREIGN}


@ONE
async def test_a_user_that_a_model_names_is_ignored(tongue: Tongue) -> None:
    """A01: in every tool, by whatever name."""
    deps = await furnished()
    stranger = STRANGER[tongue.user]

    async def told_of(claimed: dict[str, Any]) -> Recalled:
        def look(messages: Prompt) -> Any:
            return [calling(DETAIL, memory_key=it, **claimed) for it in shown_keys(messages)]

        def hand_over(messages: Prompt) -> Any:
            return handing(shown_keys(messages), **claimed)

        size: dict[str, Any] = {"reason": "?", "current_size": 3, "requested_size": 5}
        replies: list[Any] = [
            calling("extract_search_keywords", query=tongue.question, **claimed),
            "{}",
            calling("expand_context_window", **size, **claimed),
            calling(SEARCH, query="5432 6543", min_relevance_score=0.0, **claimed),
            look,
            hand_over,
        ]
        return await recalled(deps, tongue, ScriptedLLM(replies))

    plain, claimed = await told_of({}), await told_of(dict.fromkeys(FOREIGN, stranger.user))
    assert moves(plain) == moves(claimed) and plain.evidence == claimed.evidence
    assert plain.completed and tongue.answer in str(plain)
    assert stranger.answer not in f"{claimed!r} {claimed.to_dict()}".replace("5432 6543", "")


@ONE
async def test_another_s_key_is_as_one_that_does_not_exist(tongue: Tongue) -> None:
    """A02: the same words, and nothing of it is handed over."""
    deps = await furnished()
    theirs, their_messages = await keys_of(deps, STRANGER[tongue.user].user)
    (own, *_) = (await keys_of(deps, tongue.user))[0]
    foreign = [min(theirs - their_messages), min(their_messages), "n_nowhere", "无此"]
    answers = set()
    for key in foreign:
        handed = handing([*foreign, own, "", "\n", "x" * 256, "\ud800", own])
        llm = ScriptedLLM([calling(DETAIL, memory_key=key), handed])
        result = await recalled(deps, tongue, llm)
        assert result.memory_keys == (own,) == result.trace[-1].keys
        (answer,) = told(llm.calls[-1].messages)
        answers.add(str(answer).replace(key, "KEY"))
    (only,) = answers
    assert "KEY" in only and "'success': False" in only
    result = await recalled(deps, tongue, ScriptedLLM([handing(foreign)]))
    assert (result.evidence, result.confidence) == ((), 0.0)


@ONE
async def test_what_an_agent_s_users_share_is_seen_by_them_only(tongue: Tongue) -> None:
    """By search, in detail, and as evidence."""
    deps = await furnished()
    memory = notebook(deps)
    for agent in ("ours", "theirs"):
        await memory.add(f"{tongue.facts[0]} {agent}", agent_id=agent, infer=False)
    (hidden,) = (await memory.get_all(agent_id="theirs")).items
    (shared,) = (await memory.get_all(agent_id="ours")).items
    for by in ("rules", "llm"):
        llm = ScriptedLLM(
            [
                calling(SEARCH, query=tongue.question, min_relevance_score=0.0, limit=10),
                calling(DETAIL, memory_key=hidden.id),
                calling(DETAIL, memory_key=shared.id),
                handing([hidden.id, shared.id]),
            ]
        )
        result = await recalled(deps, tongue, llm if by == "llm" else None, agent_id="ours")
        brought = {key for step in result.trace for key in step.keys}
        assert hidden.id not in brought and shared.id in result.memory_keys
        assert "theirs" not in str(result)


@ONE
def test_a_handle_of_a_session_sees_that_session_only(memory: Memory, tongue: Tongue) -> None:
    for session in ("s1", "s2"):
        memory.add(f"{tongue.facts[0]} {session}", tongue.user, session_id=session, infer=False)
    for session, other in (("s1", "s2"), ("s2", "s1")):
        bound = memory.for_user(tongue.user, session_id=session)
        result = bound.recall(tongue.question)
        brought = {key for step in result.trace for key in step.keys}
        there = {it.id for kind in ("message", "user_info") for it in bound.get_all(kinds=[kind])}
        assert brought <= there and result.evidence
        assert session in str(result) and other not in str(result)


@ONE
async def test_what_stands_beside_a_message_is_of_its_conversation(tongue: Tongue) -> None:
    """Two agents of one user may have sessions of the same name."""
    deps = parts_with()
    for at in range(6):
        said = {"role": "user", "content": f"{tongue.facts[0]} {at}", "message_id": f"m{at}"}
        await notebook(deps).ingest(said, tongue.user, agent_id="ab"[at % 2], session_id="s")
    llm = ScriptedLLM([calling(DETAIL, memory_key="m2"), handing(["m2"])])
    result = await recalled(deps, tongue, llm)
    (answer,) = told(llm.calls[-1].messages)
    beside = {it["memory_key"] for it in answer["metadata"]["context"]}
    assert beside == {"m0", "m4"} and result.message_ids == ("m2",)


# Sensitive memories


SECRETS = [
    (CHINESE, "我住在铜锣湾", "铜锣湾", "用户住在哪里？"),
    (ENGLISH, "I live in Wellington", "Wellington", "Where does the user live?"),
]


@pytest.mark.parametrize(("tongue", "said", "word", "question"), SECRETS, ids=["zh", "en"])
async def test_what_is_sensitive_needs_a_grant(
    tmp_path: Path, tongue: Tongue, said: str, word: str, question: str
) -> None:
    """Note and message: neither listed, nor found, nor shown in the window, nor handed over."""
    llm = ScriptedLLM([], repeat=True)
    async with AsyncMemory(settings=quiet(tmp_path), embedder=HashingEmbedder(), llm=llm) as memory:
        for fact in tongue.facts[:2]:
            await memory.add(fact, tongue.user, infer=False)
        added = await memory.add(said, tongue.user, infer=False, sensitive=True)
        hidden = [added.results[0].id, *added.message_ids]
        llm.replies = [
            calling(SEARCH, query=question, min_relevance_score=0.0, limit=10),
            [calling(DETAIL, memory_key=key) for key in hidden],
            handing(hidden),
        ]
        results = []
        for bound in (
            memory,
            memory.for_user(tongue.user),
            memory.for_user(tongue.user, sensitive=True),
        ):
            llm.calls.clear()
            results.append(await bound.recall(question, tongue.user))
            seen = word in str([call.messages for call in llm.calls])
            assert seen == (word in str(results[-1]))
    plain, ungranted, granted = results
    assert moves(plain) == moves(ungranted) and not {*plain.memory_keys} & {*hidden}
    assert not any(step.success for step in plain.trace if step.tool == DETAIL)
    assert {*granted.memory_keys} >= {*hidden}
    for key in hidden:  # the window holds messages: this one was the newest
        assert key not in str([step.keys for step in ungranted.trace])


# Recalls side by side


@pytest.mark.parametrize("thinking", [True, False])
async def test_recalls_side_by_side_share_nothing(tmp_path: Path, thinking: bool) -> None:
    """A12: twenty at once do what each does alone; of two users, and on one agent object."""

    def model(messages: Prompt) -> Any:
        question = re.findall(r"<question>\n(.*)\n", messages[1]["content"])[0]
        if any(message["role"] == "tool" for message in messages):
            return hand_over_what_is_shown(messages)
        return calling(SEARCH, query=question, min_relevance_score=0.0)

    llm = ScriptedLLM([model], repeat=True) if thinking else None
    async with AsyncMemory(settings=quiet(tmp_path), embedder=HashingEmbedder(), llm=llm) as memory:
        for tongue in TONGUES:
            for fact in tongue.facts:
                await memory.add(fact, tongue.user, infer=False)
        agents = [RecallAgent(memory.for_user(tongue.user)) for tongue in TONGUES]
        asked = [(at % 2, TONGUES[at % 2].facts[at % 3]) for at in range(20)]

        async def by_agent(at: int, text: str) -> Recalled:
            return await agents[at].recall(text)

        async def by_memory(at: int, text: str) -> Recalled:
            return await memory.recall(text, TONGUES[at].user)

        for ask in (by_agent, by_memory):
            together = await asyncio.gather(*(ask(at, text) for at, text in asked))
            for (at, text), result in zip(asked, together, strict=True):
                alone = await ask(at, text)
                assert moves(result) == moves(alone) and result.message == alone.message
                assert result.evidence == alone.evidence and text in str(result)
                assert not any(fact in str(asdict(result)) for fact in TONGUES[1 - at].facts)
