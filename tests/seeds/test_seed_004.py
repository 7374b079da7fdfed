"""Seed 004: the ten memory tools, each example of it over HTTP and over a pipe."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each
from tests.tools import DOCKER, FACES, FASTAPI, REQUESTS, Face

NOTE_ID = re.compile(r"n_[0-9A-Z]{26}")


@pytest.fixture(scope="module", params=FACES)
def face(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each test runs over both."""
    with FACES[request.param](tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def empty(face: Face) -> None:
    """Every test begins with nothing."""
    dumped = face.do("memory_dump")["data"]
    for kb_id in dumped["kb"]:
        face.do("memory_delete", kb_id=kb_id)
    for task_id in dumped["workspace"]:
        face.do("memory_cleanup", task_id=task_id)


# The examples


@each("task_id", ["task-12345-abcde", "任务-12345"])
def test_memory_init_workspace_and_memory_cleanup(face: Face, task_id: str) -> None:
    """An absolute path of a fresh, empty folder, which is gone after the cleanup."""
    result = face.do("memory_init_workspace", task_id=task_id)
    assert list(result) == ["path"]
    path = Path(result["path"])
    assert path.is_absolute() and path.is_dir() and not list(path.iterdir())
    assert path.name == task_id or not task_id.isascii()
    (path / "草稿 draft.txt").write_text("半成品 half done")
    assert face.refused("memory_init_workspace", task_id=task_id) == (-32009, "CONFLICT")
    assert (path / "草稿 draft.txt").read_text() == "半成品 half done"
    face.do("memory_init_workspace", task_id=task_id, reset=True)
    assert not list(path.iterdir())
    done = face.do("memory_cleanup", task_id=task_id)
    assert list(done.items()) == [("status", "success"), ("path", str(path))]
    assert not path.exists()
    assert face.refused("memory_cleanup", task_id=task_id) == (-32004, "NOT_FOUND")


@each(
    ("entry", "query"),
    [(DOCKER, "容器"), (REQUESTS, "python http"), (FASTAPI, "web framework")],
)
def test_memory_add_and_memory_query(face: Face, entry: dict[str, Any], query: str) -> None:
    """What was added is found by its content, its summary and its tags."""
    added = face.do("memory_add", **entry)
    assert list(added) == ["id", "summary"]
    assert NOTE_ID.fullmatch(added["id"]) and added["summary"] == entry["summary"]
    for words in (query, entry["summary"], entry["tags"][-1]):
        (found,) = face.do("memory_query", query=words, top_k=1)["results"]
        assert list(found.items()) == [
            ("id", added["id"]),
            ("summary", entry["summary"]),
            ("content", entry["content"]),
        ]


def test_memory_query_gives_three_unless_told_otherwise(face: Face) -> None:
    for number in range(5):
        face.do("memory_add", content=f"茶 tea {number}", summary=f"饮料 drink {number}")
    for word in ("茶", "tea"):
        assert len(face.do("memory_query", query=word)["results"]) == 3
        assert len(face.do("memory_query", query=word, top_k=4)["results"]) == 4
        assert len(face.do("memory_query", query=word, top_k=1000)["results"]) == 5
    too_many = face.refused("memory_query", query=word, top_k=1001)
    assert too_many == (-32602, "INVALID_ARGUMENT")
    assert face.do("memory_query", query="zebra 斑马") == {"results": []}


def test_memory_delete(face: Face) -> None:
    """The entry goes; the same id again, or one that never was, is not found."""
    for entry in (DOCKER, FASTAPI):
        kb_id = face.do("memory_add", **entry)["id"]
        deleted = face.do("memory_delete", kb_id=kb_id)
        assert list(deleted.items()) == [("status", "success"), ("id", kb_id)]
        assert face.do("memory_query", query=entry["summary"]) == {"results": []}
        for gone in (kb_id, "kb-002", "没有"):
            assert face.refused("memory_delete", kb_id=gone) == (-32004, "NOT_FOUND")


def test_memory_get_status(face: Face) -> None:
    clean = [("status", "ok"), ("kb_status", "loaded"), ("workspace_status", "clean")]
    assert list(face.do("memory_get_status").items()) == clean
    face.do("memory_init_workspace", task_id="a")
    assert face.do("memory_get_status")["workspace_status"] == "active"


def test_memory_dump(face: Face) -> None:
    """Knowledge by ids, files by tasks and paths; `all` holds both, and is what is meant."""
    ids = [face.do("memory_add", **entry)["id"] for entry in (REQUESTS, FASTAPI)]
    path = Path(face.do("memory_init_workspace", task_id="任务")["path"])
    (path / "src").mkdir()
    (path / "src" / "说明.md").write_text("# 标题 title\n")
    (path / "image.png").write_bytes(b"\x89PNG\0")
    kb = face.do("memory_dump", level="kb")
    assert list(kb) == ["status", "data"] and kb["status"] == "ok"
    assert kb["data"] == {ids[0]: REQUESTS, ids[1]: FASTAPI}
    assert [list(value) for value in kb["data"].values()] == [["content", "summary", "tags"]] * 2
    files = face.do("memory_dump", level="workspace")["data"]
    shown = {"size": 5, "binary": True}
    assert files == {"任务": {"image.png": shown, "src/说明.md": "# 标题 title\n"}}
    assert face.do("memory_dump")["data"] == {"kb": kb["data"], "workspace": files}


@pytest.mark.parametrize(("word", "line"), [("fastapi", "uses FastAPI"), ("容器", "在容器里运行")])
def test_memory_search(face: Face, word: str, line: str) -> None:
    """The entries and the files that have the words, each with its source and key."""
    ids = {"fastapi": face.do("memory_add", **FASTAPI)["id"]}
    ids["容器"] = face.do("memory_add", **DOCKER)["id"]
    path = Path(face.do("memory_init_workspace", task_id="t-1")["path"])
    (path / "plan.md").write_text(f"first 第一\n{line}\n")
    entry = FASTAPI if word == "fastapi" else DOCKER
    known = {"source": "kb", "key": ids[word], "value": entry}
    value = {"task_id": "t-1", "path": "plan.md", "line": line}
    file = {"source": "workspace", "key": "t-1/plan.md", "value": value}
    kb = face.do("memory_search", query=word, level="kb")
    assert list(kb) == ["status", "results"] and kb == {"status": "ok", "results": [known]}
    assert list(kb["results"][0]) == ["source", "key", "value"]
    assert list(kb["results"][0]["value"]) == ["content", "summary", "tags"]
    assert face.do("memory_search", query=word, level="workspace")["results"] == [file]
    assert face.do("memory_search", query=word)["results"] == [known, file]


def test_memory_backup_and_memory_restore(face: Face) -> None:
    """Knowledge and workspaces are as they were, whichever way the backup is named."""
    kb_id = face.do("memory_add", **DOCKER)["id"]
    path = Path(face.do("memory_init_workspace", task_id="任务")["path"])
    (path / "notes.txt").write_text("之前 before")
    before = face.do("memory_dump")
    saved = face.do("memory_backup")
    assert list(saved) == ["status", "message", "backup_path"]
    assert (saved["status"], saved["message"]) == ("ok", "Backup successful.")
    backup = Path(saved["backup_path"])
    assert backup.is_absolute() and backup.is_file()
    for named in (str(backup), backup.name, f"./{backup.name}"):
        face.do("memory_add", **FASTAPI)
        if named == backup.name:
            face.do("memory_delete", kb_id=kb_id)
        face.do("memory_cleanup", task_id="任务")
        face.do("memory_init_workspace", task_id="later")
        restored = face.do("memory_restore", backup_path=named)
        message = f"从 {named} 恢复成功"
        assert list(restored.items()) == [("status", "ok"), ("message", message)]
        assert face.do("memory_dump") == before
        assert face.do("memory_query", query="fastapi") == {"results": []}
        (found,) = face.do("memory_query", query="容器")["results"]
        assert found["id"] == kb_id


# What is not an example


@each(
    "wrong",
    [
        *("/etc/passwd", "../data", "..", ".", "", "/dev/zero", "a\0b", "http://x/y", "没有.json"),
        *("x" * 5000, "link"),
    ],
)
def test_only_backups_can_be_restored(face: Face, wrong: str) -> None:
    """Nothing outside the directory of backups is even looked at, and all stays as it is."""
    face.do("memory_add", **DOCKER)
    before = face.do("memory_dump")
    backups = face.data_dir / "backups"
    backups.mkdir(exist_ok=True)
    if wrong == "link" and not (backups / wrong).is_symlink():
        (backups / wrong).symlink_to("/etc/passwd")
    answer = face.ask("memory_restore", {"backup_path": wrong})
    assert answer["error"]["code"] in (-32602, -32004)
    assert "root:" not in json.dumps(answer)
    assert face.do("memory_dump") == before


@each(
    ("method", "params"),
    [
        ("memory_query", {"query": "x", "top_k": 0}),
        ("memory_query", {"query": "x", "top_k": -1}),
        ("memory_query", {"query": "x", "top_k": "3"}),
        ("memory_query", {"query": "x", "top_k": True}),
        ("memory_query", {"query": " "}),
        ("memory_query", {}),
        ("memory_query", {"query": "x", "user_id": "李明"}),
        ("memory_add", {"content": "只有内容 content only"}),
        ("memory_add", {"content": " ", "summary": "空 blank"}),
        ("memory_add", {"content": "x", "summary": "x", "tags": "docker"}),
        ("memory_add", {"content": "x", "summary": "x", "tags": [1]}),
        ("memory_dump", {"level": "everything"}),
        ("memory_search", {"query": "x", "level": "KB"}),
        ("memory_init_workspace", {"task_id": "../逃"}),
        ("memory_init_workspace", {"task_id": 7}),
        ("memory_cleanup", {"task_id": "*"}),
        ("memory_backup", {"path": "/tmp/x"}),
        ("memory_delete", {"kb_id": ""}),
    ],
)
def test_wrong_parameters_change_nothing(face: Face, method: str, params: Any) -> None:
    assert face.refused(method, **params) == (-32602, "INVALID_ARGUMENT")
    assert face.do("memory_dump")["data"] == {"kb": {}, "workspace": {}}


@each(
    "params",
    [
        {"content": "x", "summary": "长" * 1001},
        {"content": "x", "summary": "x", "tags": ["长" * 65]},
        {"content": "x", "summary": "x", "tags": [str(number) for number in range(21)]},
        {"content": "long" * 30_000, "summary": "x"},
    ],
)
def test_what_is_too_large_is_refused(face: Face, params: Any) -> None:
    """Nothing is cut silently."""
    assert face.refused("memory_add", **params) == (-32013, "RESOURCE_EXHAUSTED")


def test_parameters_may_come_in_order_and_null_is_none(face: Face) -> None:
    added = face.ask("memory_add", list(DOCKER.values()), "中")["result"]
    assert (
        face.ask("memory_query", ["容器", None], 1.5)["result"]["results"][0]["id"] == added["id"]
    )


def test_the_same_entry_is_kept_once(face: Face) -> None:
    """Another summary, tag or character makes another one."""
    for entry in (DOCKER, FASTAPI):
        others = [{**entry, "summary": "其他 other"}, {**entry, "tags": []}]
        others += [{**entry, "content": f"{entry['content']}."}]
        ids = [face.do("memory_add", **each)["id"] for each in (entry, entry, *others)]
        assert ids[0] == ids[1] and len(set(ids)) == 4
