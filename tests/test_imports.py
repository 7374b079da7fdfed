"""Files of other systems: recognised by themselves, read, refused with their place."""

import io
import json
import os
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.imports import write_export
from kemem.errors import Exhausted, InvalidArgument, KeMemError
from kemem.imports import files, values
from kemem.imports.databases import Unpickler
from kemem.imports.documents import LONGEST, split_document
from kemem.imports.files import files_of
from kemem.imports.formats import FORMATS, read_files
from kemem.imports.items import Document, Item, Read, Skipped, moment
from kemem.imports.recipe import Portion, Target, plan, portions
from kemem.imports.values import CHUNK, json_values
from kemem.records.privacy import ContentPolicy
from kemem.text.turns import read_turns
from tests import exports
from tests.cases import each

TARGET = Target("u")
NOON = "2026-01-26T10:47:00.000000Z"


def written(folder: Path, name: str, content: object) -> Path:
    """A file with a text, bytes or JSON."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        path.write_text(text, "utf-8")
    return path


def read(path: Path) -> list[Read]:
    return list(read_files(files_of(path), "folder", lambda size: None, lambda item: None))


def items(path: Path) -> list[Item]:
    found = read(path)
    assert all(isinstance(it, Item) for it in found), found
    return [it for it in found if isinstance(it, Item)]


def said(path: Path) -> list[tuple[str, str]]:
    """Who said what, as it is stored."""
    turns = read_turns([it.fields for it in items(path)]).turns
    return [(it.fields["role"], it.fields["content"]) for it in turns]


def times(path: Path) -> list[object]:
    return [moment(it.fields.get("ts")) for it in items(path)]


# ChatGPT and Claude


def test_of_a_tree_of_chatgpt_the_branch_that_was_shown_is_read(tmp_path: Path) -> None:
    """From the current node back to the root, each message the parent of the next."""
    talk = [("user", "我不吃辣"), ("assistant", "Clear soup, then.")]
    path = written(tmp_path, "conversations.json", [exports.chatgpt("c1", talk, "Spicy soup!")])
    assert said(path) == talk
    first, second = (it.fields for it in items(path))
    assert first["session_id"] == second["session_id"] == "chatgpt-c1"
    assert second["parent_message_id"] == first["message_id"] == "chatgpt-c1-0"
    assert first["metadata"] == {"source": "chatgpt", "title": "Talk c1"}
    assert times(path) == ["2026-01-26T10:47:00.500000Z", "2026-01-26T10:47:01.500000Z"]


def test_the_export_of_the_benchmark_is_one_of_chatgpt(tmp_path: Path) -> None:
    """As many messages as it was asked for, without the answers that were replaced."""
    path = tmp_path / "conversations.json"
    write_export(path, 40)
    assert len(items(path)) == 40
    assert {it.format for it in items(path)} == {"ChatGPT"}


def test_a_tree_without_a_current_node_is_read_to_its_newest_leaf(tmp_path: Path) -> None:
    talk = exports.chatgpt("c1", [("user", "hi"), ("assistant", "你好")])
    del talk["current_node"]
    assert said(written(tmp_path, "c.json", [talk])) == [("user", "hi"), ("assistant", "你好")]


def test_calls_images_and_what_was_hidden_in_chatgpt(tmp_path: Path) -> None:
    """Calls and results of tools are told apart; hidden messages and thoughts are left out."""
    talk = exports.chatgpt("c1", [("user", "画一只猫")])
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1"}
    contents: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("assistant", {"content_type": "code", "text": "draw('cat')"}, {"recipient": "python"}),
        ("tool", {"content_type": "execution_output", "text": "done"}, {}),
        ("assistant", {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}, {}),
        ("system", {"content_type": "text", "parts": ["secret"]}, {"hidden": True}),
        ("assistant", {"content_type": "multimodal_text", "parts": [image, "A cat"]}, {}),
    ]
    for number, (role, content, more) in enumerate(contents, start=1):
        node = exports.chatgpt_node(f"c1-{number}", role, content, f"c1-{number - 1}")
        node["message"]["recipient"] = more.get("recipient", "all")
        hidden = {"is_visually_hidden_from_conversation": True} if "hidden" in more else {}
        node["message"]["metadata"] = hidden
        talk["mapping"][f"c1-{number}"] = node
    talk["current_node"] = "c1-5"
    assert said(written(tmp_path, "c.json", [talk])) == [
        ("user", "画一只猫"),
        ("tool", "python(draw('cat'))"),
        ("tool", "done"),
        ("assistant", "[image file-1, file-service://file-1]\nA cat"),
    ]


def test_a_conversation_of_claude(tmp_path: Path) -> None:
    """Texts of files stand with their message, thoughts and budgets are left out."""
    path = written(tmp_path, "conversations.json", [exports.claude()])
    assert said(path) == [
        ("user", "Is this plan good?\n[plan.txt]\nDay 1: the wall\n[image wall.jpg, image/jpeg]"),
        ("assistant", "看一下。"),
        ("tool", 'search({"q": "北京"})'),
    ]
    assert [it.fields["session_id"] for it in items(path)] == ["claude-c-1"] * 2


def test_a_conversation_of_claude_follows_the_leaf_that_was_shown(tmp_path: Path) -> None:
    texts = [("a", None, "我不吃辣"), ("b", "a", "old"), ("c", "a", "new")]
    messages = [
        {"uuid": it, "parent_message_uuid": parent, "sender": "human", "text": text}
        for it, parent, text in texts
    ]
    talk = {"uuid": "c", "chat_messages": messages, "current_leaf_message_uuid": "c"}
    assert [text for _, text in said(written(tmp_path, "c.json", [talk]))] == ["我不吃辣", "new"]


# Memories


def test_memories_of_mem0_keep_owner_time_metadata_and_expiry(tmp_path: Path) -> None:
    path = written(tmp_path, "mem0.json", exports.MEM0)
    first, second, shared = items(path)
    assert (first.user_id, first.is_memory, first.expires_at) == (
        "ann",
        True,
        "2100-05-02T00:00:00+00:00",
    )
    assert first.fields["content"] == "不吃辣"
    assert first.fields["session_id"] == "s_1"
    assert first.fields["ts"] == "2026-01-26T10:47:00.265934Z"
    assert first.metadata == {"source": "mem0", "channel": "app"}
    assert second.fields["content"] == "Lives in Berlin"
    groups = portions([first, second, shared], Target())
    assert [it.user_id for it in groups if isinstance(it, Portion)] == ["ann", "ann", ""]


def test_memories_of_mem0_a_line_each(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(it, ensure_ascii=False) for it in exports.MEM0["results"])
    found = items(written(tmp_path, "mem0.jsonl", lines))
    assert [it.format for it in found] == ["mem0"] * 3


def test_a_local_store_of_mem0_is_read_without_running_its_pickles(tmp_path: Path) -> None:
    """A point is data; what a pickle wants to call is not called."""

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "owned"),)

    payload = {"data": "不吃辣", "user_id": "ann", "created_at": NOON, "channel": "app"}
    good = exports.PointStruct({"id": "p1", "vector": [0.1], "payload": payload})
    found = read(exports.qdrant(tmp_path / "store", good))
    (memory,) = (it for it in found if isinstance(it, Item))
    assert (memory.fields["content"], memory.user_id) == ("不吃辣", "ann")
    assert memory.metadata == {"source": "mem0", "channel": "app"}
    assert [it.reason for it in found if isinstance(it, Skipped)] == [
        "the memories are read from Qdrant's store"
    ]
    evil = read(exports.qdrant(tmp_path / "evil", Evil()))
    (wrong,) = (it for it in evil if isinstance(it, Skipped) and it.is_wrong)
    assert "storage.sqlite: point 1: expected a pickled point" in wrong.line
    assert not (tmp_path / "owned").exists()


def test_a_small_pickle_asks_for_little_memory() -> None:
    """A memo of 2**31 places is 32 GB in C."""
    raw = b"\x80\x04K\x07r" + (2**31 - 1).to_bytes(4, "little") + b"."
    assert Unpickler(io.BytesIO(raw)).load() == 7


def test_the_history_of_mem0_alone_gives_the_last_texts(tmp_path: Path) -> None:
    (memory,) = items(exports.history(tmp_path))
    assert memory.fields["content"] == "不吃辣"


def test_items_of_langgraph_are_texts_or_json(tmp_path: Path) -> None:
    found = items(written(tmp_path, "store.json", exports.LANGGRAPH))
    assert [it.fields["content"] for it in found] == ["喜欢滑雪", "Has a dog", '{"city": "Rome"}']
    assert found[0].metadata == {"source": "langgraph", "namespace": "memories/u_1", "key": "k1"}
    assert all(it.is_memory for it in found)


def test_a_store_of_langgraph_on_sqlite(tmp_path: Path) -> None:
    """Rows are read as they are in JSON; a value that is no JSON is named."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE store (prefix TEXT, key TEXT, value TEXT, created_at TEXT)")
        row = ("memories.u_1", "k1", '{"content": "喜欢滑雪"}', NOON)
        database.execute("INSERT INTO store VALUES (?, ?, ?, ?)", row)
    (item,) = items(path)
    assert (item.fields["content"], item.fields["ts"]) == ("喜欢滑雪", NOON)
    assert item.metadata["namespace"] == "memories.u_1"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO store VALUES ('a', 'k2', 'no json', NULL)")
    with pytest.raises(InvalidArgument, match=r"store\.db: row 2: expected JSON in the column"):
        read(path)


