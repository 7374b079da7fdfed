"""What an application does with a memory: store, find, page, look around."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, Conflict, InvalidArgument, Memory, NotFound, Settings
from kemem.settings import load
from kemem.testing import FakeClock
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z, a Thursday
DAY = 86_400


def said(content: str, name: str | None = None, **fields: object) -> dict[str, object]:
    """A message of a user, as applications write it."""
    return {"role": "user", "content": content, "message_id": name, **fields}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """One memory with the embedder that users get; every test has its own user."""
    with Memory(data_dir=tmp_path_factory.mktemp("shared"), clock=FakeClock(NOW)) as memory:
        yield memory


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Memory]:
    """A memory of its own, by words only."""
    with Memory(settings=load(data_dir=tmp_path, embedder="none"), clock=FakeClock(NOW)) as memory:
        yield memory


@each(
    "fact, asked",
    [
        ("我不吃辣", "hotpot that is not spicy"),
        ("I can't eat spicy food", "火锅要什么口味"),
        ("我对海鲜过敏", "allergic to seafood"),
        ("My flight leaves on Friday", "航班什么时候起飞"),
    ],
)
def test_a_message_is_found_across_languages(shared: Memory, fact: str, asked: str) -> None:
    """With the defaults: no key, no service, no download."""
    user = f"跨语言 {fact[:8].strip()}"
    noise = ("The printer is out of paper", "会议改到三点", "Nice weather today", "周末去爬山")
    shared.ingest([said(text) for text in (fact, *noise)], user)
    best = shared.hybrid_search(asked, user, limit=3)[0]
    assert best.message.content == fact
    assert any(reason.startswith("semantic#1") for reason in best.why)


@pytest.mark.parametrize(
    "said, asked, term",
    [("我不吃辣", "谁不吃辣", "不吃辣"), ("Hotpots are great", "hotpot", "Hotpots")],
)
def test_a_hit_says_why(shared: Memory, said: str, asked: str, term: str) -> None:
    """Its place by words and by meaning, the terms that matched, and where they stand."""
    shared.ingest(said, f"why {asked}")
    (hit,) = shared.hybrid_search(asked, f"why {asked}")
    assert hit.why[0].startswith("lexical#1 ") and hit.why[1].startswith("semantic#1 ")
    assert hit.why[2] == f"terms: {term}"
    assert hit.snippets == (said.replace(term, f"<mark>{term}</mark>"),)
    assert 0 < hit.score <= 1


@pytest.mark.parametrize("asked", ["昨天吃了什么火锅", "which hotpot did I have yesterday"])
def test_a_time_phrase_prefers_its_time(plain: Memory, asked: str) -> None:
    """The same words, said on several days: the day that is asked for comes first."""
    for days in (0.2, 0.9, 9):
        moment = datetime.fromtimestamp(NOW / 1e6 - days * DAY, UTC)
        plain.ingest(
            said("吃了火锅 had hotpot", f"{days}", ts=moment.isoformat(), session_id=f"{days}"),
            "时间",
        )
    first = plain.hybrid_search(asked, "时间")[0]
    assert first.id in ("0.2", "0.9")
    assert first.why[-3] in ("time: 昨天", "time: yesterday")


def test_the_filters_of_a_search_hold(plain: Memory) -> None:
    """Time, role, agent and session narrow every way of searching."""
    for number, (role, agent, session) in enumerate(
        [("user", "a", "一"), ("assistant", "a", "一"), ("user", "b", "二")]
    ):
        moment = datetime.fromtimestamp(NOW / 1e6 + number, UTC)
        plain.ingest(
            said("火锅 hotpot", f"{number}", role=role, ts=moment.isoformat()),
            "小明",
            agent_id=agent,
            session_id=session,
        )
    second = datetime.fromtimestamp(NOW / 1e6 + 1, UTC)

    def found(**filters: object) -> set[str]:
        return {hit.id for hit in plain.hybrid_search("火锅", "小明", **filters)}  # type: ignore[arg-type]

    assert found() == {"0", "1", "2"}
    assert found(role="assistant") == {"1"}
    assert found(since=second) == {"1", "2"}
    assert found(until=second) == {"0"}
    assert found(agent_id="b") == {"2"}
    assert found(session_id="一") == {"0", "1"}
    assert found(agent_id="b", session_id="一") == set()


def test_another_user_finds_nothing(plain: Memory) -> None:
    """Not by id, not by words, not by a cursor."""
    plain.ingest([said(f"秘密 secret {n}") for n in range(3)], "小明")
    page = plain.messages("小明", page_size=1)
    for stranger in ("小", "小明明", "%", "_明", "*"):
        assert plain.messages(stranger).items == ()
        assert plain.lexical_search("秘密 OR secret", stranger).items == ()
        assert plain.hybrid_search("secret", stranger) == []
        with pytest.raises(NotFound):
            plain.neighbors(page.items[0].message_id, stranger)
        with pytest.raises(InvalidArgument, match="cursor"):
            plain.messages(stranger, page_size=1, cursor=page.next_cursor)


def test_pages_follow_each_other(plain: Memory) -> None:
    """Every message once, newest first, whatever is written meanwhile."""
    plain.ingest([said(f"第{n}句", f"{n:03}") for n in range(60)], "u")
    seen, cursor = [], None
    while True:
        page = plain.messages("u", page_size=7, cursor=cursor)
        seen += [message.message_id for message in page.items]
        plain.ingest("新的一句 a new one", "u")
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [f"{n:03}" for n in reversed(range(60))]


def test_ranked_pages_follow_each_other(plain: Memory) -> None:
    """The first page fixes what is ranked; later messages do not disturb the order."""
    texts = ["火锅", "火锅好吃", "hotpot 火锅", "吃火锅吃火锅", "今天吃火锅了吗", "火锅 " * 9]
    plain.ingest([said(text) for text in texts], "u")
    whole = [hit.id for hit in plain.lexical_search("火锅 吃", "u").items]
    seen, cursor = [], None
    while True:
        page = plain.lexical_search("火锅 吃", "u", page_size=2, cursor=cursor)
        seen += [hit.id for hit in page.items]
        plain.ingest("又吃火锅", "u")
        if (cursor := page.next_cursor) is None:
            break
    assert seen == whole and len(seen) == 6


def test_neighbours_are_in_the_order_they_were_said(plain: Memory) -> None:
    """Also where several sessions share a microsecond."""
    for session in "cab":
        plain.ingest(said("同时 at once", session), "u", session_id=session)
    plain.ingest(said("之前", "before", ts="2025-12-31T00:00:00Z"), "u")
    plain.ingest(said("after", "after", ts="2026-01-02T00:00:00Z"), "u")

    def around(anchor: str, before: int, after: int) -> list[str]:
        return [item.message_id for item in plain.neighbors(anchor, "u", before, after)]

    assert around("a", 20, 20) == ["before", "c", "a", "b", "after"]
    assert around("a", 1, 1) == ["c", "a", "b"]
    assert around("b", 2, 0) == ["c", "a", "b"]
    assert around("before", 9, 0) == ["before"]
    assert around("b", 0, 0) == ["b"]
    with pytest.raises(NotFound):
        around("nobody", 1, 1)


def test_a_message_may_be_told_again_but_not_changed(plain: Memory) -> None:
    told = said("我不吃辣", "m")
    assert plain.ingest(told, "u").inserted == ("m",)
    assert plain.ingest(told, "u").ignored == ("m",)
    with pytest.raises(Conflict) as conflict:
        plain.ingest([said("new"), {**told, "content": "I love spice"}], "u")
    assert conflict.value.details["message_ids"] == ["m"]
    assert [item.content for item in plain.messages("u").items] == ["我不吃辣"]


def test_the_order_given_is_the_order_kept(plain: Memory) -> None:
    """A thousand messages of one microsecond."""
    plain.ingest([said(f"{n}") for n in range(1000)], "u")
    items = plain.messages("u", page_size=1000).items
    assert [int(item.content) for item in reversed(items)] == list(range(1000))
    assert [item.sequence_no for item in reversed(items)] == list(range(1, 1001))


def test_long_messages_are_cut_and_say_so(plain: Memory) -> None:
    """100 KB at a character border; the rest of the batch is untouched."""
    done = plain.ingest([said("辣" * 40_000, "long"), said("short")], "u")
    assert done.truncated == ("long",)
    (cut,) = [item for item in plain.messages("u").items if item.message_id == "long"]
    assert cut.content == "辣" * 34_133 and cut.metadata == {"truncated": True}


def test_the_speaker_is_found_with_the_text(plain: Memory) -> None:
    plain.ingest(
        [
            said("去爬山吧", metadata={"speaker": "李雷"}),
            said("let's go", metadata={"speaker": "Caroline"}),
        ],
        "u",
    )
    assert [hit.message.content for hit in plain.lexical_search("李雷", "u").items] == ["去爬山吧"]
    assert [hit.message.content for hit in plain.lexical_search("caroline", "u").items] == [
        "let's go"
    ]


async def test_many_writers_at_once_all_succeed(tmp_path: Path) -> None:
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none")) as memory:
        await asyncio.gather(*(memory.ingest(f"第{n}句 line", f"u{n % 5}") for n in range(100)))
        assert (await memory.health()).messages == 100


@each("wrong", [0, -1, True, 1.5, "x", None])
def test_a_wrong_number_is_named(plain: Memory, wrong: object) -> None:
    for call in (
        lambda: plain.messages("u", page_size=wrong),  # type: ignore[arg-type]
        lambda: plain.lexical_search("火锅", "u", page_size=wrong),  # type: ignore[arg-type]
        lambda: plain.hybrid_search("hotpot", "u", limit=wrong),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgument, match="must be 1-1000"):
            call()


def test_settings_come_from_arguments_then_the_environment_then_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kemem.toml").write_text('data_dir = "from-file"\nport = 1\nhost = "::1"\n')
    monkeypatch.setenv("KEMEM_PORT", "2")
    monkeypatch.setenv("KEMEM_DATABASE_URL", "postgresql://elsewhere/db")
    settings = load(port=3)
    assert (settings.port, settings.host, settings.data_dir) == (3, "::1", Path("from-file"))
    assert load().port == 2 and load().database_url == "postgresql://elsewhere/db"
    assert load(data_dir="here").database_url is None, "a directory that is named is meant"
    monkeypatch.setenv("KEMEM_PORT", "many")
    with pytest.raises(InvalidArgument, match="KEMEM_PORT"):
        load()
    monkeypatch.setenv("KEMEM_PORT", "2")


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("host = '::1'\ncolour = 'blue'\n", "kemem.toml, line 2: setting colour .* does not exist"),
        ("# port\nport = 'abc'\n", "kemem.toml, line 2: setting port .* an integer, not 'abc'"),
        ("[projects.a]\nport = 3\n", "kemem.toml, line 1: setting projects .*not have a.port"),
        (
            "[projects.a]\n[projects.b]\nembedder = 'x'\n",
            "kemem.toml, line 3: setting projects.b.embedder .* must be local",
        ),
        ("port = = 3\n", r"kemem.toml is not valid TOML: .*line 1, column 8"),
        ("名 = 3\n", "kemem.toml is not valid TOML: "),
    ],
)
def test_what_is_wrong_with_the_file_is_said_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, reason: str
) -> None:
    """Names in it are those of settings; it is UTF-8."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kemem.toml").write_bytes(file.encode("gbk"))
    with pytest.raises(InvalidArgument, match=reason) as caught:
        load()
    assert "field" in caught.value.details  # so that the command line exits with 2
    monkeypatch.setenv("KEMEM_PORT", "many")
    monkeypatch.setenv("KEMEM_PROJECTS", "{}")
    (tmp_path / "kemem.toml").write_text("port = 3\n")
    with pytest.raises(InvalidArgument, match=r"^setting port"):
        load()


