"""The privacy tools: what is kept of a user, as counts, as an archive, and erased for good."""

import json
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from kemem import Conflict, InvalidArgument, Memory, NotFound
from kemem.records import Line
from kemem.serve.telemetry.journal import TRACE
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder
from tests.command import kemem
from tests.pages import browsing, send, text_of
from tests.server import LocalServer, local_server, wait_for

NOW = 1_767_225_600_000_000  # 2026-01-01
WORDS = ("维也纳香蕉", "rutabaga")  # in every kind of data of the user that is erased
TALK = (
    f"我喜欢{WORDS[0]}。我住在{WORDS[0]}市。",
    f"I like {WORDS[1]}. My sister {WORDS[1].title()} lives in Berlin.",
)


@pytest.fixture
def memory(either_settings: Settings) -> Iterator[Memory]:
    with Memory(settings=either_settings, embedder=HashingEmbedder(), clock=FakeClock(NOW)) as it:
        yield it


def furnish(memory: Memory, user: str = "ann") -> None:
    """Something of every kind: messages, notes, history, graph, states, jobs, traces, a name."""
    for said in TALK:
        memory.add(said, user, session_id="s")
        memory.add(said, user, "other", session_id="s", sensitive=True)
    (first, *_) = memory.get_all(user)
    memory.update(first.id, f"{WORDS[0]} {WORDS[1]} changed", user_id=user)
    memory.checkpoint("s", user, "default")
    memory.add(f"later {WORDS[0]} {WORDS[1]}", user, wait=False)
    memory.configure("user", user, name=WORDS[1], type=WORDS[1], config={"x": WORDS[0]})
    line = Line(TRACE, f"{NOW}-{user}", NOW, {"question": f"{WORDS[0]} {WORDS[1]}"}, user)
    memory._portal.call(memory._memory.journal.note([line]))


def tables(settings: Settings) -> dict[str, list[str]]:
    """The rows of every table, as texts; of SQLite read from the file itself."""
    url = settings.database_url
    url = url.replace("postgresql://", "postgresql+psycopg://") if url else None
    engine = sa.create_engine(url or f"sqlite:///{settings.data_dir / 'kemem.db'}")
    with engine.connect() as connection:
        names = {*sa.inspect(connection).get_table_names()} - {"row_words"}  # no rows of its own
        rows = {it: connection.exec_driver_sql(f'SELECT * FROM "{it}"').all() for it in names}
    engine.dispose()
    return {name: [repr(row) for row in some] for name, some in rows.items()}


def test_an_inventory_counts_everything_of_one_user(memory: Memory) -> None:
    furnish(memory)
    memory.add("我不吃辣", "bob")
    kept = memory.privacy.inventory("ann")
    assert (kept.messages, kept.sessions, kept.agents) == (5, 3, ("default", "other"))
    assert kept.notes["user_info"] == len(memory.get_all("ann"))
    assert kept.vectors >= kept.messages and kept.jobs >= 1 and kept.summaries >= 1
    assert kept.changes > kept.notes["user_info"] and kept.entities and kept.relations
    assert kept.journal == {TRACE: 1} and kept.size > sum(len(it.encode()) for it in TALK)
    assert kept.first_message and kept.last_message and kept.first_message <= kept.last_message
    assert memory.privacy.inventory("nobody").messages == 0
    assert memory.for_user("ann").privacy.inventory() == kept
    with pytest.raises(NotFound):
        memory.for_user("bob").privacy.inventory("ann")
    with pytest.raises(InvalidArgument, match="user_id"):
        memory.privacy.inventory()