def test_facts_of_graphiti_that_are_over_are_left_out(tmp_path: Path) -> None:
    fact, episode = items(written(tmp_path, "graph.json", exports.GRAPHITI))
    assert (fact.is_memory, fact.fields["content"]) == (True, "Ann lives in Berlin")
    assert (episode.is_memory, episode.fields["content"]) == (False, "Ann: I moved to Berlin")
    assert fact.fields["ts"] == NOON and fact.other_user == "ann"


# Conversations of platforms and messengers


def test_an_agent_file_of_letta(tmp_path: Path) -> None:
    """What was really said, and the block about the user; not what the agent thought."""
    found = items(written(tmp_path, "agent.af", exports.LETTA))
    assert [(it.is_memory, it.fields["content"]) for it in found] == [
        (True, "Name: 李明"),
        (False, "我叫李明"),
        (False, "Hello 李明!"),
        (False, "Bye"),
    ]


def test_a_thread_of_zep(tmp_path: Path) -> None:
    first, second = items(written(tmp_path, "thread.json", exports.ZEP))
    assert (first.user_id, first.fields["name"], first.fields["ts"]) == ("ann", "Ann", NOON)
    assert second.fields["role"] == "assistant"


def test_samples_of_locomo_are_users(tmp_path: Path) -> None:
    found = items(written(tmp_path, "locomo10.json", [exports.LOCOMO]))
    assert [it.fields["content"] for it in found] == ["Hey Mel!", "Look.\n[image: a dog]", "Later."]
    assert found[0].fields["ts"] == "2023-05-08T13:56:00+00:00"
    (portion,) = portions(found, Target())
    assert isinstance(portion, Portion) and portion.user_id == "conv-26"


