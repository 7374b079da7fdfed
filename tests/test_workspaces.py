"""Workspaces: every task has a folder of its own, and nothing leads out of it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import AsyncMemory, Memory
from kemem.errors import (
    Conflict,
    Exhausted,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from kemem.serve.rpc.methods import dump_workspaces
from kemem.settings import Settings
from kemem.workspace import Workspaces, folder_name
from tests.cases import each

PLAIN = ["task-12345-abcde", "x", "X", "任务一", "é", "ß", "ss", "Task.1", "a_b", "Ａ", "-rf", "K"]
HOSTILE = [
    *("", ".", "..", "...", "../x", "../../etc", "/", "/etc", "//x", "a/b", "a/../b", "./x", "x/"),
    *("\\", "..\\x", "C:\\x", "C:", "a\\b", "%2e%2e", "%2e%2e%2fx", "..%2f", "%00", "x%20"),
    *("\0", "x\0", "x\0/..", "~", "~root", "x~6a1e00000000", "$HOME", "${HOME}", "`id`", "$(id)"),
    *("*", "?", "[a]", "x*", "x|y", "x;y", "x&y", "x>y", "<x", '"x"', "'x'", "x:y", "x\ny", "x\ty"),
    *(
        "．．",
        "．",
        "／x",
        "x／y",
        "‥",
        "…",
        "⁄",
        "∕x",
        "x ",
        " x",
        "x.",
        ".x",
        "x\u202ey",
        "x\u200b",
    ),
    *("e\u0301", "\u212b", "\u2126", "x" * 65, "x" * 5000, "𠀀" * 64, "\ud800", "x\udcff", "😀"),
]
BOTH = pytest.mark.parametrize("task_id", ["task-12345-abcde", "任务一"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root that does not exist yet, with canaries around it."""
    for name in ("canary", "x", "etc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept").write_text("金丝雀 canary")
    return tmp_path / "root"


@pytest.fixture
def workspaces(root: Path) -> Workspaces:
    return Workspaces(root)


@pytest.fixture(autouse=True)
def canaries(tmp_path: Path) -> Iterator[None]:
    """Whatever a test did, what stands beside the root is as it was."""
    yield
    for kept in tmp_path.glob("*/kept"):
        assert kept.read_text() == "金丝雀 canary"
        assert os.listdir(kept.parent) == ["kept"]


def write(workspaces: Workspaces, task_id: str, **files: bytes | str) -> None:
    """Files by their names, "_" for a slash."""
    for name, content in files.items():
        raw = content.encode() if isinstance(content, str) else content
        workspaces.put(task_id, name.replace("_", "/"), 0o644, [raw])


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# Their names


def test_the_folder_of_the_seed_is_called_like_its_task(workspaces: Workspaces, root: Path) -> None:
    assert not root.exists()
    path = workspaces.init("task-12345-abcde")
    assert path == root / "task-12345-abcde" and path.is_dir() and path.is_absolute()
    assert [stat.S_IMODE(it.stat().st_mode) for it in (root, path)] == [0o700, 0o700]


def test_there_are_sixty_hostile_ids() -> None:
    assert len(set(HOSTILE)) >= 60


def refuses(workspaces: Workspaces, task_id: str) -> None:
    """Whatever is asked for under this id."""
    attempts: list[Any] = [workspaces.init, workspaces.cleanup]
    attempts += [lambda it: workspaces.init(it, reset=True)]
    attempts += [lambda it: workspaces.put(it, "a", 0o600, [b"x"])]
    for attempt in attempts:
        with pytest.raises(InvalidArgument, match="task_id"):
            attempt(task_id)


@each("task_id", HOSTILE)
def test_a_hostile_id_makes_nothing(workspaces: Workspaces, root: Path, task_id: str) -> None:
    """It is refused everywhere, where there is no workspace yet."""
    refuses(workspaces, task_id)
    assert not root.exists()