def test_an_export_holds_everything_and_can_be_imported(memory: Memory, tmp_path: Path) -> None:
    furnish(memory)
    made = memory.privacy.export("ann", tmp_path / "out" / "ann.zip")
    assert made.digest == sha256(made.path.read_bytes()).hexdigest()
    assert made.path.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(made.path) as archive:
        lines = {
            name: [json.loads(it) for it in archive.read(name).decode().splitlines()]
            for name in archive.namelist()
            if name.endswith(".jsonl")
        }
        profile = json.loads(archive.read("kemem-profile.json"))
        assert "ann" in archive.read("kemem-README.txt").decode()
        assert json.loads(archive.read("kemem-inventory.json"))["messages"] == made.messages
    notes = lines["kemem-notes.jsonl"]
    assert len(notes) == made.notes == len(memory.get_all("ann"))
    assert all(note["history"] for note in notes) and any(note["sources"] for note in notes)
    assert len(lines["kemem-sessions.jsonl"]) == 3 and lines["kemem-relations.jsonl"]
    assert any(it["summaries"] for it in lines["kemem-sessions.jsonl"])
    assert WORDS[0] in str(profile)
    stored = kemem(tmp_path, "import", str(made.path), "--user", "ann", "--json")
    assert stored.returncode == 0, stored.stderr
    with Memory(settings=load(data_dir=tmp_path / "data", embedder="none", llm="none")) as other:
        before = [(it.message_id, it.content, it.ts) for it in memory.messages("ann").items]
        assert [(it.message_id, it.content, it.ts) for it in other.messages("ann").items] == before
    with pytest.raises(Conflict, match=r"ann\.zip exists already"):
        memory.privacy.export("ann", made.path)


def test_an_export_without_the_grant_has_nothing_sensitive(memory: Memory, tmp_path: Path) -> None:
    memory.add("我不吃辣 I live in Berlin", "ann")
    memory.add(TALK[0], "ann", sensitive=True)
    memory.add(TALK[1], "ann", sensitive=True)
    for sensitive in (False, True):
        handle = memory.for_user("ann", sensitive=sensitive)
        made = handle.privacy.export(path=tmp_path / f"{sensitive}.zip")
        with zipfile.ZipFile(made.path) as archive:
            texts = "".join(archive.read(it).decode() for it in archive.namelist())
        assert [word in texts for word in WORDS] == [sensitive] * 2
        assert ("without that grant" in texts) == (not sensitive)


def test_erasing_leaves_nothing_of_the_user(
    memory: Memory, either_settings: Settings, tmp_path: Path
) -> None:
    """Neither in a table nor in a file of the store, while it is open; others keep theirs."""
    furnish(memory)
    memory.add("我不吃辣 I live in Berlin", "bob")
    ids = [it.id for it in memory.get_all("ann", kinds=["message", "user_info"])]
    before = tables(either_settings)
    assert all(any(word in row for some in before.values() for row in some) for word in WORDS)
    receipt = memory.for_user("ann").privacy.erase()
    assert receipt.erased["messages"] == 5 and receipt.erased[TRACE] == 1
    assert receipt.erased["notes"] and receipt.erased["vectors"] and receipt.remaining == {}
    assert receipt.digest == sha256("".join(sorted(f"{it}\n" for it in ids)).encode()).hexdigest()
    after = tables(either_settings)
    left = {
        name
        for name, rows in after.items()
        for row in rows
        if any(word.casefold() in row.casefold() for word in WORDS)
    }
    assert left == set()
    files = [*either_settings.data_dir.glob("kemem.db*")]
    # Older versions of SQLite let words of the index go a moment later.
    wait_for(lambda: not any(w.encode() in it.read_bytes() for w in WORDS for it in files))
    assert len(memory.get_all("bob")) == 1
    assert memory.privacy.inventory("ann").messages == 0
    with pytest.raises(NotFound, match="nothing is kept of 'ann'"):
        memory.privacy.erase("ann")


def test_a_receipt_names_the_backups_that_are_left(tmp_path: Path) -> None:
    with Memory(settings=load(data_dir=tmp_path, embedder="none", llm="none")) as memory:
        memory.add("我不吃辣", "ann")
        memory.backup()
        (copy,) = memory.privacy.erase("ann").elsewhere
    assert copy == f"backups: 1 files in {tmp_path / 'backups'}"


# The faces


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    secret = "a-secret-of-32-characters-at-least"
    with local_server(tmp_path_factory.mktemp("data"), jwt_secret=secret, api_key="key") as it:
        yield it


@pytest.mark.parametrize("user", ["小明", "ann/lee"])
def test_the_tools_work_over_http(server: LocalServer, tmp_path: Path, user: str) -> None:
    place = f"/v1/users/{httpx.QueryParams({'u': user})['u'].replace('/', '%2F')}"
    with server.client("key") as client:
        added = client.post("/v1/memories", json={"messages": TALK[0], "user_id": user})
        assert added.status_code == 200
        assert client.get(f"{place}/inventory").json()["messages"] == 1
        export = client.get(f"{place}/export")
        assert export.headers["content-type"] == "application/zip"
        assert export.headers["x-content-sha256"] == sha256(export.content).hexdigest()
        (tmp_path / "a.zip").write_bytes(export.content)
        assert "messages.jsonl" in zipfile.ZipFile(tmp_path / "a.zip").namelist()
        receipt = client.delete(place).json()
        assert receipt["erased"]["messages"] == 1 and receipt["user_id"] == user
        assert client.get(f"{place}/inventory").json()["messages"] == 0


