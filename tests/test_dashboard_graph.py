"""The dashboard's Graph: bounded, at any day, by table as by picture, and escaped."""

import asyncio
import re
from collections.abc import Iterator
from html import unescape
from itertools import combinations
from math import dist
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from kemem import AsyncMemory
from kemem.records import Link, Note
from kemem.records.batch import Batch
from kemem.records.times import to_micros
from kemem.serve.dashboard.graph import LINKS, NODES, READ, tones_of
from kemem.serve.dashboard.labels import labels
from kemem.serve.dashboard.page import STATIC
from kemem.settings import load
from tests.cases import each
from tests.server import LocalServer, local_server
from tests.talk import note

HOME = "/dashboard/graph"
DATA = f"{HOME}/data"
XSS = "<img src=x onerror=alert(1)>\"'"
KEY, SECRET = "the key of an operator", "the application signs with these 32 bytes"
MANY = 10_000
BOTH = pytest.mark.parametrize("language", ["zh", "en"])
FRIENDS = {
    "zh": ("李明", "北京大学", "works_at", "李明在北京大学工作"),
    "en": ("Emma", "Acme Corp", "works_at", "Emma works at Acme Corp"),
}


def told(user: str, name: str, content: str, since: str, **more: Any) -> Note:
    """A note of a user that holds from a day on."""
    at = to_micros(f"{since}T12:00:00Z")
    times = {"ts": at, "created": at, "updated": at, "valid_from": at}
    owner = {"agent_id": "a", "user_id": user, "session_id": None, "kind": "user_info"}
    return note(f"n_{user}_{name}", content, **owner, **times, **more)


def world() -> Iterator[Batch]:
    """Small graphs in two languages, a vast one, and one that tries to be markup."""
    for user, (person, place, relationship, text) in FRIENDS.items():
        ended = to_micros("2026-03-01T00:00:00Z")
        notes = (
            told(user, "1", text, "2026-01-10", valid_until=ended),
            told(user, "2", f"{text} 2", "2026-02-10"),
        )
        links = (
            Link(notes[0].id, person, relationship, place, "person", "organization"),
            Link(notes[1].id, place, "located_in", "Beijing 北京", "organization", "place"),
        )
        yield Batch(notes=notes, links=links)
    bad = told("xss", "1", XSS, "2026-01-10")
    yield Batch(notes=(bad,), links=(Link(bad.id, XSS, XSS, f"{XSS} 2", XSS, XSS),))
    many = told("many", "1", "认识很多人 knows many people", "2026-01-10")
    for start in range(0, MANY, 1_000):
        pairs = ((f"e{at % 97}", f"人 person {at}") for at in range(start, start + 1_000))
        yield Batch(
            notes=(many,), links=tuple(Link(many.id, one, "knows", it) for one, it in pairs)
        )


async def fill(directory: Path) -> None:
    """Write the world into a fresh store."""
    async with AsyncMemory(settings=load(data_dir=directory, embedder="none")) as memory:
        store = (await memory.runtime.deps()).store
        for batch in world():
            await store.apply(batch)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server over the world, with a key and a secret."""
    directory = tmp_path_factory.mktemp("graph") / "data"
    asyncio.run(fill(directory))
    with local_server(directory, api_key=KEY, jwt_secret=SECRET) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: LocalServer) -> Iterator[httpx.Client]:
    """An operator."""
    with server.client(KEY) as connected:
        yield connected


def shown(client: httpx.Client, path: str = HOME, status: int = 200, **asked: Any) -> str:
    """A page as it came."""
    answer = client.get(path, params=asked)
    assert answer.status_code == status, answer.text
    return answer.text


def data(client: httpx.Client, **asked: Any) -> Any:
    """Nodes and links."""
    answer = client.get(DATA, params=asked)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def triples(found: Any) -> set[tuple[str, str, str]]:
    """The bare relations."""
    return {(it["source"], it["relationship"], it["target"]) for it in found["links"]}


@BOTH
def test_the_users_are_there_to_choose_from(client: httpx.Client, language: str) -> None:
    """Each leads to their graph; the page speaks the reader's language."""
    page = shown(client, language=language)
    for user in FRIENDS:
        assert f'href="{HOME}?user_id={user}&amp;agent_id=a"' in page
    assert {"zh": "想查看谁的关系", "en": "Choose the user"}[language] in page


