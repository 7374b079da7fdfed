"""`kemem demo`: a fresh store gets something to look at, a store in use is left alone."""

import asyncio
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kemem import AsyncMemory, Conflict, Memory
from kemem.records import Message, Note
from kemem.records.times import to_micros
from kemem.runtime import system_clock
from kemem.serve.cli.app import app
from kemem.serve.cli.demo import TO_TRY, is_empty
from kemem.serve.demo.world import Conversation, World, fill, read_questions, read_world
from kemem.serve.telemetry.journal import TRACE, read_runs
from kemem.serve.telemetry.metrics import DAY, Metrics
from kemem.settings import Settings, load
from kemem.text.language import is_chinese
from kemem.text.when import time_phrases
from tests.command import own_logs

NOW = datetime(2026, 3, 2, 15, 30, tzinfo=UTC)
WEEK = [NOW + timedelta(days) for days in range(7)]


def settings_for(home: Path, **given: object) -> Settings:
    return load(data_dir=home, **{"embedder": "none", "llm": "none", **given})


def run(*arguments: str, typed: str = "") -> Result:
    given = {"KEMEM_EMBEDDER": "none", "KEMEM_LLM": "none"}
    with own_logs():
        return CliRunner().invoke(app, arguments, input=typed, env=given)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a store that the command has filled."""
    return tmp_path_factory.mktemp("demo") / "a store"


@pytest.fixture(scope="module")
def filled(home: Path) -> Result:
    ran = run("demo", "--yes", "--data-dir", str(home))
    assert ran.exit_code == 0, ran.exception
    return ran


@pytest.fixture
def memory(filled: Result, home: Path) -> Iterator[Memory]:
    with Memory(settings=settings_for(home)) as opened:
        yield opened


def conversations(now: datetime) -> list[Conversation]:
    events = read_world(to_micros(now)).events
    return [event for _, event in events if isinstance(event, Conversation)]


def messages(memory: Memory, user_id: str) -> list[Message]:
    return list(memory.messages(user_id, page_size=500).items)


def notes(memory: Memory, user_id: str | None = None, agent_id: str | None = None) -> list[Note]:
    found = [item.row for item in memory.get_all(user_id, agent_id, limit=500)]
    return [row for row in found if isinstance(row, Note)]


def test_the_command_says_what_it_stored(filled: Result, memory: Memory) -> None:
    """Enough to look at, not too much to look through."""
    found = re.search(
        r"users: (\d+), messages: (\d+), notes: (\d+), relations: (\d+)", filled.stdout
    )
    assert found
    users, said, noted, related = map(int, found.groups())
    assert (said, noted) == (memory.health().messages, memory.health().notes)
    assert users == len(memory.users().items) and 6 <= users <= 8
    assert 300 <= said <= 500
    assert noted >= 200 and related >= 100
    assert memory.health().pending_jobs == memory.health().failed_jobs == 0


@pytest.mark.parametrize(("user", "chinese"), [("lin_yue", True), ("grace", False)])
def test_people_speak_their_language(memory: Memory, user: str, chinese: bool) -> None:
    """What they say and what is remembered of them."""
    rows: list[Message | Note] = [*messages(memory, user), *notes(memory, user)]
    texts = [row.content for row in rows]
    assert len(texts) >= 80
    assert sum(is_chinese(text) == chinese for text in texts) > 0.95 * len(texts)


def test_both_languages_have_their_share(memory: Memory) -> None:
    """Neither is there for show only."""
    said = [it for user in memory.users().items for it in messages(memory, user.id)]
    shares = Counter(is_chinese(message.content) for message in said)
    assert min(shares.values()) >= 150


def test_every_kind_of_note_is_there(memory: Memory) -> None:
    """Of users by kind, shared knowledge with its tags, and what only the granted may see."""
    users = [user.id for user in memory.users().items]
    kept = [note for user in users for note in notes(memory, user)]
    assert {note.kind for note in kept} == {"user_info", "experience", "short_term"}
    lessons = [note.content for note in kept if note.kind == "experience"]
    assert any(text.startswith("目标：") for text in lessons)
    assert any(text.startswith("Goal: ") for text in lessons)
    taught = [note for note in notes(memory, agent_id="default") if note.kind == "knowledge"]
    assert {"过敏", "allergy"} <= {word for note in taught for word in note.keywords}


@pytest.mark.parametrize(
    ("user", "secret"), [("zhao_laoshi", "高血压"), ("priya", "84,000"), ("grace", "sertraline")]
)
def test_what_is_sensitive_is_told_nowhere_else(memory: Memory, user: str, secret: str) -> None:
    """A handle without the grant finds no trace of it."""
    assert any(secret in note.content for note in notes(memory, user) if note.sensitive)
    handle = memory.for_user(user)
    seen: list[Message | Note] = [*messages(handle, user), *notes(handle, user)]
    assert seen and not any(secret in row.content for row in seen)


@pytest.mark.parametrize(
    ("user", "relation", "before", "after"),
    [
        ("lin_yue", "works_at", "云杉科技", "星桥科技"),
        ("lin_yue", "lives_in", "杭州西湖区", "滨江区"),
        ("grace", "works_at", "Moor Lane Hospital", "Riverside Clinic"),
        ("sam", "lives_in", "Berlin", "Lisbon"),
    ],
)
def test_lives_change_and_the_past_is_kept(
    memory: Memory, user: str, relation: str, before: str, after: str
) -> None:
    """What was true is still true of its time."""
    early = datetime.now(UTC) - timedelta(days=150)
    then, today = (memory.graph(user, as_of=when, limit=500) for when in (early, None))
    assert before in {it.destination for it in then if it.relationship == relation}
    assert [it.destination for it in today if it.relationship == relation] == [after]


@pytest.mark.parametrize(
    ("user", "diet"), [("lin_yue", "不吃牛肉"), ("grace", "doesn't eat bacon")]
)
def test_a_changed_diet_has_a_history(memory: Memory, user: str, diet: str) -> None:
    """The old liking is named as replaced, at the time at which it was."""
    (now,) = [note for note in notes(memory, user) if diet in note.content]
    assert now.supersedes
    replaced, added = memory.history(now.supersedes, user_id=user)
    assert (replaced.reason, added.event) == (f"replaced by {now.note_id}", "add")
    assert replaced.at - added.at > 60 * DAY


def test_a_group_has_a_log_for_each_member(memory: Memory) -> None:
    """Others are named, one's own words are not, the user is the user."""
    said = [it for it in messages(memory, "mia_and_leo") if it.session_id == "kyoto-trip"]
    logs = {agent: [it for it in said if it.agent_id == agent] for agent in ("planner", "foodie")}
    assert {len(log) for log in logs.values()} == {len(said) // 3}
    by_kenji = "In Uji try the small tea house behind the bridge."
    own, other = (
        next(it for it in logs[agent] if it.content.startswith(by_kenji))
        for agent in ("foodie", "planner")
    )
    assert (own.role, dict(own.metadata)) == ("assistant", {})
    assert (other.role, other.metadata["speaker"]) == ("assistant", "Kenji")
    assert other.metadata["member_id"] == "foodie"
    asked = [it for it in logs["planner"] if it.role == "user"]
    assert {is_chinese(it.content) for it in asked} == {True, False}
    assert not any(it.metadata for it in asked)


def test_sessions_have_ended_grown_and_been_kept(memory: Memory) -> None:
    """An end, a State in layers of two levels, a checkpoint of short-term notes."""
    sessions = {it.id: it for user in ("sam", "chen_mo") for it in memory.sessions(user).items}
    assert {name for name, it in sessions.items() if it.ended} == {"fix-deploy", "training-run"}
    long = [it for it in messages(memory, "sam") if it.session_id == "launch-week"]
    state = memory.checkpoint("launch-week", "sam", "default")
    assert len(long) > 60
    assert {layer.level for layer in state.layers} == {1, 2}
    kept = memory.restore_checkpoint("paper-sprint", None, "chen_mo", "default")
    assert {note.kind for note in kept.notes} == {"short_term"}


def test_workspaces_have_files(memory: Memory) -> None:
    """In both languages, found by what stands in them."""
    workspaces = memory.workspaces()
    assert workspaces.tasks() == ["kyoto-trip", "tidepool-launch"]
    found = [workspaces.search(words, limit=5)[0][:2] for words in ("住宿", "swimming clubs")]
    assert found == [("kyoto-trip", "budget.csv"), ("tidepool-launch", "checklist.md")]


@pytest.mark.parametrize(
    ("command", "answer"),
    [(TO_TRY[0], "明齿口腔"), (TO_TRY[1], "doesn't eat bacon")],
    ids=["zh", "en"],
)
def test_what_is_suggested_finds_its_answer(
    filled: Result, home: Path, command: str, answer: str
) -> None:
    """As it is printed, to be copied, even where a directory has a blank in its name."""
    (line,) = [it for it in filled.stdout.splitlines() if it.strip().startswith(command)]
    _, *arguments = shlex.split(line)
    assert arguments[-1] == str(home)
    assert answer in run(*arguments).stdout


@pytest.mark.parametrize("language", ["zh", "en"])
def test_questions_have_an_answer_that_somebody_told(memory: Memory, language: str) -> None:
    """In what was said to that very user, so that a search could find it."""
    asked = [it for it in read_questions() if is_chinese(it.question) == (language == "zh")]
    assert len(asked) >= 10
    for question in asked:
        told = [row.content for row in messages(memory, question.user)]
        assert any(question.answer in text for text in told), question


async def test_most_questions_are_answered_by_the_first_two_hits(
    filled: Result, home: Path, tmp_path: Path
) -> None:
    """With the model that comes with the package, as people see it after `kemem demo`."""
    copied = shutil.copytree(home, tmp_path / "copied")
    missed, questions = [], read_questions()
    async with AsyncMemory(settings=settings_for(copied, embedder="local")) as memory:
        await memory.reindex()
        for it in questions:
            hits = await memory.search(it.question, it.user, limit=2)
            if not any(it.answer in hit.memory for hit in hits):
                missed.append(it.question)
    assert len(missed) <= 2, missed


async def test_what_was_asked_can_be_looked_at(filled: Result, home: Path) -> None:
    """A trace of each recall, a measured run by language and category, and months of growth."""
    questions = read_questions()
    async with AsyncMemory(settings=settings_for(home)) as memory:
        traces = await memory.journal.lines(TRACE)
        assert {line.body["question"] for line in traces} == {it.question for it in questions}
        runs = await read_runs(memory)
        now = system_clock()
        days = await Metrics(memory).series(now - 180 * DAY, now, DAY)
    assert {run.language for run in runs} == {"zh", "en"}
    assert {run.category for run in runs} == {"all", *(it.category for it in questions)}
    for name in ("search", "recall"):
        whole = [run for run in runs if (run.name, run.category) == (name, "all")]
        assert sum(run.n for run in whole) == len(questions)
        assert all(0 < run.metrics["recall@10"] <= 1 for run in whole)
    sizes = [day.gauges["messages"] for day in days if day.gauges]
    assert len(sizes) >= 50 and sizes == sorted(sizes) and sizes[0] < sizes[-1]


@pytest.mark.parametrize("real", ["我不吃辣", "I can't eat spicy food"])
def test_a_store_in_use_is_refused_and_left_as_it_is(tmp_path: Path, real: str) -> None:
    """Examples are never mixed with what somebody said."""
    with Memory(settings=settings_for(tmp_path)) as memory:
        memory.ingest(real, "u_1")
    ran = run("demo", "--yes", "--data-dir", str(tmp_path))
    assert isinstance(ran.exception, Conflict)
    assert f"{tmp_path} is in use (1 messages, 0 notes)" in ran.exception.message
    with Memory(settings=settings_for(tmp_path)) as memory:
        assert [entry.id for entry in memory.users().items] == ["u_1"]
        assert memory.health().messages == 1


def test_knowledge_alone_is_use_and_a_second_demo_is_refused(
    tmp_path: Path, filled: Result, home: Path
) -> None:
    """Whatever is there counts."""
    with Memory(settings=settings_for(tmp_path)) as memory:
        memory.learn("退货要带小票。Bring the receipt.")
    for used in (tmp_path, home):
        assert isinstance(run("demo", "--yes", "--data-dir", str(used)).exception, Conflict)


def test_it_asks_first(tmp_path: Path) -> None:
    """Who says no keeps an empty store."""
    ran = run("demo", "--data-dir", str(tmp_path), typed="n\n")
    assert ran.exit_code == 1
    assert f"the empty store {tmp_path}" in ran.stderr
    assert is_empty(settings_for(tmp_path))


def test_an_empty_store_is_told_from_a_used_one(tmp_path: Path) -> None:
    """To look creates nothing; of a database elsewhere it is not asked."""
    settings = settings_for(tmp_path / "new")
    assert is_empty(settings)
    assert not settings.data_dir.exists()
    with Memory(settings=settings) as memory:
        memory.health()
        assert is_empty(settings)
        memory.ingest("你好 hello", "u_1")
    assert not is_empty(settings)
    assert not is_empty(load(database_url="postgresql://127.0.0.1:1/none"))


def test_times_follow_the_clock() -> None:
    """Half a year that ends yesterday, whenever it is told."""
    for now in WEEK:
        midnight = to_micros(now) // DAY * DAY
        ends = [event.ts for event in conversations(now)]
        assert ends == sorted(ends)
        assert midnight - DAY <= ends[-1] < midnight
        assert 150 * DAY < midnight - ends[0] < 190 * DAY


@pytest.mark.parametrize(
    ("user", "phrase", "told"),
    [("lin_yue", "上周", "明齿口腔"), ("grace", "last week", "Norman Pike")],
)
def test_last_week_is_last_week_on_every_day(user: str, phrase: str, told: str) -> None:
    """The first mention lies in the week that the question names."""
    for now in WEEK:
        (meant,) = time_phrases(phrase, now)
        naming = (it for it in conversations(now) if it.user_id == user and told in str(it.lines))
        assert meant.since <= next(naming).ts < meant.until


def test_a_model_that_is_set_is_not_asked(tmp_path: Path) -> None:
    """Examples cost nothing: no call, and no job that would make one later."""
    world = read_world(to_micros(NOW))
    settings = settings_for(tmp_path, llm="auto", llm_base_url="http://127.0.0.1:1/v1")
    asyncio.run(fill(World(world.events[:1], {}), settings, to_micros(NOW), lambda _: None))
    with Memory(settings=settings) as memory:
        assert memory.health().notes > 0
        assert memory.jobs() == []
