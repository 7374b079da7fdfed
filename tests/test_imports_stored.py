"""Imports as they are stored: once, for the right user, knowledge in step with its documents."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kemem import Memory
from kemem.settings import load
from tests import exports
from tests.command import SECONDS, command, environment, kemem


def opened(home: Path) -> Memory:
    return Memory(settings=load(data_dir=home / "data", embedder="none", llm="none"))


def written(home: Path, name: str, content: object) -> str:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, "utf-8")
    return str(path)


def knowledge(home: Path, agent: str = "default") -> list[str]:
    with opened(home) as memory:
        found = memory.get_all(agent_id=agent, kinds=["knowledge"])
        return sorted(item.memory for item in found)


TALK = [
    ("user", "我不吃辣，我住在北京"),
    ("assistant", "记住了。"),
    ("user", "I have a dog called Rex"),
]


@pytest.mark.parametrize(
    ("export", "user", "count"),
    [
        ([exports.chatgpt("c1", TALK), exports.chatgpt("c2", TALK, "old")], "u", 6),
        ([exports.claude()], "u", 3),
        (exports.MEM0, "ann", 3),
        (exports.LETTA, "u", 4),
        (exports.ZEP, "ann", 2),
        (exports.GRAPHITI, "u", 2),
        (exports.LANGGRAPH, "u", 3),
        ([exports.LOCOMO], "u", 3),
        (exports.TELEGRAM, "u", 2),
    ],
)
def test_a_second_import_stores_nothing(
    tmp_path: Path, export: object, user: str, count: int
) -> None:
    path = written(tmp_path, "export.json", export)
    first = kemem(tmp_path, "import", path, "--user", user, "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["inserted"] == count
    again = json.loads(kemem(tmp_path, "import", path, "--user", user, "--json").stdout)
    assert (again["inserted"], again["ignored"], again["notes"]) == (0, count, 0)


def test_an_export_that_grew_adds_what_is_new(tmp_path: Path) -> None:
    """A later export has the old messages, a new answer in the place of one, and more."""
    path = written(tmp_path, "c.json", [exports.chatgpt("c1", TALK[:2])])
    kemem(tmp_path, "import", path, "--user", "u")
    grown = exports.chatgpt("c1", TALK[:2])
    content = {"content_type": "text", "parts": ["好的，清汤。"]}
    grown["mapping"]["new"] = exports.chatgpt_node("new", "assistant", content, "c1-0")
    grown["mapping"]["new"]["message"]["create_time"] = 1_769_424_500.0
    grown["current_node"] = "new"
    ran = kemem(tmp_path, "import", written(tmp_path, "c.json", [grown]), "--user", "u")
    assert ran.stdout == "1 inserted, 1 ignored, 0 truncated\n"
    with opened(tmp_path) as memory:
        shown = str(memory.context("chatgpt-c1", "u"))
    assert "好的，清汤。" in shown and "记住了。" not in shown


def test_memories_become_notes_word_for_word(tmp_path: Path) -> None:
    path = written(tmp_path, "mem0.json", exports.MEM0)
    ran = kemem(tmp_path, "import", path)
    assert ran.stdout == "3 inserted, 0 ignored, 0 truncated, 3 notes\n"
    with opened(tmp_path) as memory:
        found = {item.memory: item for item in memory.get_all("ann")}
    assert found.keys() == {"不吃辣", "Lives in Berlin"}
    spicy = found["不吃辣"].to_dict()
    assert spicy["event_time"] == "2026-01-26T10:47:00.265934Z"
    assert spicy["expires_at"] == "2100-05-02T00:00:00.000000Z"
    assert spicy["metadata"] == {"source": "mem0", "channel": "app", "role": "user"}
    assert knowledge(tmp_path, "shop") == ["Refunds take 5 days"]


def test_what_was_edited_between_two_exports_is_stored_beside_the_old(tmp_path: Path) -> None:
    """An id stands for one content for ever, so the new text has another."""
    for name in ("mem0", "telegram"):
        export = json.loads(json.dumps({"mem0": exports.MEM0, "telegram": exports.TELEGRAM}[name]))
        path = written(tmp_path, f"{name}.json", export)
        kemem(tmp_path, "import", path, "--user", "ann")
        if name == "mem0":
            export["results"][0]["memory"] = "能吃一点辣"
        else:
            export["messages"][2]["text"] = "ok, edited 改过"
        again = kemem(
            tmp_path, "import", written(tmp_path, f"{name}.json", export), "--user", "ann"
        )
        assert again.stdout.startswith("1 inserted"), again.stderr


def test_a_newer_conversation_may_come_first(tmp_path: Path) -> None:
    """Exports begin with the newest; what was true before does not replace what is true now."""
    now = exports.chatgpt("now", [("user", "I live in Berlin now.")])
    then = exports.chatgpt("then", [("user", "I live in Rome.")])
    then["mapping"]["then-0"]["message"]["create_time"] -= 400 * 86_400
    path = written(tmp_path, "c.json", [now, then])
    kemem(tmp_path, "import", path, "--user", "u", "--infer")
    with opened(tmp_path) as memory:
        assert [item.memory for item in memory.get_all("u")] == ["User lives in Berlin now"]


def test_facts_are_drawn_where_they_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "c.json", [exports.chatgpt("c1", TALK)])
    assert "notes" not in kemem(tmp_path, "import", path, "--user", "a", "--no-infer").stdout
    kemem(tmp_path, "import", path, "--user", "b", "--infer")
    with opened(tmp_path) as memory:
        assert list(memory.get_all("a")) == []
        assert len(list(memory.get_all("b"))) >= 2


def test_a_dry_run_stores_nothing_and_tells_what_would_be(tmp_path: Path) -> None:
    written(tmp_path, "all/conversations.json", [exports.chatgpt("c1", TALK)])
    written(tmp_path, "all/mem0.json", exports.MEM0)
    written(tmp_path, "all/guide.md", "# 指南\n不吃辣\n# B\ntext")
    written(tmp_path, "all/user.json", {"id": "1"})
    ran = kemem(tmp_path, "import", str(tmp_path / "all"), "--user", "u", "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "ChatGPT: 3 messages",
        "mem0: 3 memories",
        "Markdown: 1 documents, 2 sections for u",
        "4 sessions of u, ann",
        f"left out {tmp_path}/all/user.json: no conversations",
        "Nothing was stored.",
    ]
    assert not (tmp_path / "data").exists()
    wrong = written(tmp_path, "wrong.jsonl", '{"role": "teacher", "content": "hi"}')
    refused = kemem(tmp_path, "import", wrong, "--user", "u", "--dry-run")
    assert refused.returncode == 1 and f"{wrong}:1: role must be one of" in refused.stderr


def test_documents_are_replaced_where_they_changed(tmp_path: Path) -> None:
    """What is unchanged stays, a note of a text that two files have survives one of them."""
    folder = tmp_path / "docs"
    written(folder, "a.md", "# 食物\n不吃辣\n# Same\nsame text")
    written(folder, "deep/b.md", "# Same\nsame text\n# B\nBerlin")
    ran = kemem(tmp_path, "import", str(folder))
    assert ran.stdout.startswith("4 inserted, 0 ignored, 0 truncated")
    written(folder, "a.md", "# 食物\n能吃辣了")
    assert kemem(tmp_path, "import", str(folder)).stdout.endswith("2 removed\n")
    assert knowledge(tmp_path) == ["B\n\nBerlin", "Same\n\nsame text", "食物\n\n能吃辣了"]
    (folder / "deep" / "b.md").unlink()
    kemem(tmp_path, "import", str(folder))
    assert knowledge(tmp_path) == ["食物\n\n能吃辣了"]


def test_documents_of_a_user_are_seen_by_nobody_else(tmp_path: Path) -> None:
    written(tmp_path, "docs/a.md", "# 食物\n不吃辣\n# Home\nBerlin")
    ran = kemem(tmp_path, "import", str(tmp_path / "docs"), "--user", "ann")
    assert ran.stdout.startswith("2 inserted, 0 ignored, 0 truncated, 2 notes")
    with opened(tmp_path) as memory:
        assert len(memory.search("Berlin 不吃辣", "ann", kinds=["knowledge"])) == 2
        assert len(memory.search("Berlin 不吃辣", "bob")) == 0
    written(tmp_path, "docs/a.md", "# Home\nRome")
    again = kemem(tmp_path, "watch", str(tmp_path / "docs"), "--user", "ann", "--once")
    assert again.stdout == "1 sections added, 2 removed\n"


@pytest.mark.parametrize("inside", ["[{}, {{", '{}\n{{"content": ', "[{}, 7]", "{}\n{}"])
def test_one_wrong_file_does_not_stop_the_others(tmp_path: Path, inside: str) -> None:
    """It is named with the place; what comes before that is stored, and the command fails."""
    hello = '{"content": "你好 hello"}'
    teacher = '{"role": "teacher", "content": "hi"}'
    written(tmp_path, "all/a.json", [{"content": "first 一"}])
    wrong = written(tmp_path, "all/b.json", inside.format(hello, teacher))
    written(tmp_path, "all/c.json", [{"content": "last 二"}])
    written(tmp_path, "all/d.md", "# Home\nBerlin")
    for option in ("--dry-run", "--user=u"):
        ran = kemem(tmp_path, "import", str(tmp_path / "all"), "--user", "u", option)
        assert ran.returncode == 1 and f"left out {wrong}:" in ran.stdout
        assert ran.stderr.startswith(f"error: 1 file could not be read to the end: {wrong}:")
    assert "inserted" in ran.stdout
    with opened(tmp_path) as memory:
        said = {it.content for it in memory.messages("u").items}
    assert said == {"first 一", "你好 hello", "last 二", "Home\n\nBerlin"}


def test_documents_of_other_folders_and_agents_stay(tmp_path: Path) -> None:
    written(tmp_path, "one/docs/a.md", "# One\nfirst")
    written(tmp_path, "two/docs/a.md", "# Two\n第二")
    for folder in ("one/docs", "two/docs"):
        kemem(tmp_path, "import", str(tmp_path / folder))
    kemem(tmp_path, "import", str(tmp_path / "one/docs"), "--agent", "other")
    assert knowledge(tmp_path) == ["One\n\nfirst", "Two\n\n第二"]
    assert knowledge(tmp_path, "other") == ["One\n\nfirst"]


def test_a_folder_without_anything_known_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, "all/user.json", {"id": "1"})
    ran = kemem(tmp_path, "import", str(tmp_path / "all"))
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert ran.stderr.startswith("error: no known format")
    assert f"left out {tmp_path}/all/user.json: no conversations" in ran.stdout


def test_a_watched_folder_is_kept_in_step(tmp_path: Path) -> None:
    """Changed, new and removed documents; what changed while nobody watched, too."""
    folder = tmp_path / "docs"
    written(folder, "a.md", "# 食物\n不吃辣")
    written(folder, "gone.md", "# Gone\nsoon")
    kemem(tmp_path, "import", str(folder))
    (folder / "gone.md").unlink()
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command("watch", str(folder), "--interval", "0.1", "--json"),
        env=environment(tmp_path),
        cwd=tmp_path,
        **options,
    ) as watching:
        assert watching.stdout
        looks = [json.loads(watching.stdout.readline())]
        for change in ("# 食物\n能吃辣了", "# 食物\n能吃辣了\n# New\nsection"):
            time.sleep(0.05)
            written(folder, "a.md", change)
            looks.append(json.loads(watching.stdout.readline()))
        watching.terminate()
        _, err = watching.communicate(timeout=SECONDS)
    assert (watching.returncode, err) == (0, "")
    assert looks == [
        {"added": 0, "removed": 1},
        {"added": 1, "removed": 1},
        {"added": 1, "removed": 0},
    ]
    assert knowledge(tmp_path) == ["New\n\nsection", "食物\n\n能吃辣了"]


def test_tables_of_a_folder_are_read_as_far_as_they_tell_something(tmp_path: Path) -> None:
    """A row without a text is skipped and counted, a foreign table named."""
    written(tmp_path, "in/talk.csv", "role,content\nuser,我不吃辣\nuser,\nuser,I like tea\n")
    written(tmp_path, "in/costs.csv", "month,euros\n1,2\n")
    done = kemem(tmp_path, "import", str(tmp_path / "in"), "--user", "u", "--json")
    told = json.loads(done.stdout)
    assert (told["inserted"], told["skipped"]) == (2, 1)
    assert "costs.csv" in done.stdout + done.stderr