@BOTH
def test_relations_are_a_table_with_their_notes(client: httpx.Client, language: str) -> None:
    """It works without any script: names lead on, notes lead to the memory."""
    person, place, _, text = FRIENDS[language]
    page = unescape(shown(client, user_id=language, as_of="2026-02-20", language=language))
    assert person in page and place in page and "located_in" in page
    assert text in page and f"/dashboard/memories/n_{language}_1?" in page
    assert {"zh": "显示", "en": "Showing"}[language] in page


@BOTH
def test_data_has_what_the_table_has(client: httpx.Client, language: str) -> None:
    """Nodes with types and degrees, links with validity and notes."""
    person, place, relationship, text = FRIENDS[language]
    found = data(client, user_id=language, as_of="2026-02-20")
    assert {it["id"]: (it["type"], it["degree"]) for it in found["nodes"]} == {
        person: ("person", 1),
        place: ("organization", 2),
        "Beijing 北京": ("place", 1),
    }
    job = next(it for it in found["links"] if it["source"] == person)
    assert (job["relationship"], job["target"]) == (relationship, place)
    assert job["valid_from"] == "2026-01-10T12:00:00.000000Z"
    assert job["valid_until"] == "2026-03-01T00:00:00.000000Z"
    assert [it["text"] for it in job["notes"]] == [text]


@BOTH
def test_a_day_shows_what_held_then(client: httpx.Client, language: str) -> None:
    """What had not begun and what had ended is left out."""
    person, place, relationship, _ = FRIENDS[language]
    first, second = (person, relationship, place), (place, "located_in", "Beijing 北京")
    assert triples(data(client, user_id=language, as_of="2026-01-09")) == set()
    assert triples(data(client, user_id=language, as_of="2026-01-10")) == {first}
    assert triples(data(client, user_id=language, as_of="2026-02-28")) == {first, second}
    assert triples(data(client, user_id=language)) == {second}


@BOTH
def test_an_entity_shows_what_is_near(client: httpx.Client, language: str) -> None:
    """A step reaches its own relations, two those of its neighbours; several may be chosen."""
    person, place, relationship, _ = FRIENDS[language]
    asked: dict[str, Any] = {"user_id": language, "as_of": "2026-02-20", "around": person}
    first, second = (person, relationship, place), (place, "located_in", "Beijing 北京")
    assert triples(data(client, **asked)) == {first}
    assert triples(data(client, **asked, hops=2)) == {first, second}
    assert triples(data(client, **asked | {"around": [person, place]})) == {first, second}


@BOTH
def test_part_of_a_name_suggests_the_whole(client: httpx.Client, language: str) -> None:
    """An entity is found by its name; what only resembles one is offered."""
    person, _, _, _ = FRIENDS[language]
    asked: dict[str, Any] = {
        "user_id": language,
        "as_of": "2026-02-20",
        "around": person[:1].lower(),
    }
    page = shown(client, **asked, language=language)
    assert {"zh": "是否想找", "en": "Did you mean"}[language] in page
    assert person in page


def test_a_vast_graph_is_bounded(client: httpx.Client) -> None:
    """As many entities and relations as one can look at; it says that there are more."""
    found = data(client, user_id="many")
    assert len(found["nodes"]) <= NODES and 0 < len(found["links"]) <= LINKS
    assert (found["read"], found["is_full"]) == (READ, True)
    ends = {end for it in found["links"] for end in (it["source"], it["target"])}
    assert ends == {it["id"] for it in found["nodes"]}
    for language, words in (
        ("en", f"of more than {READ:,} relations"),
        ("zh", f"共 超过 {READ:,} 条"),
    ):
        page = shown(client, user_id="many", language=language)
        assert words in " ".join(page.split())


def test_what_is_near_a_hub_is_bounded_too(client: httpx.Client) -> None:
    """The hub stays in the middle of what is shown."""
    found = data(client, user_id="many", around="e5")
    assert {it["source"] for it in found["links"]} == {"e5"}
    assert len(found["nodes"]) <= NODES


