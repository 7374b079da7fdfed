"""The search playground: what each signal says of a hit, and two ways to ask side by side."""

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem.memory import AsyncMemory
from kemem.records import Message
from kemem.results import Hit
from kemem.serve.dashboard.display import highlighted
from kemem.serve.dashboard.memories import explained
from kemem.settings import load
from kemem.testing import HashingEmbedder
from tests.cases import each
from tests.pages import browsing
from tests.server import LocalServer, local_server, note_of

HOME = "/dashboard/playground"
EVIL = "<img src=x onerror=alert(1)>\"'"
SAID = {
    "zh": ("用户喜欢喝绿茶", "用户上周去了茶馆喝绿茶", "绿茶"),
    "en": ("User likes green tea", "User drank green tea in Berlin last week", "green tea"),
}
BOTH = pytest.mark.parametrize("language", SAID)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server whose users have told of tea."""
    with local_server(tmp_path_factory.mktemp("playground") / "data") as running:
        with running.client() as client:
            for language, (*notes, _) in SAID.items():
                for text in notes:
                    note_of(client, f"u_{language}", text)
        yield running


def ask(client: httpx.Client, language: str, **given: Any) -> httpx.Response:
    """The page that answers the question of a language."""
    asked = {"query": SAID[language][-1], "user_id": f"u_{language}", "language": language}
    return client.get(HOME, params={**asked, **given})


def columns(page: httpx.Response) -> list[list[str]]:
    """The hits of each column, as HTML."""
    assert page.status_code == 200, page.text
    found = re.findall(r'<section class="panel column".*?</section>', page.text, re.DOTALL)
    return [re.findall(r'<li class="hit">.*?</li>', it, re.DOTALL) for it in found]


@BOTH
def test_a_search_can_be_as_of_a_time_and_within_a_session(
    client: httpx.Client, language: str
) -> None:
    """Before the notes there is nothing to find, in each column by its own time."""
    early = "2020-01-01T00:00"
    now, then = columns(ask(client, language, compare="yes", b_as_of=early))
    assert (len(now), len(then)) == (2, 0)
    assert columns(ask(client, language, as_of=early)) == [[]]
    assert columns(ask(client, language, session_id="没有 nowhere")) == [[]]
    page = ask(client, language, as_of=early, session_id="one")
    assert f'name="as_of" type="datetime-local" value="{early}"' in page.text
    assert 'name="session_id" type="text" value="one"' in page.text


@BOTH
def test_a_hit_shows_its_score_its_signals_and_the_words_that_matched(
    client: httpx.Client, language: str
) -> None:
    page = ask(client, language)
    (hits,) = columns(page)
    assert len(hits) == 2
    name = {"zh": "字词", "en": "words"}[language]
    for hit in hits:
        assert f"<mark>{SAID[language][-1].split()[-1]}</mark>" in hit
        assert re.search(rf"<dt>{name} #\d</dt>\s*<dd><meter[^>]* value=\"0\.\d+", hit)
        assert re.search(r'<span class="score">0\.\d{3}</span>', hit)
        assert "/dashboard/memories/n_" in hit
    assert re.search(r"2 · [\d.]+ m?s", page.text)
    assert "semantic" not in page.text.split('class="hits"')[1]  # it has a name in each language
    notice = {"zh": "以下信号不可用", "en": "Not asked, because it is not available"}[language]
    assert notice in page.text


class Judge:
    """A reranker that has one opinion of all."""

    async def rank(self, query: str, texts: Sequence[str]) -> list[float]:
        return [0.25 for _ in texts]


@pytest.mark.parametrize(
    ("said", "asked", "linked"),
    [
        ("我住在北京", "现在住在北京吗", "user lives_in 北京"),
        ("I live in Berlin", "Is Berlin home now?", "user lives_in Berlin"),
    ],
)
async def test_each_signal_of_a_search_is_told_apart(
    tmp_path: Path, said: str, asked: str, linked: str
) -> None:
    """All that is measured becomes a bar; the rest stays words."""
    settings = load(data_dir=tmp_path, llm="none")
    async with AsyncMemory(
        settings=settings, embedder=HashingEmbedder(), reranker=Judge()
    ) as memory:
        await memory.add(said, user_id="u")
        hit, *_ = await memory.search(asked, "u", kinds=["user_info"], explain=True)
    signals, reasons = explained(hit)
    shares = {name: score for name, _, score in signals}
    assert shares.keys() == {"lexical", "semantic", "rerank"}
    assert shares["rerank"] == 0.25 and 0 < shares["lexical"] <= 1 and 0 < shares["semantic"] <= 1
    assert [rank for _, rank, _ in signals] == ["1", "1", ""]
    assert dict(reasons)["graph"] == linked
    assert dict(reasons).keys() == {"graph", "terms"}


@BOTH
def test_two_settings_stand_side_by_side_and_show_what_moved(
    client: httpx.Client, language: str
) -> None:
    """B leaves one out that A has; with a question of its own it brings another order."""
    a, b = columns(ask(client, language, compare="yes", b_limit=1))
    assert (len(a), len(b)) == (2, 1)
    assert "B #1" in a[0] and {"zh": "B 中没有", "en": "not in B"}[language] in a[1]
    assert '<span class="moved">=</span>' in b[0]
    last = re.sub("<[^>]*>", "", a[1])
    (other,) = (text for text in SAID[language][:-1] if text in last)
    a, b = columns(ask(client, language, compare="yes", b_query=other))
    assert "↑ 1" in b[0] and "↓ 1" in b[1]
    a, b = columns(ask(client, language, compare="yes", limit=1, b_limit=2))
    assert {"zh": "新增", "en": "new"}[language] in b[1]


@BOTH
def test_settings_are_those_of_the_search(client: httpx.Client, language: str) -> None:
    """Each of them can leave hits out."""
    kept: list[tuple[dict[str, Any], int]] = [
        ({"mode": "lexical", "rerank": "no"}, 2),
        ({"threshold": "1"}, 0),
        ({"kinds": "user_info"}, 2),
        ({"kinds": ["message", "knowledge"]}, 0),
        ({"since": "2030-01-01T00:00"}, 0),
        ({"until": "2030-01-01T00:00"}, 2),
        ({"keywords": "茶馆，Berlin"}, 1),
        ({"filters": '{"memory_type": "plan"}'}, 0),
        ({"filters": '{"memory_type": "verbatim"}'}, 2),
        ({"agent_id": "nobody"}, 0),
    ]
    for given, count in kept:
        (hits,) = columns(ask(client, language, **given))
        # The message behind a note may take its place; what is counted are notes.
        notes = [hit for hit in hits if "/dashboard/memories/n_" in hit]
        assert len(notes) == count, given
    nothing = {"zh": "没有找到", "en": "Nothing was found"}[language]
    assert nothing in ask(client, language, threshold=1).text


@BOTH
def test_a_vote_says_what_was_asked_and_found(client: httpx.Client, language: str) -> None:
    """The form of a hit carries all that a vote is about."""
    _, b = columns(ask(client, language, compare="yes", b_mode="lexical"))
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', b[0]))
    assert fields["query"] == SAID[language][-1]
    assert fields["user_id"] == f"u_{language}" and fields["memory_id"].startswith("n_")
    assert (fields["rank"], 0 < float(fields["score"]) <= 1) == ("1", True)
    settings = json.loads(html.unescape(fields["settings"]))
    assert settings == {"mode": "lexical", "limit": 10, "rerank": True}
    assert fields["form_token"]
    assert re.findall(r'name="vote" value="(\w+)"', b[0]) == ["up", "down"]


@each(
    "wrong",
    [
        {"limit": "0"},
        {"limit": "51"},
        {"limit": "十"},
        {"threshold": "2"},
        {"threshold": "nan"},
        {"mode": "dream"},
        {"kinds": "dream"},
        {"since": "昨天"},
        {"since": "2026-02-01", "until": "2026-01-01"},
        {"filters": "{"},
        {"filters": '{"a": {"like": 1}}'},
        {"keywords": "x" * 300},
        {"user_id": ""},
        {"rerank": "perhaps"},
    ],
)
def test_a_wrong_setting_is_explained_in_its_column(
    client: httpx.Client, wrong: dict[str, str]
) -> None:
    """The other column is answered."""
    page = ask(client, "en", **wrong)
    assert page.status_code == 400 and 'role="alert"' in page.text
    if "user_id" not in wrong:
        other = {f"b_{name}": value for name, value in wrong.items()}
        page = ask(client, "zh", compare="yes", **other)
        assert page.status_code == 400
        assert page.text.count('role="alert"') == 1 and '<li class="hit">' in page.text


def test_nothing_that_was_said_or_asked_becomes_part_of_the_page(client: httpx.Client) -> None:
    note_of(client, EVIL, f"{EVIL} 图 <mark>img</mark>")
    note_of(client, EVIL, f"img {EVIL}")
    evil = {"query": f"img {EVIL}", "user_id": EVIL, "compare": "yes"}
    typed = dict.fromkeys(("b_keywords", "b_filters", "b_since", "b_mode", "b_query"), EVIL)
    for given in (evil, {**evil, **typed}, {**evil, "user_id": "", "agent_id": EVIL}):
        page = client.get(HOME, params=given)
        assert page.status_code in (200, 400)
        assert "onerror=alert(1)" in html.unescape(page.text)
        assert "<img src=x" not in page.text and " style=" not in page.text


@BOTH
def test_an_empty_form_says_what_to_do(client: httpx.Client, language: str) -> None:
    page = client.get(HOME, params={"language": language})
    assert page.status_code == 200
    assert {"zh": "提一个问题", "en": "Ask a question"}[language] in page.text
    assert f'<option value="u_{language}">' in page.text


@pytest.mark.parametrize("text", ["他说 <mark>茶</mark>", "he said <mark>tea</mark>"])
def test_marks_in_a_text_are_its_own(text: str) -> None:
    """They do not pass for what a search matched."""
    message = Message("m", "a", "u", "s", "user", text, 0, 0)
    assert highlighted(Hit(message, 1.0, snippets=(f"<mark>{text}</mark>",))) == [("", text)]


@BOTH
async def test_to_try_a_search_does_not_count_as_use(tmp_path: Path, language: str) -> None:
    """Only searches of applications do."""
    said, *_, query = SAID[language]
    async with browsing(tmp_path / "data") as (browser, app):
        memory: AsyncMemory = app.state.memory
        await memory.add(said, user_id="u", infer=False)
        uses: list[int] = []
        for _ in range(2):
            page = await browser.get(HOME, params={"query": query, "user_id": "u"})
            assert len(columns(page)[0]) >= 1
            await memory.run_jobs()
            uses += [note.uses for note in await memory.notes("u")]
            await memory.search(query, user_id="u")
    assert uses == [0, 1]