@each("task_id", HOSTILE)
def test_a_hostile_id_changes_no_other_workspace(
    workspaces: Workspaces, root: Path, task_id: str
) -> None:
    """It is refused everywhere, where there are some."""
    if not root.exists():
        write(workspaces, "sibling", a="邻居 neighbour")
    refuses(workspaces, task_id)
    assert everything(root) == ["sibling", "sibling/a"]


@each("wrong", [None, 7, b"x", ["x"]])
def test_an_id_that_is_no_text_is_refused(workspaces: Workspaces, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="task_id"):
        workspaces.init(wrong)


def test_each_id_has_a_folder_of_its_own(workspaces: Workspaces, root: Path) -> None:
    """Also where a file system takes large for small letters, or one spelling for another."""
    paths = [workspaces.init(task_id) for task_id in PLAIN]
    assert {path.parent for path in paths} == {root}
    assert len({path.name.casefold() for path in paths}) == len(PLAIN)
    assert workspaces.tasks() == sorted(PLAIN)


ANY_ID = st.text("abABéÉßſKk中.-_İı~", min_size=1, max_size=4) | st.text(max_size=70)


@given(ids=st.lists(ANY_ID, min_size=2, max_size=20, unique=True))
def test_no_two_ids_share_a_folder(ids: list[str]) -> None:
    """The law: what is not refused is a name of its own, however it is folded."""
    names = []
    for task_id in ids:
        try:
            names.append(folder_name(task_id))
        except InvalidArgument:
            continue
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)
        assert len(name.encode()) <= 255


# Their life


@BOTH
def test_a_workspace_that_exists_is_not_wiped_silently(
    workspaces: Workspaces, task_id: str
) -> None:
    """A second init says so; only who asks for it loses what is there."""
    path = workspaces.init(task_id)
    write(workspaces, task_id, notes="重要 important")
    with pytest.raises(Conflict, match="reset"):
        workspaces.init(task_id)
    assert (path / "notes").read_text() == "重要 important"
    assert workspaces.init(task_id, reset=True) == path
    assert list(path.iterdir()) == []


@BOTH
def test_cleanup_removes_that_workspace_only(workspaces: Workspaces, task_id: str) -> None:
    others = ["task-12345", "task-12345-abcde-2", "任务", "任务一二", "Task-12345-abcde"]
    for other in others:
        write(workspaces, other, deep_er_file="邻居 neighbour")
    write(workspaces, task_id, deep_er_file="gone")
    (workspaces.init("locked") / "read-only").mkdir(mode=0o500)
    path = workspaces.cleanup(task_id)
    assert not path.exists()
    assert workspaces.tasks() == sorted([*others, "locked"])
    assert len(list(workspaces.files())) == len(others)
    with pytest.raises(NotFound, match=task_id):
        workspaces.cleanup(task_id)


def test_the_root_and_its_siblings_cannot_be_cleaned_up(workspaces: Workspaces, root: Path) -> None:
    workspaces.init("a")
    for name in (root.name, "canary", "etc"):
        with pytest.raises(NotFound):
            workspaces.cleanup(name)
    assert everything(root) == ["a"]


def test_what_is_no_workspace_is_not_taken_for_one(workspaces: Workspaces, root: Path) -> None:
    workspaces.init("a")
    for name in (".hidden", "X", "x~000000000000", "a~000000000000", "任务", "b b"):
        (root / name).mkdir()
    (root / "file").write_text("x")
    assert workspaces.tasks() == ["a"]


def test_where_there_is_no_root_there_are_no_workspaces(workspaces: Workspaces, root: Path) -> None:
    assert workspaces.tasks() == [] and list(workspaces.files()) == []
    assert workspaces.search("任何 anything", limit=5) == []
    with pytest.raises(NotFound):
        workspaces.cleanup("a")
    assert not root.exists()


# Their files


