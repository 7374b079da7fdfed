"""What backup and restore survive: damaged, foreign and hostile files, full disks, kill -9."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kemem import InvalidArgument, KeMemError, Memory, Unavailable
from kemem.records import MESSAGES, NOTES
from kemem.settings import load
from tests import warm
from tests.cases import each

SECRET = "密码是swordfish"


def memory_at(directory: Path) -> Memory:
    return Memory(settings=load(data_dir=directory, embedder="none", llm="none"))


def state(memory: Memory) -> dict[str, Any]:
    """All that can be seen from outside."""
    workspaces = memory.workspaces()
    return {
        "rows": [it.to_dict() for it in memory.get_all("u", kinds=MESSAGES | NOTES)],
        "found": [hit.id for hit in memory.lexical_search("辣 OR spicy", "u").items],
        "health": memory.health(),
        "tasks": workspaces.tasks(),
        "files": [(it.path, b"".join(it.chunks())) for it in workspaces.files()],
        "generation": memory.generation("u"),
        "folders": sorted(it.name for it in workspaces.root.parent.glob("[!.]*")),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with a bit of everything, and a backup of it."""
    folder = tmp_path_factory.mktemp("home")
    with memory_at(folder) as memory:
        memory.add(f"我不吃辣，我住在北京。{SECRET}", user_id="u", session_id="s")
        memory.add("I can't eat spicy food. I live in Paris.", user_id="u", metadata={"a": 1})
        memory.checkpoint("s", "u")
        memory.workspaces().put("task", "笔记.md", 0o600, ["火锅 hotpot".encode()])
        memory.backup("good.json")
        memory.ingest("今天吃面 noodles today", "u")  # what a restore would take away
    return folder


@pytest.fixture(scope="module")
def memory(home: Path) -> Iterator[Memory]:
    with memory_at(home) as opened:
        yield opened


@pytest.fixture(scope="module")
def good(home: Path) -> bytes:
    return (home / "backups" / "good.json").read_bytes()


def refused(memory: Memory, path: Path | str) -> KeMemError:
    """The error of a restore that has changed nothing."""
    before = state(memory)
    with pytest.raises(KeMemError) as failure:
        memory.restore(path)
    assert state(memory) == before
    assert "swordfish" not in failure.value.message
    return failure.value


def sealed(lines: list[Any]) -> bytes:
    """Lines with a checksum that is right."""
    body = b"".join(json.dumps(it, ensure_ascii=False).encode() + b"\n" for it in lines)
    end = {"end": {"lines": len(lines), "sha256": sha256(body).hexdigest()}}
    return body + json.dumps(end, separators=(",", ":")).encode() + b"\n"


def test_a_sealed_copy_of_a_backup_can_be_restored(good: bytes, tmp_path: Path) -> None:
    """So that the faults below are refused for what is wrong with them."""
    copied = tmp_path / "copied.json"
    copied.write_bytes(sealed([json.loads(it) for it in good.splitlines()[:-1]]))
    with memory_at(tmp_path / "other") as other:
        assert other.restore(copied).messages == 2