def test_a_token_reaches_its_own_user_only(server: LocalServer) -> None:
    import jwt

    token = jwt.encode({"sub": "ann"}, "a-secret-of-32-characters-at-least", "HS256")
    with server.client(token) as client:
        assert client.get("/v1/users/ann/inventory").status_code == 200
        for method, place in (("GET", "inventory"), ("GET", "export"), ("DELETE", "")):
            address = f"/v1/users/bob/{place}".rstrip("/")
            assert client.request(method, address).status_code == 404


def test_the_commands_show_export_and_erase(tmp_path: Path) -> None:
    with Memory(settings=load(data_dir=tmp_path / "data", embedder="none", llm="none")) as memory:
        memory.add(TALK[1], "ann")
    shown = kemem(tmp_path, "inventory", "--user", "ann", "--json")
    assert json.loads(shown.stdout)["messages"] == 1
    made = kemem(tmp_path, "export", "--user", "ann", "--to", str(tmp_path / "ann.zip"), "--json")
    assert json.loads(made.stdout)["messages"] == 1
    refused = kemem(tmp_path, "erase", "--user", "ann")  # nobody says yes
    assert refused.returncode != 0
    done = kemem(tmp_path, "erase", "--user", "ann", "--yes")
    assert "messages: 1" in done.stdout and "SHA-256: " in done.stdout
    assert (
        json.loads(kemem(tmp_path, "inventory", "--user", "ann", "--json").stdout)["messages"] == 0
    )


def test_the_commands_know_nobody_of_whom_nothing_is_kept(tmp_path: Path) -> None:
    """Not even after an earlier attempt, which the audit log has; a name alone is erased."""
    with Memory(settings=load(data_dir=tmp_path / "data", embedder="none", llm="none")) as memory:
        memory.add(TALK[1], "ghost")
        memory.privacy.erase("ghost")
        memory.configure("user", "ghost", name="Ann")
    named = kemem(tmp_path, "erase", "--user", "ghost", "--yes")
    assert named.returncode == 0 and "SHA-256: " in named.stdout
    for user, language, said in (
        ("gohst", "en", "error: nothing is kept of 'gohst'"),
        ("gohst", "zh", "错误：没有保存 'gohst' 的任何内容"),
        ("ghost", "en", "error: nothing is kept of 'ghost'"),
    ):
        refused = kemem(tmp_path, "erase", "--user", user, "--yes", KEMEM_LANGUAGE=language)
        assert refused.returncode == 3 and said in refused.stderr and not refused.stdout
        empty = kemem(tmp_path, "export", "--user", user, "--to", "e.zip", KEMEM_LANGUAGE=language)
        assert empty.returncode == 3 and said in empty.stderr and not empty.stdout
    assert not [*tmp_path.rglob("*.zip")]


@pytest.mark.parametrize(
    ("language", "erased"), [("zh", "已删除"), ("en", "Erased")], ids=["zh", "en"]
)
async def test_the_dashboard_shows_downloads_and_erases(
    tmp_path: Path, language: str, erased: str
) -> None:
    """Only where the id is typed once more."""
    place, whose = "/dashboard/privacy", {"user_id": "ann/lee"}
    async with browsing(tmp_path / "data") as (browser, app):
        await app.state.memory.add(TALK[0], "ann/lee")
        shown = text_of(await browser.get(place, params={"language": language, **whose}))
        assert "ann/lee" in shown
        archive = await browser.get(f"{place}/export", params=whose)
        assert archive.status_code == 200 and archive.content.startswith(b"PK")
        refused = await send(browser, place, typed="ann", **whose)
        assert refused.status_code == 400
        assert (await app.state.memory.privacy.inventory("ann/lee")).messages == 1
        receipt = text_of(await send(browser, place, typed="ann/lee", **whose))
        assert erased in receipt
        assert (await app.state.memory.privacy.inventory("ann/lee")).messages == 0