@BOTH
def test_files_come_back_as_they_were_put(workspaces: Workspaces, task_id: str) -> None:
    """In order of their paths, with mode and size; what they hold is streamed."""
    big = os.urandom(300_000)
    workspaces.put(task_id, "源/big.bin", 0o4755, [big[:7], big[7:]])
    workspaces.put(task_id, "a b.txt", 0o640, ["你好 hello".encode()])
    workspaces.put(task_id, "empty", 0o600, [])
    found = list(workspaces.files())
    assert [(it.task_id, it.path, oct(it.mode), it.size) for it in found] == [
        (task_id, "a b.txt", "0o640", 12),
        (task_id, "empty", "0o600", 0),
        (task_id, "源/big.bin", "0o755", 300_000),
    ]
    assert [b"".join(it.chunks()) for it in found] == ["你好 hello".encode(), b"", big]
    workspaces.put(task_id, "empty", 0o600, [b"new"])
    assert b"".join(list(workspaces.files())[1].chunks()) == b"new"


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "./a", "a//b", "a/"),
        *("a\0b", "\ud800", "x" * 256, "/".join("a" * 65), "界" * 86, None, 7, b"a"),
    ],
)
def test_a_path_that_leads_out_is_refused(workspaces: Workspaces, root: Path, path: Any) -> None:
    workspaces.init("a")
    with pytest.raises(InvalidArgument, match="path"):
        workspaces.put("a", path, 0o600, [b"x"])
    assert everything(root) == ["a"]


def test_a_name_that_is_no_text_is_kept(workspaces: Workspaces) -> None:
    """Linux takes any bytes; what shows them to programs escapes them."""
    path = workspaces.init("a")
    Path(os.fsdecode(os.fsencode(path) + b"/\xff\xe4\xbd\xa0")).write_text("你好")
    (file,) = workspaces.files()
    assert os.fsencode(file.path) == b"\xff\xe4\xbd\xa0"
    workspaces.put("b", file.path, 0o600, file.chunks())
    assert dump_workspaces(workspaces)["b"] == {"\\udcff你": "你好"}


# Links


@BOTH
def test_a_link_in_place_of_a_workspace_is_not_followed(
    workspaces: Workspaces, root: Path, tmp_path: Path, task_id: str
) -> None:
    workspaces.init("real")
    link = root / folder_name(task_id)
    link.symlink_to(tmp_path / "canary")
    assert workspaces.tasks() == ["real"] and list(workspaces.files()) == []
    assert workspaces.search("canary", limit=5) == []
    with pytest.raises(Conflict):
        workspaces.init(task_id)
    with pytest.raises(Unavailable):
        workspaces.put(task_id, "kept", 0o600, [b"overwritten"])
    assert workspaces.cleanup(task_id) == link
    assert not os.path.lexists(link)
    link.symlink_to(tmp_path / "canary")
    assert workspaces.init(task_id, reset=True) == link
    assert link.is_dir() and not link.is_symlink()


@BOTH
def test_links_and_devices_inside_are_not_followed(
    workspaces: Workspaces, tmp_path: Path, task_id: str
) -> None:
    """They are no files: not listed, not searched, not written through, and gone with the rest."""
    path = workspaces.init(task_id)
    (path / "folder").symlink_to(tmp_path / "canary")
    (path / "file").symlink_to(tmp_path / "canary" / "kept")
    (path / "loop").symlink_to(path)
    os.mkfifo(path / "pipe")
    write(workspaces, task_id, own="自己的 own canary")
    assert [it.path for it in workspaces.files()] == ["own"]
    assert workspaces.search("canary", limit=9) == [(task_id, "own", "自己的 own canary")]
    assert dump_workspaces(workspaces) == {task_id: {"own": "自己的 own canary"}}
    for name in ("folder/kept", "file", "loop/own", "pipe"):
        with pytest.raises(Unavailable):
            workspaces.put(task_id, name, 0o600, [b"overwritten"])
    workspaces.cleanup(task_id)
    assert not path.exists()


def test_a_file_that_turned_into_a_link_is_not_read(workspaces: Workspaces, tmp_path: Path) -> None:
    """Whoever lists first and reads later is not led astray in between."""
    write(workspaces, "a", file="x", deep_file="x")
    files = list(workspaces.files())
    path = workspaces.root / "a"
    (path / "file").unlink()
    (path / "file").symlink_to(tmp_path / "canary" / "kept")
    (path / "deep").rename(path / "moved")
    (path / "deep").symlink_to(tmp_path / "canary")
    for file in files:
        with pytest.raises(Unavailable):
            list(file.chunks())