@BOTH
@each("path", [HOME, DATA])
@each(
    "wrong",
    [{"hops": "9"}, {"hops": "x"}, {"as_of": "昨天 yesterday"}, {"user_id": "a\x00b"}],
)
def test_what_is_wrong_is_refused_with_a_page(
    client: httpx.Client, path: str, wrong: dict[str, str], language: str
) -> None:
    """400 and the reason, never a crash."""
    page = shown(client, path, 400, **{"user_id": "zh", "language": language} | wrong)
    assert {"zh": "请求有误", "en": "cannot be understood"}[language] in page


def test_data_without_a_user_is_refused(client: httpx.Client) -> None:
    """No read goes without saying whose."""
    shown(client, DATA, 400)


@BOTH
def test_an_unknown_user_has_an_empty_graph(client: httpx.Client, language: str) -> None:
    """The page says what to do."""
    page = shown(client, user_id="没有这人 nobody", language=language)
    assert {"zh": "没有用户“没有这人", "en": "There is no user “没有这人"}[language] in page
    assert data(client, user_id="没有这人 nobody")["links"] == []


@BOTH
def test_markup_in_names_and_notes_is_shown_as_text(client: httpx.Client, language: str) -> None:
    """In the table, in suggestions and in what was typed."""
    for around in ("", XSS, "onerror"):
        page = shown(client, user_id="xss", language=language, around=around)
        assert "<img src=x" not in page
        assert "&lt;img src=x" in page


def test_only_operators_see_the_graph(server: LocalServer) -> None:
    """A stranger is refused, and so is a token of the very user."""
    own = jwt.encode({"sub": "zh"}, SECRET, algorithm="HS256")
    with server.client() as stranger, server.client(own) as bound:
        for path in (HOME, DATA):
            assert stranger.get(path, params={"user_id": "zh"}).status_code == 401
            assert bound.get(path, params={"user_id": "zh"}).status_code == 403


def test_the_page_keeps_the_strict_policy(client: httpx.Client) -> None:
    """No script, style or handler in the page itself; nothing is loaded from elsewhere."""
    answer = client.get(HOME, params={"user_id": "zh"})
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "style-src 'self'" in policy
    assert "unsafe" not in policy and "sha256" not in policy
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=\"/dashboard/)", answer.text)


# Marks

# What people see who lack one kind of cone (Machado, Oliveira and Fernandes, 2009), of linear RGB.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
OKLAB = (
    ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300)),
    ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087)),
)


def times(rows: Any, values: Any) -> list[float]:
    return [sum(a * b for a, b in zip(row, values, strict=True)) for row in rows]


def linear(colour: str) -> list[float]:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]


def seen(colour: str, eye: str) -> list[float]:
    """A colour in OKLab, as an eye sees it."""
    cones = times(OKLAB[0], [min(1.0, max(0.0, it)) for it in times(EYES[eye], linear(colour))])
    return times(OKLAB[1], [max(0.0, it) ** (1 / 3) for it in cones])


def colours(name: str) -> tuple[str, str]:
    """A colour of the style sheet, by day and by night."""
    css = (STATIC / "app.css").read_text("utf-8")
    found = re.search(rf"--{name}: light-dark\((#\w+), (#\w+)\)", css)
    assert found, name
    return found[1], found[2]


def test_every_type_of_entity_has_a_mark_of_its_own() -> None:
    """A colour and a shape that no other has, whatever types there are besides."""
    tones = tones_of([*labels()["entity"], "gadget", "设备"])
    marks = {(tone % 8, (tone + tone // 8) % 4) for tone in tones.values()}
    assert len(marks) == len(tones) == len(labels()["entity"]) + 2
    assert tones_of(["person"])["person"] == tones["person"]


@pytest.mark.parametrize("night", [False, True])
def test_marks_are_told_apart_by_every_eye(night: bool) -> None:
    """All colours stand out; those with the same shape differ for the colour-blind as well."""
    tones = [colours(f"tone-{n}")[night] for n in range(8)]

    def light(colour: str) -> float:
        return 0.05 + times(((0.2126, 0.7152, 0.0722),), linear(colour))[0]

    behind = light(colours("page")[night])
    for tone in tones:
        assert max(light(tone), behind) / min(light(tone), behind) >= 3, tone
    for one, other in combinations(range(8), 2):
        eyes = EYES if one % 4 == other % 4 else ("all cones",)
        for eye in eyes:
            assert dist(seen(tones[one], eye), seen(tones[other], eye)) >= 0.09, (one, other, eye)
