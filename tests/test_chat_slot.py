"""Chats on a model's server that does one thing at a time; it and KeMem are processes."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem.settings import load
from kemem.sync import Memory
from tests.server import running_server, wait_for

SAID = ("我住在杭州。", "I have a cat named Tom.", "我下周去成都。", "What do you know of me?")


@pytest.fixture
def slot() -> Iterator[httpx.Client]:
    """The model's server."""
    command = [sys.executable, "-m", "tests.single_slot"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            with httpx.Client(base_url=process.stdout.readline().strip(), trust_env=False) as it:
                yield it
        finally:
            process.terminate()


def test_no_turn_waits_for_a_background_call_and_a_turn_costs_one(
    tmp_path: Path, slot: httpx.Client
) -> None:
    """Neither for facts nor for the probe: both are broken off; facts are drawn later."""

    def log() -> list[dict[str, Any]]:
        return list(slot.get("/log").json())

    data_dir = tmp_path / "data"
    given = {"llm_base_url": f"{slot.base_url}/v1", "llm_api_key": "any", "llm_model": "m"}
    with running_server(data_dir, **given) as server, server.client() as client:
        for number, message in enumerate(SAID, 1):
            body = {"user_id": "u", "session_id": "s", "message": message}
            reply = client.post("/v1/chat", json=body).raise_for_status().json()
            assert reply["text"] == "好的 OK"
            begun = Counter(it["kind"] for it in log())
            assert begun["reply"] == number
            assert begun["extraction"] <= number and begun["probe"] <= 1
            time.sleep(0.5)  # somebody types, and background calls begin
        wait_for(lambda: "extraction" in {it["kind"] for it in log() if _is_done(it)})
        wait_for(lambda: all(it["outcome"] in ("done", "hung up") for it in log()))
        requests = log()
    waits = [it["waited"] for it in requests if it["kind"] == "reply"]
    assert max(waits) < 0.5, "in front of a reply stood nothing but a call that was broken off"
    begun = Counter(it["kind"] for it in requests)
    done = Counter(it["kind"] for it in requests if _is_done(it))
    assert done["reply"] == begun["reply"] == len(SAID)
    assert begun["extraction"] <= len(SAID) + 1
    assert sum(begun.values()) > sum(done.values()), "nothing gave way"
    settings = load(data_dir=data_dir, embedder="none", llm="none")
    with Memory(settings=settings) as memory:
        assert not [job for job in memory.jobs() if job.kind == "extract"]


def _is_done(request: dict[str, Any]) -> bool:
    return bool(request["outcome"] == "done")
