"""Live pages: events say that jobs or imports have changed, and pages show how far they are."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kemem.imports.recipe import Target
from kemem.records import Scope
from kemem.records.batch import Batch, Job
from kemem.serve.dashboard.live import watch
from kemem.serve.dashboard.operators import progress_of
from tests.pages import EVIL, browsing, faults_of
from tests.server import running_server

EVENTS = "/dashboard/events"
JOB = Job("j_1", "reembed", Scope("default", "王"), 9, details={"done": 256, "total": 1_000})


async def test_each_change_is_told_once() -> None:
    """What stays is no change; the first event lets a page catch up that connects again."""
    states, told = iter([1, 1, 2, 2, 3, 3]), []
    watching = watch(_next(states), lambda name, _: told.append(name), tick=0)
    with pytest.raises(StopAsyncIteration):
        await watching
    assert told == ["following", "changed", "changed"]


def _next(states: Any) -> Any:
    async def read() -> object:
        try:
            return next(states)
        except StopIteration:
            raise StopAsyncIteration from None

    return read


def test_a_browser_is_told_when_imports_change(tmp_path: Path) -> None:
    """Over the network, as an event stream; who has gone is not waited for."""
    talk = '{"role": "user", "content": "我不吃辣 no spice"}\n'.encode()
    named, binary = {"name": "聊天.jsonl", "user_id": "王"}, "application/octet-stream"
    headers, asked = {"Content-Type": binary}, {"of": "imports"}
    with (
        running_server(tmp_path / "data") as server,
        server.client() as client,
        client.stream("GET", EVENTS, params=asked, timeout=30) as stream,
        server.client() as other,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "default-src 'none'" in stream.headers["content-security-policy"]
        lines = stream.iter_lines()
        assert "event: following" in next(lines)
        sent = other.post("/v1/import", params=named, content=talk, headers=headers)
        assert sent.is_success and any("event: changed" in line for line in lines)


async def test_only_what_is_followed_can_be_asked_for(tmp_path: Path) -> None:
    """And only by operators."""
    async with browsing(tmp_path / "a") as (browser, _):
        assert (await browser.get(EVENTS, params={"of": EVIL})).status_code == 400
    async with browsing(tmp_path / "b", api_key="key") as (browser, _):
        answer = await browser.get(EVENTS, headers={"Accept": "text/event-stream"})
        assert answer.status_code == 401


async def _chunks() -> AsyncIterator[bytes]:
    yield '{"role": "user", "content": "我不吃辣 no spice"}\n'.encode()


@pytest.mark.parametrize("language", ["zh", "en"])
async def test_a_job_shows_how_far_it_is(tmp_path: Path, language: str) -> None:
    """Rows that are done, or bytes of an import that are read."""
    async with browsing(tmp_path) as (browser, app):
        store = (await app.state.memory.runtime.deps()).store
        await app.state.memory.imports.upload("聊天.jsonl", _chunks(), Target("王", "default"))
        await store.apply(Batch(jobs=(JOB, replace(JOB, job_id="j_3", details={}))))
        page = await browser.get("/dashboard/jobs", params={"language": language})
        assert 'value="0.2560"' in page.text and "256 / 1,000" in page.text
        assert 'value="0.0000"' in page.text and page.text.count("<progress") == 2
        assert {"zh": 'aria-label="导入"', "en": 'aria-label="import"'}[language] in page.text
        assert 'data-events="/dashboard/events?of=jobs"' in page.text and not faults_of(page.text)
    assert progress_of(replace(JOB, details={}), {}) is None