@pytest.mark.parametrize("export", [exports.TELEGRAM, {"chats": {"list": [exports.TELEGRAM]}}])
def test_chats_of_telegram(tmp_path: Path, export: dict[str, Any]) -> None:
    found = items(written(tmp_path, "result.json", export))
    told = [(it.fields["name"], it.fields["content"]) for it in found]
    assert told == [("李明", "看 https://example.com"), ("Ann", "ok")]
    assert found[0].fields["ts"] == NOON


@pytest.mark.parametrize("text", [*exports.WHATSAPP.values(), *exports.WECHAT.values()])
def test_chats_that_were_saved_as_text(tmp_path: Path, text: str) -> None:
    """Who spoke when; several lines are one message, notices of the messenger are none."""
    path = written(tmp_path, "chat with 李明.txt", text)
    found = items(path)
    told = [(it.fields["name"], it.fields["content"]) for it in found]
    assert told == [("李明", "我不吃辣\n还有香菜"), ("Ann B", "Noted: no chilli")]
    assert times(path) == [NOON, "2026-01-27T22:05:00.000000Z"]


def test_a_chat_in_the_encoding_of_older_chinese_systems(tmp_path: Path) -> None:
    raw = exports.WECHAT["time first"].encode("gb18030")
    assert items(written(tmp_path, "chat.txt", raw))[0].fields["content"] == "我不吃辣\n还有香菜"


