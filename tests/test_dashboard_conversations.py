"""The dashboard's Conversations: who talked, what was said, and what a session keeps of it."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from kemem import AsyncMemory
from kemem.records.batch import Batch
from kemem.serve.dashboard.conversations import PAGE, SESSIONS, notes_of
from kemem.settings import load
from kemem_conformance.suite import noted
from kemem_conformance.suite import said as stored_message
from kemem_conformance.world import NOW
from tests.cases import each
from tests.pages import token_of
from tests.server import LocalServer, add, local_server, post, said
from tests.talk import varied

HOME = "/dashboard/conversations"
XSS = "<img src=x onerror=alert(1)>\"'"
KEY, SECRET = "the key of an operator", "the application signs with these 32 bytes"
BOTH = pytest.mark.parametrize("language", ["zh", "en"])
TALK = {
    "zh": ["我叫李明，在北京大学工作。", "很高兴认识你！"],
    "en": ["My name is Emma and I live in Tacoma.", "Nice to meet you!"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server with a key and a secret, whose sessions get a State early."""
    directory: Path = tmp_path_factory.mktemp("talk") / "data"
    trust = {"api_key": KEY, "jwt_secret": SECRET}
    with local_server(directory, **trust, state_tokens=200, llm="none") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: LocalServer) -> Iterator[httpx.Client]:
    """An operator, after two people talked."""
    with server.client(KEY) as connected:
        for language, texts in TALK.items():
            days = ("2026-01-26", "2026-01-28")
            roles = ("user", "assistant")
            messages = [
                said(text, f"{language}_{at}", f"{days[at]}T10:47:00Z", role=roles[at])
                for at, text in enumerate(texts)
            ]
            add(connected, messages, user_id=language, session_id="会话 one/1")
        yield connected


def shown(client: httpx.Client, path: str = "", status: int = 200, **asked: Any) -> str:
    """A page of conversations as one reads it."""
    answer = client.get(HOME + path, params=asked)
    assert answer.status_code == status, answer.text
    return unescape(answer.text)


def session(user: str, **more: Any) -> dict[str, Any]:
    """What names the session of someone who talked."""
    return {"user_id": user, "agent_id": "default", "session_id": "会话 one/1", **more}


@BOTH
def test_users_lead_to_their_sessions_and_these_to_what_was_said(
    client: httpx.Client, language: str
) -> None:
    """Every step is a link."""
    people = client.get(HOME, params={"language": language}).text
    assert {"zh": "对话", "en": "Conversations"}[language] in people
    assert f'href="{HOME}?user_id={language}&amp;agent_id=default"' in people
    sessions = client.get(HOME, params={"user_id": language}).text
    (link,) = re.findall(rf'href="({HOME}/session\?[^"]*)"', sessions)
    assert TALK[language][1] in unescape(sessions)
    assert re.search(r'<td [^>]*class="n">2</td>', sessions)
    page = unescape(client.get(unescape(link)).text)
    assert all(text in page for text in TALK[language])


@BOTH
def test_a_user_and_a_session_are_named_disabled_and_enabled(
    client: httpx.Client, language: str
) -> None:
    """By the form on their pages; who is disabled says so and has no card."""

    def send(**fields: str) -> httpx.Response:
        token = token_of(client.get(HOME, params={"user_id": language}))
        return client.post(f"{HOME}/configure", data={"form_token": token, **fields})

    form = {"level": "user", "id": language, "name": f"{XSS} 小美", "config": '{"a": 1}'}
    made = send(**form, disabled="yes")
    page = client.get(made.headers["location"] + f"&language={language}").text
    assert {"zh": "已停用", "en": "disabled"}[language] in page and "小美" in page
    assert "<img src=x" not in page
    assert {"zh": "没有画像：该用户已停用", "en": "No profile: this user"}[language] in page
    assert "&#34;a&#34;: 1" in page
    page = client.get(send(level="user", id=language, disabled="no").headers["location"]).text
    profile = re.search(r'class="panel profile".*?</section>\n  </div>', page, re.DOTALL)
    assert profile and "/dashboard/memories/n_" in profile[0] and "小美" not in page
    whose = session(language)
    named = send(level="session", id=whose.pop("session_id"), **whose, name="选茶 tea")
    assert "选茶 tea" in client.get(named.headers["location"]).text
    assert send(**form | {"config": "{"}).status_code == 400


