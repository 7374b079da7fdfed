"""What servers, workers and commands say once their store was moved."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from kemem import Memory, StoreMoved, admin
from kemem.serve.cli import work
from kemem.settings import load, shown_url
from tests.command import kemem
from tests.server import Server, refusal, running_server, wait_for

EVENT = "the store was moved and takes no more writes"
SAID = {"user_id": "ann", "messages": "我搬到了杭州。 I moved to Porto."}


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Those of an empty store on either database."""
    if request.param == "sqlite":
        return {"data_dir": str(tmp_path / "data")}
    return {"database_url": request.getfixturevalue("store_database")}


def place_of(settings: dict[str, str]) -> str:
    return next(iter(settings.values()))


def move(settings: dict[str, str], destination: str) -> str:
    """Fill a store, unless a server has done so, and move it; where it is now."""
    with Memory(settings=load(**settings, embedder="none", llm="none")) as memory:
        memory.add("Early enough. 还早。", "ann")
    admin.move(place_of(settings), destination, lambda _: None, lambda: None)
    return destination


def events(server: Server) -> list[dict[str, Any]]:
    lines = server.log.read_text("utf-8").splitlines()
    return [json.loads(it) for it in lines if it.startswith("{")]


def refused_as_moved(answer: httpx.Response, place: str) -> None:
    """It says so, and neither where the store is nor that waiting helps."""
    assert refusal(answer) == (503, "UNAVAILABLE")
    assert answer.json()["error"]["message"] == "the store was moved; nothing was written"
    assert "retry-after" not in answer.headers and place not in answer.text


def test_a_server_whose_store_was_moved_says_so(settings: dict[str, str], tmp_path: Path) -> None:
    """Not ready, not up, no write to be sent again; the place is in the log, once."""
    elsewhere = {name: it for name, it in settings.items() if name != "data_dir"}
    with running_server(tmp_path / "data", **elsewhere) as server, server.client() as client:
        assert client.post("/v1/memories", json=SAID).status_code == 200
        assert "kemem_store_up 1.0" in client.get("/metrics").text
        place = move(settings, str(tmp_path / "there"))
        refused_as_moved(client.get("/readyz"), place)
        for _ in range(2):
            refused_as_moved(client.post("/v1/memories", json=SAID), place)
            refused_as_moved(client.post("/v1/jobs/run"), place)
        assert "kemem_store_up 0.0" in client.get("/metrics").text
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/memories", params={"user_id": "ann"}).json()["results"]
        for language, words in (("en", "This store was moved"), ("zh", "此存储已迁移")):
            page = client.get("/dashboard/jobs", headers={"Accept-Language": language}).text
            assert words in page and place in page
    told = [it for it in events(server) if place in str(it)]
    assert [(it["event"], it["level"], it["place"]) for it in told] == [(EVENT, "error", place)]


def test_a_server_tells_of_a_move_before_anybody_asks(tmp_path: Path) -> None:
    """Its worker finds no job, which is no write, and notices all the same."""
    data = tmp_path / "data"
    with running_server(data) as server:
        place = move({"data_dir": str(data)}, str(tmp_path / "there"))
        wait_for(lambda: [it for it in events(server) if it["event"] == EVENT])
    assert [it["place"] for it in events(server) if it["event"] == EVENT] == [place]


@pytest.mark.parametrize(("language", "words"), [("en", "was moved to"), ("zh", "已迁移到")])
def test_a_worker_whose_store_was_moved_ends(
    settings: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    words: str,
) -> None:
    """With the words and the code of one that is started on such a store."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        assert not pauses, "it goes on"
        pauses.append(seconds)
        move(settings, str(tmp_path / "there"))

    monkeypatch.setattr(work, "time", SimpleNamespace(sleep=pause))
    given = {f"KEMEM_{name.upper()}": value for name, value in settings.items()}
    given |= {"KEMEM_LANGUAGE": language, "KEMEM_LLM": "none"}
    ran, again = (kemem(tmp_path, "work", **given) for _ in range(2))
    assert (ran.returncode, ran.stderr) == (again.returncode, again.stderr)
    assert ran.returncode == 4 and len(pauses) == 1
    assert words in ran.stderr and str(tmp_path / "there") in ran.stderr


@pytest.mark.parametrize("given", [{}, {"KEMEM_API_KEY": "k" * 32}])
def test_no_server_starts_on_a_store_that_was_moved(
    settings: dict[str, str], tmp_path: Path, given: dict[str, str]
) -> None:
    """It says where the store is now, as every other command does."""
    place = move(settings, str(tmp_path / "there"))
    given |= {f"KEMEM_{name.upper()}": value for name, value in settings.items()}
    ran = kemem(tmp_path, "serve", "--port", "0", **given)
    again = "or run kemem move again if that is not finished"
    assert ran.stderr == f"error: this store was moved to {place}; use that, {again}\n"
    assert (ran.returncode, ran.stdout) == (4, "")


def test_python_is_told_where_a_store_is_now(
    settings: dict[str, str], tmp_path: Path, fresh_database: Any
) -> None:
    """An error of its own, which has the place without a password."""
    place = shown_url(move(settings, fresh_database()))
    with pytest.raises(StoreMoved) as caught, Memory(settings=load(**settings)) as memory:
        memory.add("Too late. 太晚了。", "ann")
    assert caught.value.details == {"place": place} and ":***@" in place
