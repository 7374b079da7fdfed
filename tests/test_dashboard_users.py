"""Users in the dashboard: found by id, name and words, each with a page of their own."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kemem import AsyncMemory
from tests.pages import EVIL, browsing, faults_of, text_of

HOME, ONE = "/dashboard/users", "/dashboard/user"
BOTH = pytest.mark.parametrize(
    ("language", "user", "other", "words"),
    [("zh", "王芳", "alice", "火锅"), ("en", "alice", "王芳", "hotpot")],
)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, AsyncMemory]]:
    """A browser at a server with three users of two agents, one of them with a hostile name."""
    async with browsing(tmp_path) as (browser, app):
        memory: AsyncMemory = app.state.memory
        await memory.add("我喜欢吃火锅", user_id="王芳", session_id="one")
        await memory.add("我住在杭州", user_id="王芳", session_id="two")
        await memory.add("I love hotpot", user_id="alice", agent_id="cook")
        await memory.add(f"{EVIL} hotpot 火锅", user_id=EVIL, infer=False)
        await memory.configure("user", "alice", name="Alice Chen 陈")
        yield browser, memory


@BOTH
async def test_users_are_listed_with_what_they_hold(
    desk: tuple[httpx.AsyncClient, AsyncMemory], language: str, user: str, other: str, words: str
) -> None:
    """Each leads to a page of their own, in the language of the reader."""
    page = await desk[0].get(HOME, params={"language": language})
    text = text_of(page)
    assert {"zh": "首次出现", "en": "First seen"}[language] in text
    assert "王芳 default 2 2 2" in text and "alice Alice Chen 陈 cook 1 1 1" in text
    assert "<img src=x" not in page.text and not faults_of(page.text)
    memories = await desk[0].get("/dashboard/memories", params={"user_id": "王芳"})
    counts = {
        "zh": "共有 2 条记忆、2 条消息、2 个会话",
        "en": "2 memories, 2 messages and 2 sessions",
    }
    assert counts[language] in text_of(memories)


@BOTH
async def test_users_are_found_by_id_name_and_what_their_memories_say(
    desk: tuple[httpx.AsyncClient, AsyncMemory], language: str, user: str, other: str, words: str
) -> None:
    """Across all users and agents; a search of an operator does not count as use of a note."""
    browser, memory = desk
    for query, found in ((user[:2], user), ("陈" if language == "zh" else "CHEN", "alice")):
        page = text_of(await browser.get(HOME, params={"query": query, "language": language}))
        assert f"{found} " in page and f"{other} default" not in page.replace(found, "")
    asked = await browser.get(HOME, params={"query": words, "language": language})
    text = text_of(asked)
    assert {"zh": "没有标识或名称匹配的用户", "en": "No user has an id or name"}[language] in text
    assert user in text and f"<mark>{words[0]}" in asked.text
    assert "<img src=x" not in asked.text and not faults_of(asked.text)
    assert not any(note.uses for note in await memory.notes(user_id=user))
    nothing = text_of(await browser.get(HOME, params={"query": "qqq", "language": language}))
    assert {"zh": "没有包含这些字词的记忆", "en": "No memory has these words"}[language] in nothing


@BOTH
async def test_one_page_joins_what_is_a_user_s(
    desk: tuple[httpx.AsyncClient, AsyncMemory], language: str, user: str, other: str, words: str
) -> None:
    """Counts, profile, newest memories, and tabs that lead on and come back."""
    browser, _ = desk
    page = await browser.get(ONE, params={"user_id": user, "language": language})
    text = text_of(page)
    assert {"zh": "画像", "en": "Profile"}[language] in text
    assert words in text and "/dashboard/memories/n_" in page.text
    for view in ("memories", "conversations", "graph", "traces", "playground", "privacy"):
        address = f"/dashboard/{view}?user_id="
        assert address in page.text, view
        there = await browser.get(f"/dashboard/{view}", params={"user_id": user, "query": words})
        assert 'aria-current="page"' in there.text and f"{ONE}?user_id=" in there.text, view
        assert not faults_of(there.text)
    evil = await browser.get(ONE, params={"user_id": EVIL})
    assert "<img src=x" not in evil.text and not faults_of(evil.text)


@BOTH
async def test_an_unknown_user_has_no_page(
    desk: tuple[httpx.AsyncClient, AsyncMemory], language: str, user: str, other: str, words: str
) -> None:
    """Similar ids are offered; without an id the request is refused."""
    browser, _ = desk
    asked = {"user_id": f"{user}x", "language": language}
    page = await browser.get(ONE, params=asked)
    assert {"zh": f"没有用户“{user}x”", "en": f"There is no user “{user}x”"}[language] in text_of(
        page
    )
    assert f">{user}</a>" in page.text
    assert (await browser.get(ONE)).status_code == 400