@BOTH
def test_a_timeline_is_in_order_by_day_with_the_notes_that_were_drawn(
    client: httpx.Client, language: str
) -> None:
    """A message stands before its notes and before what was said after it."""
    page = shown(client, "/session", **session(language, language=language))
    user, assistant = {"zh": ("用户", "助手"), "en": ("user", "assistant")}[language]
    assert f">{user}</span>" in page and f">{assistant}</span>" in page
    assert {"zh": ">上下文</a>", "en": ">Around it</a>"}[language] in page
    places = [
        page.index('datetime="2026-01-26"'),
        page.index(TALK[language][0]),
        page.index("/dashboard/memories/n_"),
        page.index('datetime="2026-01-28"'),
        page.index(TALK[language][1]),
    ]
    assert places == sorted(places)


async def test_notes_of_a_message_are_found_however_many_are_newer(tmp_path: Path) -> None:
    """And whenever they happen: what is planned has a time of its own."""
    message = stored_message("m", user_id="zh", agent_id="default")
    owner = {"user_id": "zh", "agent_id": "default"}
    drawn = noted("drawn", "明年去上海", ts=NOW - 9, sources=("m",), **owner)
    newer = [noted(f"n{at}", f"note {at}", ts=NOW + at + 1, **owner) for at in range(1_001)]
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        store = (await memory.runtime.deps()).store
        await store.apply(Batch(put=(message,), notes=(drawn, *newer)))
        notes = await notes_of([message], memory)
    assert {name: [note.id for note in found] for name, found in notes.items()} == {"m": ["drawn"]}


@BOTH
def test_a_message_stands_among_its_neighbours(client: httpx.Client, language: str) -> None:
    """The page around one message marks it and shows its notes."""
    asked: dict[str, Any] = {"user_id": language, "message_id": f"{language}_0"}
    page = shown(client, "/message", **asked, beside=1, language=language)
    assert all(text in page for text in TALK[language])
    assert page.count("said-chosen") == 1
    assert "/dashboard/memories/n_" in page
    assert {"zh": "消息的上下文", "en": "A message in its context"}[language] in page


@BOTH
def test_a_long_timeline_is_read_page_by_page(client: httpx.Client, language: str) -> None:
    """Nothing is lost and nothing comes twice; the newest page comes first."""
    user = f"long_{language}"
    count = PAGE * 2 + 1
    told = [said(f"话 word {at}", f"l{at:03}", session_id="s") for at in range(count)]
    post(client, user, *told)
    address = f"{HOME}/session?user_id={user}&session_id=s&language={language}"
    seen: list[str] = []
    while address:
        page = client.get(address).text
        seen += re.findall(r"message_id=(l\d+)#chosen", page)
        found = re.search(r'rel="next" href="([^"]+)"', page)
        address = unescape(found[1]) if found else ""
    assert sorted(seen) == [f"l{at:03}" for at in range(count)]