@pytest.mark.parametrize("make", [load, Settings])
def test_a_misspelt_setting_is_named_with_the_right_one(make: Callable[..., Settings]) -> None:
    with pytest.raises(InvalidArgument, match=r"embeder .* does not exist .did you mean 'embedd"):
        make(embeder="none")
    with pytest.raises(InvalidArgument, match=r"^setting port .* must be an integer, not 'abc'"):
        make(port="abc")


def test_the_default_directory_is_durable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the home directory, never among temporary files."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert load().data_dir == tmp_path / ".kemem"
    assert load(data_dir="~/elsewhere").data_dir == tmp_path / "elsewhere"


def test_both_a_directory_and_settings_are_too_much(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        Memory(data_dir=tmp_path, settings=Settings())


def test_a_database_that_is_none_is_refused() -> None:
    with (
        Memory(database_url="mysql://localhost/kemem") as memory,
        pytest.raises(InvalidArgument, match="postgresql://"),
    ):
        memory.health()


def test_times_must_make_sense(plain: Memory) -> None:
    now = datetime.now(UTC)
    with pytest.raises(InvalidArgument, match="later than until"):
        plain.messages("u", since=now, until=now - timedelta(seconds=1))
    with pytest.raises(InvalidArgument, match="time zone"):
        plain.messages("u", since=datetime(2026, 1, 1))
    with pytest.raises(InvalidArgument, match="RFC 3339"):
        plain.messages("u", since="昨天")


HALF = "\ud800"  # a lone surrogate, which no database can hold
WRONG_ARGUMENTS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "sensitive": ("'yes'", lambda it: it.add("x", "u", sensitive="yes")),
    "sensitive: none": ("None", lambda it: it.add("x", "u", sensitive=None)),
    "sensitive: handle": ("'yes'", lambda it: it.for_user("u", sensitive="yes")),
    "infer": ("'yes'", lambda it: it.add("x", "u", infer="yes")),
    "infer: none": ("None", lambda it: it.add("x", "u", infer=None)),
    "wait": ("1", lambda it: it.add("x", "u", wait=1)),
    "explain": ("'yes'", lambda it: it.search("x", "u", explain="yes")),
    "count": ("'yes'", lambda it: it.search("x", "u", count="yes")),
    "rerank": ("None", lambda it: it.search("x", "u", rerank=None)),
    "newest_first": ("0", lambda it: it.notes("u", newest_first=0)),
    "kinds": ("1", lambda it: it.search("x", "u", kinds=1)),
    "kinds: nested": ("[[1]]", lambda it: it.get_all("u", kinds=[[1]])),
    "around": ("1", lambda it: it.graph("u", around=1)),
    "around: list": ("[1]", lambda it: it.graph("u", around=[1])),
    "relationship": ("1", lambda it: it.graph("u", relationship=1)),
    "around: half": (r"\ud800", lambda it: it.graph("u", around=HALF)),
    "ids": ("5", lambda it: it.notes("u", ids=5)),
    "sources": ("5", lambda it: it.notes("u", sources=5)),
    "query: search": (r"\ud800", lambda it: it.search(HALF, "u")),
    "query: recall": (r"\ud800", lambda it: it.recall(HALF, "u")),
    "question": (r"\ud800", lambda it: it.recall(question=HALF, user_id="u")),
    "query: long": ("10001", lambda it: it.search("x" * 10_001, "u")),
    "query: long question": ("10001", lambda it: it.recall("x" * 10_001, "u")),
    "query: none": ("None", lambda it: it.recall(user_id="u")),
    "query: terms": ("400", lambda it: it.search(" OR ".join(f"w{at}" for at in range(400)), "u")),
    "query_text: words": (r"\ud800", lambda it: it.lexical_search(HALF, "u")),
    "query_text: both": (r"\ud800", lambda it: it.hybrid_search(HALF, "u")),
    "path: none": ("None", lambda it: it.restore(None)),
    "path: number": ("5", lambda it: it.backup(5)),
    "path: half": (r"\ud800", lambda it: it.backup(HALF)),
    "policy": ("1", lambda it: it.forget("u", policy=1)),
    "policy: empty": ("{}", lambda it: it.forget("u", policy={})),
    "on_step": ("5", lambda it: it.recall("x", "u", on_step=5)),
    "filters": ("{}", lambda it: it.delete_all("u", filters={})),
    "filters: nested": ("[{}]", lambda it: it.delete_all("u", filters={"AND": [{}]})),
    "name": ("lambda needs name=", lambda it: it.process(lambda sent: sent)),
    "name: empty": ("''", lambda it: it.process(lambda sent: sent, name="")),
    "stage": ("'x'", lambda it: it.process(lambda sent: sent, stage="x")),
    "timeout": ("0", lambda it: it.process(lambda sent: sent, timeout=0)),
    "messages[0]": ("5", lambda it: it.add([5, "x"], "u")),
    "messages[1].message_id": (
        "'a' occurs twice",
        lambda it: it.add([said("one", "a"), said("two", "a")], "u"),
    ),
    "store": ("apply, read", lambda it: Memory(store=object())),  # type: ignore[arg-type]
    "embedder": ("name, width", lambda it: Memory(embedder=object())),  # type: ignore[arg-type]
    "reranker": ("rank, not 3", lambda it: Memory(reranker=3)),  # type: ignore[arg-type]
    "vectors": ("put, remove", lambda it: Memory(vectors=3)),  # type: ignore[arg-type]
    "graph": ("around, put", lambda it: Memory(graph=3)),  # type: ignore[arg-type]
    "clock": ("3", lambda it: Memory(clock=3)),  # type: ignore[arg-type]
    "settings": ("{}", lambda it: Memory(settings={})),  # type: ignore[arg-type]
    "data_dir": ("''", lambda it: Memory(data_dir="")),
}


