"""Small exports of other systems, written for the tests, in Chinese and English."""

import pickle
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any


def chatgpt(
    name: str, said: Iterable[tuple[str, str]], replaced: str | None = None
) -> dict[str, Any]:
    """A conversation of ChatGPT; `replaced` is an answer that was generated again."""
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None}}
    parent = "root"
    for number, (role, text) in enumerate(said):
        node = f"{name}-{number}"
        mapping[node] = chatgpt_node(node, role, {"content_type": "text", "parts": [text]}, parent)
        mapping[node]["message"]["create_time"] = 1_769_424_420.5 + number
        mapping[parent].setdefault("children", []).append(node)
        parent = node
    if replaced is not None:
        content = {"content_type": "text", "parts": [replaced]}
        before = mapping[parent]["parent"]
        mapping["old"] = chatgpt_node("old", "assistant", content, before)
        mapping[before]["children"].append("old")
    return {
        "title": f"Talk {name}",
        "create_time": 1_769_424_400.0,
        "conversation_id": name,
        "current_node": parent,
        "mapping": mapping,
    }


def chatgpt_node(node: str, role: str, content: dict[str, Any], parent: str) -> dict[str, Any]:
    """A node of a conversation of ChatGPT."""
    message = {"id": node, "author": {"role": role}, "content": content, "create_time": None}
    return {"id": node, "message": {**message, "metadata": {}}, "parent": parent, "children": []}


def claude() -> dict[str, Any]:
    """A conversation of Claude with a file, a call of a tool and thoughts."""
    blocks = [
        {"type": "thinking", "thinking": "secret"},
        {"type": "text", "text": "看一下。"},
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "北京"}},
        {"type": "token_budget"},
    ]
    file = {"file_name": "plan.txt", "extracted_content": "Day 1: the wall"}
    return {
        "uuid": "c-1",
        "name": "旅行 Trip",
        "created_at": "2026-01-26T10:47:00.123456Z",
        "account": {"uuid": "a"},
        "chat_messages": [
            {
                "uuid": "m-1",
                "sender": "human",
                "text": "Is this plan good?",
                "content": [],
                "created_at": "2026-01-26T10:47:00.123456Z",
                "attachments": [file],
                "files": [{"file_name": "wall.jpg"}],
            },
            {"uuid": "m-2", "sender": "assistant", "content": blocks, "text": "看一下。"},
            {"uuid": "m-3", "sender": "assistant", "content": [], "text": ""},
        ],
    }


MEM0: dict[str, Any] = {
    "results": [
        {
            "id": "2d6c57ee",
            "memory": "不吃辣",
            "hash": "676f93",
            "metadata": {"channel": "app"},
            "created_at": "2026-01-26T02:47:00.265934-08:00",
            "updated_at": None,
            "user_id": "ann",
            "run_id": "s_1",
            "expiration_date": "2100-05-01",
        },
        {"id": "4b0d027e", "memory": "Lives in Berlin", "metadata": None, "user_id": "ann"},
        {"id": "77aa", "memory": "Refunds take 5 days", "agent_id": "shop"},
    ]
}

LETTA: dict[str, Any] = {
    "agents": [
        {
            "id": "agent-0",
            "name": "小乐",
            "messages": [
                {"id": "1", "role": "system", "content": [{"type": "text", "text": "You are."}]},
                {
                    "id": "2",
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": '{"type": "user_message", "message": "我叫李明", "time": "x"}',
                        }
                    ],
                    "created_at": "2026-01-26T10:47:00+00:00",
                },
                {
                    "id": "3",
                    "role": "assistant",
                    "content": [{"type": "text", "text": "The user told me a name."}],
                    "tool_calls": [
                        {
                            "id": "t",
                            "type": "function",
                            "function": {
                                "name": "send_message",
                                "arguments": '{"message": "Hello 李明!"}',
                            },
                        }
                    ],
                },
                {"id": "4", "role": "user", "content": '{"type": "heartbeat", "reason": "x"}'},
                {"id": "5", "role": "tool", "content": '{"status": "OK"}'},
                {"id": "6", "role": "assistant", "content": [{"type": "text", "text": "Bye"}]},
            ],
        }
    ],
    "blocks": [
        {"id": "block-0", "label": "human", "value": "Name: 李明"},
        {"id": "block-1", "label": "persona", "value": "I am 小乐."},
    ],
    "tools": [],
}

LOCOMO: dict[str, Any] = {
    "sample_id": "conv-26",
    "conversation": {
        "speaker_a": "Caroline",
        "speaker_b": "Mel",
        "session_2": [{"speaker": "Mel", "dia_id": "D2:1", "text": "Later."}],
        "session_2_date_time": "1:14 pm on 25 May, 2023",
        "session_1": [
            {"speaker": "Caroline", "dia_id": "D1:1", "text": "Hey Mel!"},
            {"speaker": "Mel", "dia_id": "D1:2", "text": "Look.", "blip_caption": "a dog"},
        ],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
    },
    "qa": [],
}