def test_wechat_as_a_table_and_as_json(tmp_path: Path) -> None:
    """Only rows of type 1 are texts."""
    table = (
        "localId,Type,IsSender,CreateTime,StrContent,NickName\n"
        '1,1,0,1769424420,"我不吃辣",李明\n2,3,0,1769424421,<xml/>,李明\n'
    )
    (row,) = items(written(tmp_path, "msg.csv", table))
    log = {"seq": 1, "time": "2026-01-26T18:47:00+08:00", "talker": "t", "sender": "s"}
    log |= {"senderName": "李明", "type": 1, "content": "我不吃辣"}
    (message,) = items(written(tmp_path, "log.json", [log, {**log, "type": 3}]))
    for it in (row, message):
        assert (it.fields["name"], it.fields["content"]) == ("李明", "我不吃辣")
        assert it.fields["ts"] == NOON


# Tables, documents, messages


def test_a_table_with_a_header(tmp_path: Path) -> None:
    """Columns by their usual names, in English and in Chinese; others are metadata."""
    text = "时间,发送者,内容,心情\n2026-01-26 10:47,李明,我不吃辣,好\n"
    (item,) = items(written(tmp_path, "a.csv", text))
    assert item.fields["content"] == "我不吃辣" and item.fields["name"] == "李明"
    assert item.fields["metadata"] == {"心情": "好"} and item.fields["ts"] == NOON
    text = 'user_id\trole\ttext\nann\tassistant\t"two\nlines"\n'
    (item,) = items(written(tmp_path, "b.tsv", text))
    assert (item.user_id, item.fields["content"]) == ("ann", "two\nlines")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n", "t.csv:1: expected a header with a column content, text, message"),
        ("content\n1,2\n", "t.csv:2: expected 1 columns, as the header has, not 2"),
        ("content,ts\nhi,now\n", "t.csv:2: expected a time such as 2026-01-26 10:47, not 'now'"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read(written(tmp_path, "t.csv", text))
    assert refused.value.message.removeprefix(f"{tmp_path}/").startswith(reason)


@each(
    ("text", "sections"),
    [
        ("# Guide\n\n## 食物\n不吃辣。\n", ("Guide > 食物\n\n不吃辣。",)),
        ("Intro\n# A\n# B\ntext\n### C\nmore", ("Intro", "B\n\ntext", "B > C\n\nmore")),
        ("---\ntitle: x\n---\n# A\n```sh\n# no heading\n```\n", ("A\n\n```sh\n# no heading\n```",)),
        ("# A\n", ()),
        ("", ()),
    ],
)
def test_a_document_is_split_at_its_headings(text: str, sections: tuple[str, ...]) -> None:
    assert split_document(text) == sections


@given(st.text(alphabet="# \n`a火", max_size=60))
def test_splitting_loses_no_text(text: str) -> None:
    """Every character of the body is in some section, in its order."""
    kept = "".join("".join(split_document(text)).split())
    body = [line for line in text.split("\n") if "#" not in line and "`" not in line]
    letters = [char for line in body for char in line if char in "a火"]
    rest = iter(kept)
    assert all(char in rest for char in letters)


def test_long_sections_are_cut_between_paragraphs() -> None:
    text = "# T\n" + "\n\n".join("我" * 600 for _ in range(9)) + "\n\n" + "x" * (2 * LONGEST + 5)
    sections = split_document(text)
    assert all(len(it) <= LONGEST + len("T\n\n") for it in sections)
    assert sum(it.count("我") for it in sections) == 5400
    assert sum(it.count("x") for it in sections) == 2 * LONGEST + 5


CONVERSATION = {
    "conversations": [{"from": "human", "value": "你好"}, {"from": "gpt", "value": "hi"}]
}


@pytest.mark.parametrize(
    "file",
    [
        json.dumps(CONVERSATION),
        json.dumps([CONVERSATION], indent=2),
        json.dumps(CONVERSATION, indent=2),
        json.dumps([["user", "你好"], ["assistant", "hi"]], indent=1),
        json.dumps([["user", "你好"], ["assistant", "hi"]]),
        '["user", "你好"]\n\n["assistant", "hi"]',
        '[{"content": "你好"}]\n[{"role": "assistant", "content": "hi"}]',
        '{"parts": [{"text": "你好"}]}\n{"role": "model", "parts": [{"text": "hi"}]}',
        '"你好"\n{"type": "ai", "content": "hi"}',
        '\ufeff{"content": "你好"}\n{"role": "assistant", "content": "hi"}',
    ],
)
def test_messages_may_have_any_format(tmp_path: Path, file: str) -> None:
    """One message or conversation a line, or all of it as one value."""
    for name in ("talk.json", "talk.jsonl"):
        assert said(written(tmp_path, name, file)) == [("user", "你好"), ("assistant", "hi")]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("{", "2: not JSON: Expecting property name"),
        ("5", "2: not a message, nor a list of messages, nor a known export: 5"),
        ('[{"role": "user", "content": "hi"}, null]', "2: item 2: not a message, nor a list"),
        ('[{"role": "user", "content": "hi"} 5]', "2: not JSON: Expecting ',' or ']'"),
        ('[{"role": "user", "content": "hi"},]', "2: not JSON: Expecting value after a comma"),
        ("[", "2: not JSON: "),
        pytest.param("[" * 100_000, "2: not JSON: ", id="deep"),
        ('{"content": "hi"}', "2: no user_id; name one on the line, or with --user"),
        ('{"user_id": ["u"], "content": "hi"}', "2: user_id must be a string"),
    ],
)
def test_what_is_no_message_is_refused_with_its_line(tmp_path: Path, raw: str, reason: str) -> None:
    """The number counts all lines of the file, empty ones too."""
    path = written(tmp_path, "talk.jsonl", f"\n{raw}")
    target = Target() if "user_id" in reason else TARGET
    with pytest.raises(InvalidArgument) as refused:
        list(portions(read_files(files_of(path), "", lambda size: None, lambda item: None), target))
    assert refused.value.message.startswith(f"{path}:{reason}")