def test_a_wrong_argument_is_refused_by_name(plain: Memory) -> None:
    """With its value, and before anything is written."""
    plain.ingest(said("我不吃辣", "m"), "u")
    for case, (value, call) in WRONG_ARGUMENTS.items():
        field = case.partition(":")[0]
        with pytest.raises(InvalidArgument) as refused:
            call(plain)
            pytest.fail(f"{case} was accepted")
        assert refused.value.details["field"] == field, case
        assert value in str(refused.value) and len(str(refused.value)) < 250, case
        assert field in str(refused.value) or field == "name", case
        assert [it.id for it in plain.get_all("u", kinds=["message"])] == ["m"], case
        assert not plain.get_all("u") and not Path("kemem.db").exists(), case


def test_a_statement_is_compiled_once_for_all_stores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that opens another store need not compile again what the first one has."""
    for name in ("first", "second"):
        caplog.clear()
        with (
            caplog.at_level("INFO", logger="sqlalchemy.engine"),
            Memory(settings=load(data_dir=tmp_path / name, embedder="none")) as memory,
        ):
            memory.ingest(said("I like tea"), "u")
            assert memory.lexical_search("tea", "u").items
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("[cached since")]
    assert not [line for line in lines if line.startswith("[generated in")]


def test_a_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is named from the current one, which changes later."""
    monkeypatch.chdir(tmp_path)
    with Memory(settings=load(data_dir=Path("here"), embedder="none")) as memory:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        memory.ingest(said("I like tea"), "u")
        assert memory.lexical_search("tea", "u").items
    assert [it.name for it in tmp_path.rglob("kemem.db")] == ["kemem.db"]


def test_a_read_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    """Another process may be writing for long; a write has to wait for it."""
    with Memory(settings=load(data_dir=tmp_path, embedder="none")) as memory:
        memory.ingest(said("I like tea"), "u")
        with closing(sqlite3.connect(tmp_path / "kemem.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert memory.lexical_search("tea", "u").items
            with ThreadPoolExecutor(1) as pool:
                write = pool.submit(memory.ingest, said("I like milk"), "u")
                assert not wait([write], timeout=0.2).done
                other.execute("ROLLBACK")
                assert write.result()
