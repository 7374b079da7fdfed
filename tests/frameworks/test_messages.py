"""Objects of client libraries and frameworks go in: one talk, and all read the same."""

import json
import subprocess
from hashlib import sha256
from typing import Any

import pytest

from tests import warm
from tests.frameworks.with_frameworks import FRAMEWORKS, ROOT

PNG = b"\x89PNG\r\n\x1a\n"
DIGEST = sha256(PNG).hexdigest()
LINE = f"[image image/png, 8 bytes, sha256 {DIGEST[:16]}]"


@pytest.fixture(scope="module")
def by_framework() -> dict[str, dict[str, Any]]:
    """One talk as every framework has it, read in a process that has them."""
    assert FRAMEWORKS.is_dir(), "make test-frameworks installs them"
    program = ["-W", "ignore", "-m", "tests.frameworks.messages", str(FRAMEWORKS)]
    done = subprocess.run([*warm.python(), *program], cwd=ROOT, capture_output=True, check=True)
    shown: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return shown


def test_the_same_talk_reads_the_same_from_every_framework(
    by_framework: dict[str, dict[str, Any]],
) -> None:
    """The APIs of three companies and the frameworks: objects, dicts and requests."""
    asked, looks, answer = "我后天去北京，天气如何？", "Let me look.", "晴，25°C。"
    call = 'get_weather({"city": "北京"})'
    expected = [
        *(("user", "text", f"{asked}\n{LINE}"), ("assistant", "text", looks)),
        *(("tool", "tool_call", call), ("tool", "tool_result", answer)),
        ("assistant", "text", answer),
    ]
    ids = {"tool_name": "get_weather", "tool_call_id": "call_1"}
    assert len(by_framework) >= 21
    for name, shown in by_framework.items():
        turns = shown["turns"]
        # Gemini's results are objects, and are kept as their JSON.
        contents = [it["content"].replace(f'{{"output": "{answer}"}}', answer) for it in turns]
        types = [it.get("content_type", "text") for it in turns]
        rows = [(it["role"], *row) for it, *row in zip(turns, types, contents, strict=True)]
        assert rows == expected[-len(rows) :], name
        assert shown["problems"] == [], name
        for turn, (_, kind, _) in zip(turns, rows, strict=True):
            if kind != "text":
                assert turn["metadata"].items() >= ids.items(), name
            if kind == "tool_call":
                assert turn["metadata"]["arguments"] == {"city": "北京"}, name
            if turn["role"] == "user":
                (image,) = turn["metadata"]["attachments"]
                assert (image["kind"], image["sha256"]) == ("image", DIGEST), name