# Folders and archives


def test_a_folder_or_a_zip_is_read_as_a_whole(tmp_path: Path) -> None:
    """Chats, documents, and the names of what no reader knows."""
    folder = tmp_path / "mine"
    (folder / ".git").mkdir(parents=True)
    talk = [exports.chatgpt("c1", [("user", "hi 你好")])]
    files: dict[str, object] = {
        "conversations.json": talk,
        "message_feedback.json": [{"id": "1", "content": "{}"}],
        "user.json": {"id": "1", "email": "a@example.com"},
        "notes.md": "# 食物\n不吃辣",
        "photo.png": b"\x89PNG\0\0",
        "broken.json": "{// no json",
        "empty.txt": "",
        ".git/config.json": "{}",
    }
    for name, content in files.items():
        written(folder, name, content)
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        for name in files:
            archive.write(folder / name, name)
    for path in (folder, tmp_path / "mine.zip"):
        found = read(path)
        assert [type(it) for it in found].count(Item) == 1
        (document,) = (it for it in found if isinstance(it, Document))
        assert (document.source, document.sections) == ("notes.md", ("食物\n\n不吃辣",))
        skipped = {it.name.removeprefix(f"{path}/") for it in found if isinstance(it, Skipped)}
        assert skipped == files.keys() - {"conversations.json", "notes.md", ".git/config.json"}
        (broken,) = (it for it in found if isinstance(it, Skipped) and it.is_wrong)
        assert broken.line.startswith(f"{path}/broken.json:1: not JSON")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.zip", b"PK no zip", "expected a zip archive: File is not a zip file"),
        ("a.txt", "just a text 只是文字", "no known format"),
        ("a.bin", b"\0\1\2", "no known format"),
        ("a.db", b"SQLite format 3\0" + b"x" * 200, "expected an SQLite database: "),
        ("a.json", b"[\xff]", "not UTF-8: invalid start byte"),
        ("a.json", "", "empty"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: object, reason: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(InvalidArgument) as refused:
        read(path)
    assert refused.value.message.startswith(f"{path}:")
    assert reason in refused.value.message


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


HELLO = '{"role": "user", "content": "你好 hello"}'


def test_an_archive_that_unpacks_to_much_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything of it is unpacked; a small one may be as dense as it likes."""
    bomb = packed(tmp_path / "bomb.zip", {"a.jsonl": b" " * (4 << 20)})
    assert [type(it) for it in read(bomb)] == [Skipped]
    monkeypatch.setattr(files, "MAX_UNPACKED", 1 << 20)
    with pytest.raises(Exhausted, match=r"bomb.zip: its files must be at most 1 MiB .* not 4 MiB"):
        read(bomb)
    assert len(read(packed(tmp_path / "a.zip", {"a.json": f"[{HELLO}]".encode()}))) == 1


@pytest.mark.parametrize("start", ["[", "", '{"messages": [\n', "[\n"])
def test_a_value_is_never_larger_than_what_may_be_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """Neither a line, nor an item of a list, nor a whole file; many small ones are."""
    monkeypatch.setattr(values, "MAX_WHOLE", 1 << 17)
    long = HELLO.replace("hello", "x" * (1 << 18))
    with pytest.raises(Exhausted, match=r"a.json:\d+.*: a value must be at most 0 MiB"):
        read(written(tmp_path, "a.json", start + long + ("]" if start == "[" else "")))
    assert len(items(written(tmp_path, "b.jsonl", f"{HELLO}\n" * 9_000))) == 9_000


def test_names_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    """They are labels: nothing is written by them."""
    hello = f"[{HELLO}]".encode()
    names = ("../up.json", "a/../../up.json", "/etc/up.json", "C:\\up.json", "ok.json")
    found = read(packed(tmp_path / "t.zip", dict.fromkeys(names, hello)))
    assert len(found) == 3  # those with ".." count as hidden
    assert [it.name for it in tmp_path.iterdir()] == ["t.zip"]


def test_a_damaged_or_locked_member_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    talk = b"[" + b",".join(f'{{"role": "user", "content": "{n}"}}'.encode() for n in range(999))
    good = packed(tmp_path / "z.zip", {"a.json": talk + b"]", "b.json": f"[{HELLO}]".encode()})
    raw = good.read_bytes()
    central = raw.index(b"PK\x01\x02")
    damaged = raw[:150] + b"\xff" * 60 + raw[210:]
    locked = bytearray(raw)
    locked[6] |= 1
    locked[central + 8] |= 1
    for changed in (damaged, bytes(locked)):
        good.write_bytes(changed)
        skipped, item = read(good)
        assert isinstance(skipped, Skipped) and isinstance(item, Item)
        assert skipped.is_wrong and skipped.line.startswith(f"{good}/a.json: cannot be read: ")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_and_encodings_of_other_systems(tmp_path: Path, encoding: str, end: str) -> None:
    """Also where Windows saved a file; a table in GBK, too."""
    lines = f"{HELLO}{end}" * 2
    assert len(items(written(tmp_path, "a.jsonl", lines.encode(encoding)))) == 2
    assert len(items(written(tmp_path, "a.json", f"[{HELLO}]{end}".encode(encoding)))) == 1
    table = f"内容,发送者{end}不吃辣\u2028真的,小明{end}"
    for each_encoding in (encoding, "gb18030"):
        ((role, text),) = said(written(tmp_path, "a.csv", table.encode(each_encoding)))
        assert (role, text) == ("user", "不吃辣\u2028真的")
    chat = f"26/01/2026, 10:47 - Ann: 不吃辣{end}26/01/2026, 10:48 - Bob: ok{end}"
    assert len(items(written(tmp_path, "a.txt", chat.encode(encoding)))) == 2


# Laws

NAMES = """
mapping current_node chat_messages messages memory id uuid role content agents blocks core_memory
agent_type conversation type speaker_a speaker_b session_1 chats list fact namespace key value
results edges source_node_uuid target_node_uuid text name author message parent parts seq time
talker sender source
"""
KEYS = NAMES.split()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)
SUFFIXES = st.sampled_from([".json", ".csv", ".tsv", ".txt", ".md", ".zip", ""])
NOT_TEXTS = VALUES.filter(lambda it: not isinstance(it, str))


@given(VALUES)
def test_no_value_breaks_a_reader(value: object) -> None:
    """Whatever JSON looks like an export is read or refused with a reason."""
    for format in FORMATS:
        if format.is_like(value):
            try:
                read = list(format.read(value, "file.json:1"))
                plan(portions(read, TARGET), TARGET, 0, ContentPolicy(1000))
            except KeMemError as error:
                assert error.message.startswith(("file.json:1", "parent_message_id"))


@given(st.binary(max_size=80), SUFFIXES)
def test_no_bytes_break_an_import(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("raw") / f"file{suffix}"
    path.write_bytes(raw)
    try:
        plan(portions(read(path), TARGET), TARGET, 0, ContentPolicy(1000))
    except KeMemError as error:
        assert str(path) in error.message


@given(st.lists(NOT_TEXTS, min_size=1, max_size=6), st.sampled_from([None, 1]))
def test_a_list_is_read_item_by_item_as_it_is_as_a_whole(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("list") / "list.json"
    path.write_text(json.dumps(values, indent=indent), "utf-8")
    with path.open("rb") as stream:
        assert [value for _, value in json_values(stream, "list.json")] == values


def test_items_longer_than_a_chunk_are_whole(tmp_path: Path) -> None:
    """Texts, numbers and escapes that a border of chunks cuts."""
    values = [{"a": "火" * CHUNK}, 10**50, {"b": '\\"' * CHUNK}, -1.5e300, {"c": [True] * CHUNK}]
    path = written(tmp_path, "long.json", values)
    for shift in range(4):
        path.write_text(" " * shift + json.dumps(values), "utf-8")
        with path.open("rb") as stream:
            assert [value for _, value in json_values(stream, "long.json")] == values


def test_an_id_depends_on_what_is_said_and_to_whom(tmp_path: Path) -> None:
    """The order of the fields does not matter; user, agent, session and repetition do."""
    raw = ['{"content": "你好", "role": "user"}', '{"role": "user", "content": "你好"}'] * 2
    path = written(tmp_path, "talk.jsonl", "\n".join(raw))

    def ids(target: Target) -> list[str]:
        (portion,) = portions(read(path), target)
        assert isinstance(portion, Portion)
        return [it.fields["message_id"] for it in portion.items]

    targets = [Target("u", "a", "s"), Target("v", "a", "s"), Target("u", "b", "s")]
    targets.append(Target("u", "a", "t"))
    assert len({it for target in targets for it in ids(target)}) == 16
    assert ids(targets[0]) == ids(targets[0])


def test_portions_keep_users_apart_and_order_within_them() -> None:
    """A portion has one user; together they have at most so many messages."""
    users = ["李明" if number % 3 else "ann" for number in range(1, 8)]
    some = [Item(str(at), "messages", {"content": "a"}, it) for at, it in enumerate(users, 1)]
    found = [it for it in portions(some, Target(), 4) if isinstance(it, Portion)]
    places = [[it.place for it in portion.items] for portion in found]
    assert places == [["1", "2", "4"], ["3"], ["5", "7"], ["6"]]


@each(
    ("value", "time"),
    [
        (1769424420, NOON),
        (1769424420000, NOON),
        ("1769424420", NOON),
        ("2026-01-26T10:47:00.000000999Z", NOON),
        ("2026/01/26 10:47", NOON),
        ("2026-01-26T18:47:00+08:00", NOON),
        ("yesterday", None),
        (True, None),
        (float("inf"), None),
        (None, None),
        ([], None),
    ],
)
def test_times_as_exports_write_them(value: object, time: str | None) -> None:
    assert moment(value) == time