@BOTH
def test_many_sessions_are_listed_page_by_page(client: httpx.Client, language: str) -> None:
    """The list of a user is bounded and goes on."""
    user = f"many_{language}"
    told = [said("你好 hi", f"m{at}", session_id=f"s{at:02}") for at in range(SESSIONS + 1)]
    post(client, user, *told)
    first = client.get(HOME, params={"user_id": user, "language": language}).text
    assert len(set(re.findall(r"session_id=(s\d\d)", first))) == SESSIONS
    (rest,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert set(re.findall(r"session_id=(s\d\d)", client.get(unescape(rest)).text)) == {
        f"s{SESSIONS:02}"
    }


@BOTH
def test_the_state_of_a_session_is_shown_in_layers_with_their_tokens(
    client: httpx.Client, language: str
) -> None:
    """Layers cover what is older; the prompt keeps to the size that is asked for."""
    user = f"state_{language}"
    messages = [{"role": "user", "content": text} for text in varied(language, 40)]
    add(client, messages, user_id=user, session_id="s")
    state = client.post("/v1/sessions/s/summarize", json={"user_id": user}).json()["checkpoint"]
    asked: dict[str, Any] = {"user_id": user, "session_id": "s", "language": language}
    page = shown(client, "/memory", **asked, max_tokens=150)
    for layer in state["layers"]:
        assert layer["text"] in page
        assert f"#{layer['first']}–#{layer['last']}" in page
    assert page.count("<meter") == len(state["layers"]) + 3
    context = client.get(
        "/v1/sessions/s/context", params={"user_id": user, "max_tokens": 150}
    ).json()
    assert context["text"] in page
    assert f"<strong>{context['tokens']}</strong>" in page
    assert {"zh": "放入提示词的内容", "en": "What a prompt is given"}[language] in page


@BOTH
def test_a_short_session_says_that_it_needs_no_state(client: httpx.Client, language: str) -> None:
    """All of it is in the prompt, verbatim."""
    page = shown(client, "/memory", **session(language, language=language))
    assert {"zh": "尚不需要状态", "en": "needs no State yet"}[language] in page
    assert all(text in page for text in TALK[language])


@BOTH
def test_messages_are_marked_as_partial_or_sensitive(client: httpx.Client, language: str) -> None:
    """And they name who spoke in a group."""
    user = f"marks_{language}"
    words = {"zh": ("未说完", "敏感", "小王"), "en": ("partial", "sensitive", "Ann")}[language]
    add(
        client,
        [{"content": "嗯 well", "metadata": {"partial": True, "speaker": words[2]}}],
        user_id=user,
        session_id="s",
        infer=False,
        sensitive=True,
    )
    page = shown(client, "/session", user_id=user, session_id="s", language=language)
    assert all(word in page for word in words)


@BOTH
def test_a_withdrawn_message_is_shown_and_marked(client: httpx.Client, language: str) -> None:
    """In the conversation; lists of memories and their filters leave it out."""
    user, text = f"taken_back_{language}", {"zh": "我不吃辣", "en": "I like tea"}[language]
    mark = {"zh": "已撤下", "en": "withdrawn"}[language]
    note = add(client, text, user_id=user, session_id="会话 one/1")["results"][0]["id"]
    assert mark not in shown(client, "/session", **session(user, language=language))
    client.delete(f"/v1/memories/{note}", params={"user_id": user})
    page = shown(client, "/session", **session(user, language=language))
    assert text in page and f'badge-withdrawn">{mark}<' in page
    assert text not in shown(client, user_id=user, language=language)
    assert text not in shown(client, "/memory", **session(user, language=language))
    for more in ({}, {"text": text[2:]}):
        asked = {"user_id": user, "kind": "message", **more}
        listed = unescape(client.get("/dashboard/memories", params=asked).text)
        assert text not in listed


@BOTH
def test_markup_in_what_was_said_is_shown_as_text(client: httpx.Client, language: str) -> None:
    """In ids, speakers, messages, notes, summaries and prompts."""
    user, name = f"<b>{language}'\"", f"{XSS} s"
    message = {"content": XSS, "metadata": {"speaker": XSS}, "message_id": f"{XSS} m"}
    add(client, [message], user_id=user, session_id=name, infer=False)
    asked = {"user_id": user, "session_id": name, "message_id": f"{XSS} m", "language": language}
    for path in ("", "/session", "/message", "/memory"):
        page = client.get(HOME + path, params=asked)
        assert page.status_code == 200, page.text
        assert "<img src=x" not in page.text and "<b>" not in page.text
        assert "&lt;img src=x" in page.text


@BOTH
@each(
    ("path", "wrong", "status"),
    [
        ("/session", {"session_id": ""}, 400),
        ("/session", {"cursor": "x"}, 400),
        ("/session", {"user_id": "somebody else"}, 404),
        ("/session", {"session_id": "没有 none"}, 404),
        ("/memory", {"max_tokens": "49"}, 400),
        ("/memory", {"max_tokens": "很多"}, 400),
        ("/memory", {"user_id": "somebody else"}, 404),
        ("/message", {"message_id": "没有 none"}, 404),
        ("/message", {"message_id": "zh_0", "user_id": "en"}, 404),
        ("/message", {"message_id": "zh_0", "user_id": ""}, 400),
        ("/message", {"message_id": "zh_0", "user_id": "zh", "beside": "0"}, 400),
        ("", {"cursor": "x"}, 400),
        ("", {"user_id": "a\x00b"}, 400),
    ],
)
def test_what_is_wrong_or_missing_gets_a_page_that_says_so(
    client: httpx.Client, language: str, path: str, wrong: dict[str, str], status: int
) -> None:
    """400 or 404, never a crash."""
    page = shown(client, path, status, **session("zh", language=language) | wrong)
    reasons = {
        400: ("请求有误", "cannot be understood"),
        404: ("这里什么也没有", "Nothing is here"),
    }
    assert reasons[status][language == "en"] in page


@BOTH
def test_someone_without_sessions_gets_an_empty_state(client: httpx.Client, language: str) -> None:
    """An unknown user is named, with those that may have been meant."""
    page = shown(client, user_id="没人 nobody", language=language)
    assert {"zh": "没有用户“没人 nobody”", "en": "There is no user “没人 nobody”"}[language] in page


def test_only_operators_see_conversations(server: LocalServer, client: httpx.Client) -> None:
    """A stranger is refused, and so is a token of the very user."""
    own = jwt.encode({"sub": "zh"}, SECRET, algorithm="HS256")
    with server.client() as stranger, server.client(own) as bound:
        for path in ("", "/session", "/message", "/memory"):
            asked = session("zh", message_id="zh_0")
            assert stranger.get(HOME + path, params=asked).status_code == 401
            assert bound.get(HOME + path, params=asked).status_code == 403