def test_folders_nested_without_end_are_refused_not_followed(workspaces: Workspaces) -> None:
    path = workspaces.init("deep")
    deep = path.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    with pytest.raises(Unavailable, match="nested"):
        list(workspaces.files())
    workspaces.cleanup("deep")
    assert workspaces.tasks() == []


# Searching and showing them


@pytest.mark.parametrize(
    ("query", "line"),
    [("火锅", "今晚吃火锅"), ("HOTPOT tonight", "Tonight: hotpot!"), ("straße", "STRASSE 7")],
)
def test_files_are_found_by_their_words(workspaces: Workspaces, query: str, line: str) -> None:
    """One line of each file, whatever the letters' case; all words in one line."""
    text = f"别的 other\r\n{line}\r\n{line} again\n"
    write(workspaces, "a", plan_txt=text, other="hot pot, to night, 火 锅")
    write(workspaces, "b", binary=b"\0" + line.encode(), last=line)
    assert workspaces.search(query, limit=9) == [("a", "plan/txt", line), ("b", "last", line)]
    assert workspaces.search(query, limit=1) == [("a", "plan/txt", line)]


@pytest.mark.parametrize("word", ["针", "needle"])
def test_a_line_without_end_is_searched_in_bounds(workspaces: Workspaces, word: str) -> None:
    write(workspaces, "a", big=b"x" * 200_000 + b" " + word.encode() + b" " + b"y" * 200_000)
    ((_, _, line),) = workspaces.search(word, limit=1)
    assert word in line and len(line) <= 500


def test_a_blank_query_finds_nothing(workspaces: Workspaces) -> None:
    for blank in ("", " ", "\u3000"):
        with pytest.raises(InvalidArgument, match="query"):
            workspaces.search(blank, limit=1)


@BOTH
def test_a_dump_shows_texts_and_the_size_of_the_rest(workspaces: Workspaces, task_id: str) -> None:
    split = "字" * 40_000  # a character lies across two chunks
    write(workspaces, task_id, a="你好 hello\n", b=b"\0\1\2", c=b"\xff", d=split, e=b"\xe4\xbd")
    workspaces.init("empty")
    assert dump_workspaces(workspaces) == {
        "empty": {},
        task_id: {
            "a": "你好 hello\n",
            "b": {"size": 3, "binary": True},
            "c": {"size": 1, "binary": True},
            "d": split,
            "e": {"size": 2, "binary": True},
        },
    }


@BOTH
def test_a_dump_has_a_bound(workspaces: Workspaces, task_id: str) -> None:
    """More text than that is refused, with the way out; what is no text takes up none."""
    megabyte = "字x".encode() * (1 << 18)
    workspaces.put(task_id, "binary", 0o600, [b"\0", *[megabyte] * 70])
    workspaces.put(task_id, "fits", 0o600, [megabyte] * 31)
    assert len(dump_workspaces(workspaces)[task_id]["fits"]) == 31 << 19
    workspaces.put(task_id, "more", 0o600, [megabyte] * 2)
    with pytest.raises(Exhausted, match="kemem backup"):
        dump_workspaces(workspaces)


# In a memory


async def test_a_memory_keeps_workspaces_in_its_directory(tmp_path: Path) -> None:
    """Or in that of the setting; a user's handle does not reach them."""
    async with AsyncMemory(settings=Settings(data_dir=tmp_path / "d", embedder="none")) as memory:
        path = (await memory.workspaces()).init("任务")
        assert path.is_relative_to(tmp_path / "d" / "workspaces")
        with pytest.raises(PermissionDenied):
            await memory.for_user("u").workspaces()
    settings = Settings(data_dir=tmp_path / "d", workspace_dir=tmp_path / "w", embedder="none")
    with Memory(settings=settings) as other:
        assert other.workspaces().init("task").is_relative_to(tmp_path / "w")