@each("thirteenth", range(13))
def test_a_truncated_backup_is_refused(
    memory: Memory, good: bytes, tmp_path: Path, thirteenth: int
) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(good[: (len(good) - 1) * thirteenth // 12])
    assert isinstance(refused(memory, cut), InvalidArgument)


@each("seed", range(10))
def test_a_flipped_bit_is_found(memory: Memory, good: bytes, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    damaged = bytearray(good)
    damaged[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
    (tmp_path / "damaged.json").write_bytes(damaged)
    assert isinstance(refused(memory, tmp_path / "damaged.json"), InvalidArgument)


FOREIGN = {
    "empty": b"",
    "one brace": b"{",
    "a list": b"[1]\n",
    "中文": "这不是备份\n".encode(),
    "other JSON": b'{"format":"other","version":1}\n',
    "bytes": bytes(range(256)) * 40,
    "deep": b"[" * 100_000 + b"\n",
    "an end alone": sealed([]),
    "a header alone, of another schema": sealed(
        [
            {
                "format": "kemem-backup",
                "version": 1,
                "schema_version": 2,
                "created": "2026-01-01T00:00:00Z",
            }
        ]
    ),
}


@each("content", FOREIGN.values())
def test_a_foreign_file_is_refused(memory: Memory, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "foreign.json").write_bytes(content)
    assert isinstance(refused(memory, tmp_path / "foreign.json"), InvalidArgument)


Change = Callable[[list[Any]], object]


def row(lines: list[Any], table: str) -> dict[str, Any]:
    found: dict[str, Any] = next(it["row"] for it in lines if it.get("table") == table)
    return found


def changes(table: str, column: str, value: object) -> Change:
    return lambda lines: row(lines, table).update({column: value})


def entry(value: object, at: int = 1) -> Change:
    return lambda lines: lines.insert(at, value)


def about_file(**changed: object) -> Change:
    return lambda lines: next(it for it in lines if "file" in it)["file"].update(changed)


WRONG: dict[str, Change] = {
    "newer format": lambda lines: lines[0].update(version=2),
    "newer schema": lambda lines: lines[0].update(schema_version=99),
    "no schema": lambda lines: lines[0].pop("schema_version"),
    "no time": lambda lines: lines[0].update(created="昨天"),
    "two headers": lambda lines: lines.insert(1, lines[0]),
    "unknown line": entry({"什么": 1}),
    "line that is no object": entry([1]),
    "NaN": changes("note", "importance", float("nan")),
    "unknown table": entry({"table": "sqlite_master", "row": {}}, -1),
    "unknown column": changes("note", "x); DROP TABLE note; --", 1),
    "missing column": lambda lines: row(lines, "note").pop("content"),
    "meta of ours": lambda lines: lines.append(
        {"table": "meta", "row": {"key": "secret", "value": "00"}}
    ),
    "line of the journal": entry(
        {
            "table": "journal",
            "row": {"kind": "假", "line_id": "a", "create_time": 1, "user_id": "", "body": "{}"},
        },
        -1,
    ),
    "row twice": lambda lines: lines.append(lines[-1]),
    "row of nobody": changes("message", "space_no", 77),
    "file after rows": lambda lines: lines.append(next(it for it in lines if "file" in it)),
    "path that leads out": about_file(path="../../canary"),
    "absolute path": about_file(path="/canary"),
    "task that leads out": about_file(task_id="../canary"),
    "empty path": about_file(path=""),
    "mode of text": about_file(mode="0600"),
    "workspace that leads out": entry({"workspace": "../外"}),
    "bytes that are none": lambda lines: next(it for it in lines if "file" in it).update(data="火"),
}
TEXTS: tuple[Any, ...] = ([], {"x": 1}, 1, True)
NUMBERS: tuple[Any, ...] = ([], "1", 10**30, True)
PLACES: dict[tuple[str, str], tuple[Any, ...]] = {
    ("message", "content"): TEXTS,
    ("message", "role"): TEXTS,
    ("message", "metadata"): ([], [1], "{}", 1),
    ("message", "id"): NUMBERS,
    ("note", "kind"): TEXTS,
    ("note", "sensitive"): ([], "true", 1, None),
    ("note", "sources"): ({}, "a", 1, [1]),
    ("note", "importance"): NUMBERS,
    ("agent", "agent_id"): TEXTS,
    ("space", "agent_id"): TEXTS,
    ("space_state", "epoch"): NUMBERS,
    ("session", "status"): NUMBERS,
    ("relation", "source_id"): NUMBERS,
    ("checkpoint", "state"): TEXTS,
}
WRONG |= {
    f"{table}.{column} = {value!r}": changes(table, column, value)
    for (table, column), values in PLACES.items()
    for value in values
}


@each(("name", "change"), WRONG.items())
def test_a_backup_that_does_not_hold_together_is_refused(
    memory: Memory, home: Path, good: bytes, tmp_path: Path, name: str, change: Change
) -> None:
    """Its checksum is right: what is in it is not."""
    lines = [json.loads(it) for it in good.splitlines()[:-1]]
    change(lines)
    (tmp_path / "wrong.json").write_bytes(sealed(lines))
    assert isinstance(refused(memory, tmp_path / "wrong.json"), InvalidArgument), name
    assert not [*home.rglob("canary"), *Path("/").glob("canary")]


def test_what_is_no_regular_file_is_refused_at_once(memory: Memory, home: Path) -> None:
    """Links, pipes, devices, directories, files of others, and what is no path at all."""
    folder = home / "backups"
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(folder / "good.json")
    (folder / "out").symlink_to("/etc")
    hostile = ["pipe", "link", ".", "out", "/dev/zero", "/etc/passwd", "/proc/self/mem", "a\0b"]
    hostile += ["没有.json", "https://example.com/x.json", "../../etc/passwd", "", "x" * 5000]
    for path in hostile:
        refused(memory, path)
    for name in ("pipe", "link", "out"):
        (folder / name).unlink()


@pytest.fixture
def small_files() -> Iterator[None]:
    """A process that cannot write files beyond 1 MiB, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def large_memory(folder: Path) -> Memory:
    """One whose backup takes two megabytes."""
    memory = memory_at(folder)
    memory.ingest([{"content": f"{n} 火锅 hotpot " * 2_000} for n in range(50)], "u")
    return memory


@pytest.mark.parametrize("place", ["backups", "workspaces"])
def test_a_full_disk_leaves_no_backup(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    """Nor half of one; reading goes on."""
    with large_memory(tmp_path) as memory:
        if place == "workspaces":
            memory.workspaces().put("t", "文件", 0o600, [bytes(1 << 20)])
        request.getfixturevalue("small_files")
        with pytest.raises(Unavailable, match="could not be written: File too large"):
            memory.backup()
        assert list((tmp_path / "backups").iterdir()) == []
        assert len(memory.messages("u").items) == 50


@pytest.mark.parametrize("place", ["rows", "workspaces"])
def test_a_full_disk_keeps_what_was_there(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    with large_memory(tmp_path / "large") as large:
        if place == "workspaces":
            large.workspaces().put("t", "文件", 0o600, [bytes(2 << 20)])
            large.delete_all("u")
        made = large.backup()
    with memory_at(tmp_path / "small") as memory:
        memory.add("我不吃辣 no spice", user_id="u")
        memory.workspaces().put("t", "f", 0o600, ["旧 old".encode()])
        request.getfixturevalue("small_files")
        assert isinstance(refused(memory, made.path), Unavailable)


# Restores one of two backups and dies at some call of a Python function, in whatever thread. What
# is there then is printed by another process. All are forks of one that has loaded the modules.
DYING = """
import json, os, random, signal, sys, threading
from pathlib import Path
from kemem import Memory
from kemem.settings import load

directory, rounds = Path(sys.argv[1]), int(sys.argv[2])
NAMES = ("甲.json", "b.json")

def opened():
    return Memory(settings=load(data_dir=directory, embedder="none", llm="none"))

def prepare():
    for number, name in enumerate(NAMES):
        with opened() as memory:
            memory.delete_all("u")
            ids = [f"{name}-{n}" for n in range(9)]
            memory.ingest([{"content": f"hotpot {it}", "message_id": it} for it in ids], "u")
            for task in ("t", "任务"):
                memory.workspaces().put(task, "f", 0o600, [name.encode()])
            memory.backup(name)

def restore(name, fatal):
    calls, armed = 0, False
    def count(frame, event, argument):
        nonlocal calls
        calls += armed
        if armed and calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
    threading.setprofile(count)
    with opened() as memory:
        memory.health()
        armed = True
        memory.restore(name)
        armed = False
    print(calls, flush=True)

def look():
    with opened() as memory:
        workspaces = memory.workspaces()
        names = {it.message_id.rsplit("-", 1)[0] for it in memory.messages("u").items}
        names |= {b"".join(it.chunks()).decode() for it in workspaces.files()}
        found = memory.lexical_search("hotpot", "u").items
        print(json.dumps({
            "names": sorted(names),
            "counts": [memory.health().messages, len(found), len(list(workspaces.files()))],
            "folders": len(list(workspaces.root.parent.glob("[!.]*"))),
        }), flush=True)

def apart(work, *arguments):
    child = os.fork()
    if child == 0:
        work(*arguments)
        os._exit(0)
    return os.waitpid(child, 0)[1]

apart(prepare)
apart(restore, NAMES[1], 0)
total = int(input())
chance = random.Random(7)
for _ in range(rounds):
    print(os.WTERMSIG(apart(restore, chance.choice(NAMES), chance.randrange(1, total))), flush=True)
    apart(look)
apart(restore, NAMES[0], 0)
apart(look)
"""


def test_kill_9_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    """Of rows, words and workspaces together; what a killed restore left is removed by the next."""
    rounds = 8
    process = subprocess.Popen(
        [*warm.python(), "-c", DYING, str(tmp_path), str(rounds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    calls = process.stdout.readline()
    output, _ = process.communicate(calls, timeout=100)
    lines = output.splitlines()
    killed, looks = lines[0 : 2 * rounds : 2], [json.loads(it) for it in lines[1 : 2 * rounds : 2]]
    assert killed.count(str(int(signal.SIGKILL))) > rounds // 2
    for found in looks:
        assert found["names"] in (["b.json"], ["甲.json"])
        assert found["counts"] == [9, 9, 2]
    last = json.loads(lines[-1])
    assert (last["names"], last["folders"]) == (["甲.json"], 1)


# Restores and backs up, and prints by how much the peak of its memory has grown meanwhile.
MEASURED = """
import re, sys
from pathlib import Path
from kemem import Memory
from kemem.settings import load

def peak():
    status = Path("/proc/self/status").read_text()  # a child's rusage would begin with its parent's
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) >> 10

with Memory(settings=load(data_dir=sys.argv[1], embedder="none", llm="none")) as memory:
    memory.restore(sys.argv[2])
    memory.backup()
    before = peak()
    restored = memory.restore(sys.argv[3])
    again = memory.backup()
    assert restored.notes == again.notes == memory.health().notes, restored
    print(restored.notes, restored.size >> 20, peak() - before)
"""


def test_many_notes_take_no_more_memory_than_few(tmp_path: Path) -> None:
    """5,000 long ones, which take 130 MiB as Python has them; caches of the database are full."""
    with memory_at(tmp_path / "few") as memory:
        memory.add("我不吃辣。I live in Paris.", user_id="u")
        few = memory.backup()
    lines = [json.loads(it) for it in few.path.read_bytes().splitlines()[:-1]]
    note = row(lines, "note")
    metadata = {"long": "火锅 hotpot" * 600}
    others = [
        it for it in lines if it.get("table") not in ("note", "note_source", "relation_source")
    ]
    notes = [
        {**note, "id": note["id"] + n, "note_id": f"n_{n}", "metadata": metadata}
        for n in range(100, 5_100)
    ]
    row(lines, "space_state")["next_seq"] = 30_000
    (tmp_path / "many.json").write_bytes(
        sealed([*others, *({"table": "note", "row": it} for it in notes)])
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            MEASURED,
            str(tmp_path / "data"),
            str(few.path),
            str(tmp_path / "many.json"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    count, megabytes, grown = map(int, done.stdout.split()) if done.stdout else (0, 0, 0)
    assert count == 5_000, done.stderr
    assert grown < 80, f"{megabytes} MiB were restored"