TELEGRAM: dict[str, Any] = {
    "name": "李明",
    "type": "personal_chat",
    "id": 42,
    "messages": [
        {"id": 1, "type": "service", "action": "phone_call", "text": ""},
        {
            "id": 2,
            "type": "message",
            "date": "2026-01-26T18:47:00",
            "date_unixtime": "1769424420",
            "from": "李明",
            "from_id": "user1",
            "text": ["看 ", {"type": "link", "text": "https://example.com"}],
        },
        {"id": 3, "type": "message", "date": "2026-01-26T10:48:00", "from": "Ann", "text": "ok"},
        {"id": 4, "type": "message", "from": "Ann", "photo": "a.jpg", "text": ""},
    ],
}

ZEP: dict[str, Any] = {
    "messages": [
        {
            "uuid": "z1",
            "role": "user",
            "name": "Ann",
            "content": "我不吃辣",
            "created_at": "2026-01-26T10:47:00Z",
        },
        {"uuid": "z2", "role": "assistant", "content": "Noted."},
    ],
    "row_count": 2,
    "user_id": "ann",
}

GRAPHITI: dict[str, Any] = {
    "edges": [
        {
            "uuid": "e1",
            "group_id": "ann",
            "source_node_uuid": "a",
            "target_node_uuid": "b",
            "name": "LIVES_IN",
            "fact": "Ann lives in Berlin",
            "created_at": "2026-01-27T10:47:00Z",
            "valid_at": "2026-01-26T10:47:00Z",
            "invalid_at": None,
            "expired_at": None,
        },
        {
            "uuid": "e2",
            "source_node_uuid": "a",
            "target_node_uuid": "c",
            "fact": "安住在罗马",
            "invalid_at": "2026-01-26T10:47:00Z",
        },
    ],
    "episodes": [
        {
            "uuid": "p1",
            "group_id": "ann",
            "name": "chat",
            "content": "Ann: I moved to Berlin",
            "source": "message",
            "source_description": "chat",
            "valid_at": "2026-01-26T10:47:00Z",
        }
    ],
}

LANGGRAPH: list[dict[str, Any]] = [
    {
        "namespace": ["memories", "u_1"],
        "key": "k1",
        "value": {"content": "喜欢滑雪"},
        "created_at": "2026-01-26T10:47:00+00:00",
        "updated_at": "2026-01-26T10:48:00+00:00",
    },
    {
        "prefix": "memories.u_1",
        "key": "k2",
        "value": {"kind": "Memory", "content": {"content": "Has a dog"}},
    },
    {"prefix": "facts", "key": "k3", "value": {"city": "Rome"}},
]

WHATSAPP = {
    "android": (
        "26/01/2026, 10:47 - Messages and calls are end-to-end encrypted.\n"
        "26/01/2026, 10:47 - 李明: 我不吃辣\n还有香菜\n"
        "27/01/2026, 22:05 - Ann B: Noted: no chilli\n"
        "27/01/2026, 22:06 - Ann B: <Media omitted>\n"
    ),
    "iphone": (
        "[1/26/26, 10:47:00\u202fAM] 李明: 我不吃辣\n还有香菜\n"
        "\u200e[1/27/26, 10:05:00\u202fPM] Ann B: Noted: no chilli\n"
    ),
    "chinese": (
        "2026/1/26 上午10:47 - 李明: 我不吃辣\n还有香菜\n"
        "2026/1/27 晚上10:05 - Ann B: Noted: no chilli\n"
    ),
}

WECHAT = {
    "time first": (
        "2026-01-26 10:47:00 李明\n我不吃辣\n还有香菜\n\n"
        "2026-01-27 22:05:00 Ann B\nNoted: no chilli\n"
    ),
    "name first": (
        "李明 2026/1/26 10:47\n我不吃辣\n还有香菜\nAnn B (2026-01-27 22:05:00)\nNoted: no chilli\n"
    ),
    "in Chinese": (
        "李明（2026年1月26日 10:47）\n我不吃辣\n还有香菜\n"
        "Ann B（2026年1月27日 22:05）\nNoted: no chilli\n"
    ),
}


class PointStruct:
    """Pickled as pydantic pickles the points of Qdrant: by the state of a model."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def __getstate__(self) -> dict[str, Any]:
        return {"__dict__": dict(self.fields), "__pydantic_fields_set__": set(self.fields)}


def qdrant(folder: Path, *points: object) -> Path:
    """A local store of mem0: a collection of Qdrant, and the history beside it."""
    path = folder / "collection" / "mem0" / "storage.sqlite"
    path.parent.mkdir(parents=True)
    rows = [(str(number), pickle.dumps(it)) for number, it in enumerate(points)]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        database.executemany("INSERT INTO points VALUES (?, ?)", rows)
    history(folder)
    return folder


def history(folder: Path) -> Path:
    """mem0's history of three memories, one of which changed and one was deleted."""
    rows = [
        ("a", None, "吃辣", "ADD", "2026-01-26T10:47:00Z"),
        ("b", None, "Has a cat", "ADD", "2026-01-26T10:47:00Z"),
        ("a", "吃辣", "不吃辣", "UPDATE", "2026-01-26T10:47:00Z"),
        ("b", "Has a cat", None, "DELETE", "2026-01-26T10:47:00Z"),
    ]
    path = folder / "history.db"
    with closing(sqlite3.connect(path)) as database, database:
        columns = "memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, created_at TEXT"
        database.execute(f"CREATE TABLE history ({columns})")
        database.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?)", rows)
    return path
