"""Later work on the command line: shown, done and tried again, in a process of its own."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kemem import Memory
from kemem.records import Scope
from kemem.records.batch import Batch, Job
from kemem.runtime import open_store
from kemem.settings import load
from kemem.testing.openai_server import Answer, running_openai_server, status
from tests.command import SECONDS, command, environment, kemem

SAID = [("我真的一点辣都吃不了", "用户不吃辣"), ("No chilli for me, ever", "User eats no chilli")]
LATER = 4_000_000_000_000_000


class Model:
    """A language model that is away until it is told to be there."""

    there = False

    def __call__(self, request: dict[str, Any]) -> Answer:
        if not self.there:
            return status(500)
        facts = [note for said, note in SAID if said in str(request["messages"])]
        return {"facts": [{"text": it, "type": "user_preference"} for it in facts], "entities": []}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """The model that commands and memories of a test ask."""
    model = Model()
    with running_openai_server(model) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        yield model


def opened(home: Path) -> Memory:
    return Memory(settings=load(data_dir=home / "data", embedder="none"))


def remember(home: Path, said: str) -> None:
    """Say something that the model, being away, cannot draw a note from yet."""
    with opened(home) as memory:
        assert memory.add(said, user_id="u").pending


def notes(home: Path) -> list[str]:
    with opened(home) as memory:
        return [item.memory for item in memory.get_all(user_id="u")]


def jobs(home: Path, *flags: str) -> list[dict[str, Any]]:
    ran = kemem(home, "jobs", "--json", *flags)
    assert (ran.returncode, ran.stderr) == (0, "")
    items: list[dict[str, Any]] = json.loads(ran.stdout)["items"]
    return items


def change(home: Path, *more: Job, drop: Sequence[Job] = (), **changed: Any) -> None:
    """Change every job, add some more and drop others."""

    async def put() -> None:
        store = open_store(load(data_dir=home / "data"))
        known = [replace(job, **changed) for job in await store.jobs()] if changed else []
        done = tuple(job.job_id for job in drop)
        await store.apply(Batch(jobs=(*known, *more), done=done))
        await store.close()

    asyncio.run(put())


def test_work_that_failed_is_shown_tried_again_and_done(tmp_path: Path, model: Model) -> None:
    """It waits with its error; let through again, one look does it."""
    said, note = SAID[0]
    remember(tmp_path, said)
    change(tmp_path, due=LATER)  # on a slow machine it might be due before the test is over
    (job,) = jobs(tmp_path)
    assert (job["kind"], job["state"], job["attempts"]) == ("extract", "pending", 1)
    assert "answered 500" in job["error"] and said not in str(job)
    shown = kemem(tmp_path, "jobs").stdout
    assert all(it in shown for it in (job["id"], "extract", "1 tried", job["due"], job["error"]))
    model.there = True
    early = kemem(tmp_path, "work", "--once")
    assert (early.returncode, early.stdout) == (0, ""), early.stderr
    again = kemem(tmp_path, "retry", job["id"])
    assert again.returncode == 0 and "0 tried" in again.stdout
    done = kemem(tmp_path, "work", "--once")
    assert (done.returncode, done.stdout) == (0, "1 done\n"), done.stderr
    assert kemem(tmp_path, "jobs").stdout == "There are no pending or failed jobs.\n"
    assert notes(tmp_path) == [note]


def test_all_work_that_was_given_up_is_tried_again(tmp_path: Path, model: Model) -> None:
    """In Chinese and English, more than a page, a session at once; what only waits goes on."""
    for said, _ in SAID:
        remember(tmp_path, said)
    waits = Job("j_waits", "forget", Scope("default", "u"), LATER, attempts=3)
    many = [replace(waits, job_id=f"j_{n}", state="failed", due=9) for n in range(1001)]
    change(tmp_path, waits, *many, state="failed", attempts=8)
    model.there = True
    assert kemem(tmp_path, "work", "--once").stdout == ""
    again = kemem(tmp_path, "retry", "--all")
    assert (again.returncode, again.stdout, again.stderr) == (
        0,
        "1003 jobs will be tried again\n",
        "",
    )
    assert kemem(tmp_path, "retry", "--all").stdout == "0 jobs will be tried again\n"
    assert {job["state"] for job in jobs(tmp_path, "--limit", "1000")} == {"pending"}
    change(tmp_path, drop=many)
    done = kemem(tmp_path, "work", "--once")
    assert (done.returncode, done.stdout) == (0, "1 done\n"), done.stderr
    (left,) = jobs(tmp_path)
    assert (left["id"], left["state"], left["attempts"]) == ("j_waits", "pending", 3)
    assert sorted(notes(tmp_path)) == sorted(note for _, note in SAID)


@pytest.mark.parametrize(
    ("ending", "said", "note"),
    [(signal.SIGTERM, *SAID[0]), (signal.SIGINT, *SAID[1])],
)
def test_a_worker_works_until_it_is_told_to_stop(
    tmp_path: Path, model: Model, ending: signal.Signals, said: str, note: str
) -> None:
    """It finds work that comes later, and ends as if it had finished."""
    with subprocess.Popen(
        command("work", "--interval", "0.2"),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stdout
            remember(tmp_path, said)
            (job,) = jobs(tmp_path)
            model.there = True
            assert kemem(tmp_path, "retry", job["id"]).returncode == 0
            assert worker.stdout.readline() == "1 done\n"
            worker.send_signal(ending)
            rest, errors = worker.communicate(timeout=SECONDS)
        finally:
            worker.kill()  # or a failure would wait for it without end
    assert (worker.returncode, rest) == (0, "")
    assert "Traceback" not in errors
    assert notes(tmp_path) == [note]


def test_a_job_that_is_not_there_is_named(tmp_path: Path) -> None:
    """One line on standard error, as for every command."""
    ran = kemem(tmp_path, "retry", "j_没有")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "", "error: no job 'j_没有'\n")


def test_a_worker_without_its_store_says_so(tmp_path: Path) -> None:
    """At the start it does not wait for a store that cannot be opened."""
    (tmp_path / "data").write_text("a file, where a directory is needed")
    for arguments in (["work"], ["work", "--once"], ["jobs"]):
        ran = kemem(tmp_path, *arguments)
        assert (ran.returncode, ran.stdout) == (4, "")
        assert ran.stderr.startswith("error: ") and ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("work", "--interval", "0"),
        ("retry",),
        ("retry", "j_任务", "--all"),
        ("jobs", "--limit", "0"),
    ],
)
def test_a_wrong_call_is_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and nothing on standard output."""
    ran = kemem(tmp_path, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
