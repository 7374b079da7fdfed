"""What Python shows of records and errors: short, with times as text, under public names."""

import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import kemem
from kemem import Deletion, Hit, Ingested, Item, Memories, Memory, Message, Page
from kemem.integrations import mem0
from kemem.records import Note
from kemem.testing import FakeClock, HashingEmbedder
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
AT = "2026-01-01T00:00:00.000000Z"
MICROS = re.compile(r"\b\d{16}\b")


def message(content: str, **given: Any) -> Message:
    return Message("m_1", "default", "u", "s", "user", content, NOW, NOW, **given)


def note(content: str) -> Note:
    return Note("n_1", "default", "u", "s", "user_info", content, "digest", *(NOW,) * 4)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    folder: Path = tmp_path_factory.mktemp("readable")
    return Memory(data_dir=folder, embedder=HashingEmbedder(), clock=FakeClock(NOW))


def test_the_version_is_that_of_the_package() -> None:
    assert kemem.__version__ == version("kemem-memory")


@each(
    "record, shown",
    [
        (Deletion(1), "Deletion(deleted=1)"),
        (Ingested(("m_1",), ()), "Ingested(inserted=('m_1',), ignored=())"),
        (
            Ingested(tuple(f"m_{at}" for at in range(9)), ()),
            "Ingested(inserted=('m_0', 'm_1', 'm_2', … 6 more), ignored=())",
        ),
        (
            message("我不吃辣"),
            "Message(message_id='m_1', agent_id='default', user_id='u', session_id='s', "
            f"role='user', content='我不吃辣', ts='{AT}')",
        ),
        (
            Item(note("I don't eat meat")),
            "Item(id='n_1', kind='user_info', memory=\"I don't eat meat\", "
            f"user_id='u', event_time='{AT}')",
        ),
        (
            Hit(message("茶"), 0.51234, ("lexical#1",), ended=NOW),
            f"Hit(id='m_1', kind='message', memory='茶', user_id='u', event_time='{AT}', "
            f"score=0.512, valid_until='{AT}', superseded_by=None, why=('lexical#1',))",
        ),
        (Page(()), "Page([])"),
        (Page((Deletion(1),), "c_2"), "Page([\n    Deletion(deleted=1),\n], next_cursor='c_2')"),
        (Memories((), missing=("vectors",)), "Memories([], missing=('vectors',))"),
    ],
)
def test_a_record_reads_well(record: object, shown: str) -> None:
    assert repr(record) == shown


@each(
    "item",
    [Item(note("I don't eat meat")), Item(message("茶")), Hit(message("茶"), 0.5, ended=NOW)],
)
def test_what_is_shown_of_an_item_is_there_by_that_name(item: Item) -> None:
    shown = re.findall(r"(\w+)=('[^']*'|None)", repr(item))
    assert len(shown) >= 4
    for name, value in shown:
        assert repr(getattr(item, name)) == value
    assert item.session_id == "s"


@each("text", ["长" * 5000, "long " * 1000])
def test_long_texts_and_lists_are_cut(text: str) -> None:
    for record in (message(text), note(text), Item(note(text)), message("x", metadata={"a": text})):
        assert len(repr(record)) < 500 and "…" in repr(record)
    many = Memories(tuple(Item(message(str(at))) for at in range(100)))
    assert len(repr(many).splitlines()) == 23 and "… 80 more" in repr(many)


@each("text", ["我住在北京，不吃辣。", "I live in Rome and I don't eat meat."])
def test_no_answer_of_a_memory_shows_microseconds(memory: Memory, text: str) -> None:
    memory.add(text, "u")
    answers: list[object] = [
        *(memory.add(text, "u"), memory.ingest([text], "u"), memory.search(text, "u")),
        *(memory.get_all("u"), memory.messages("u"), memory.profile("u"), memory.users()),
        *(memory.sessions("u"), memory.graph("u"), memory.context("default", "u")),
        *(memory.checkpoint("default", "u"), memory.recall(text, "u"), memory.health()),
        *(memory.backup(), memory.history(memory.get_all("u")[0].id)),
    ]
    for answer in answers:
        assert not MICROS.search(repr(answer)), repr(answer)
    assert AT in repr(memory.search(text, "u"))


CALLS: list[tuple[str, Callable[[Any], object]]] = [
    ("add() missing 1 required positional argument: 'messages'", lambda it: it.add()),
    ("add() got an unexpected keyword argument 'user'", lambda it: it.add("x", user="u")),
    ("search() got an unexpected keyword argument 'foo'", lambda it: it.search("x", foo=1)),
    ("get() missing 1 required positional argument: 'memory_id'", lambda it: it.get()),
    ("add() missing 1 required positional argument: 'self'", lambda it: type(it).add()),
]


def test_a_wrong_argument_is_named_with_the_class_that_was_called(
    memory: Memory, tmp_path: Path
) -> None:
    other = mem0.Memory({"data_dir": str(tmp_path)})
    for message_of_error, call in CALLS:
        for each_memory in (memory, other):
            with pytest.raises(TypeError) as raised:
                call(each_memory)
            assert str(raised.value) == f"Memory.{message_of_error}"
    assert Memory.add.__qualname__ == "Memory.add"
    assert "AsyncMemory" not in repr(memory.add)


def test_a_page_is_a_list_of_its_items() -> None:
    """As hits and memories are; its JSON stays that of a record."""
    page = Page((Deletion(1), Deletion(2), Deletion(3)), "c_2")
    assert [it.deleted for it in page] == [1, 2, 3]
    assert (len(page), page[0], page[-1]) == (3, Deletion(1), Deletion(3))
    assert page[1:] == (Deletion(2), Deletion(3)) and Deletion(2) in page
    assert page and not Page(())
    assert page.to_dict()["next_cursor"] == "c_2" and len(page.to_dict()["items"]) == 3
