"""Seed 002 §4: the four meta tables, as the databases really have them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Inspector, create_engine, inspect

from kemem import Memory, PermissionDenied
from kemem.testing import HashingEmbedder
from tests.cases import each

AGENT = "agent_id agent_name agent_type description config status create_time update_time creator"
USER = (
    "user_id agent_id user_name user_type profile status create_time update_time last_active_time"
)
SESSION = (
    "session_id agent_id user_id session_name session_type context status create_time update_time "
    "end_time"
)
MESSAGE = (
    "message_id agent_id user_id session_id role content content_type metadata parent_message_id "
    "create_time sequence_no"
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def tables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Inspector]:
    """The tables of a store that a memory has just created."""
    directory = tmp_path_factory.mktemp("store")
    if request.param == "sqlite":
        memory, url = Memory(data_dir=directory), f"sqlite:///{directory / 'kemem.db'}"
    else:
        postgres = request.getfixturevalue("postgres")
        memory = Memory(database_url=postgres)
        url = postgres.replace("postgresql:", "postgresql+psycopg:")
    with memory:
        memory.health()
    engine = create_engine(url)
    yield inspect(engine)
    engine.dispose()


def unique_indexes(tables: Inspector) -> list[list[str | None]]:
    return [each["column_names"] for each in tables.get_indexes("message") if each["unique"]]


@each(
    "table, columns",
    [("agent", AGENT), ("app_user", USER), ("session", SESSION), ("message", MESSAGE)],
)
def test_a_table_has_the_columns_of_the_seed(tables: Inspector, table: str, columns: str) -> None:
    """They may have more; none is missing."""
    assert set(columns.split()) <= {column["name"] for column in tables.get_columns(table)}


@each(
    "table, column",
    [
        ("agent", "agent_name"),
        ("app_user", "agent_id"),
        ("session", "agent_id"),
        ("session", "user_id"),
        ("message", "message_id"),
        ("message", "session_id"),
        ("message", "role"),
        ("message", "content"),
        ("message", "create_time"),
        ("message", "sequence_no"),
    ],
)
def test_a_column_that_must_be_there_cannot_be_empty(
    tables: Inspector, table: str, column: str
) -> None:
    """NOT NULL is kept by the database."""
    (found,) = [each for each in tables.get_columns(table) if each["name"] == column]
    assert not found["nullable"]


def test_defaults_are_those_of_the_seed(tables: Inspector) -> None:
    """A status of 1, and text as the type of content."""
    for table in ("agent", "app_user", "session"):
        (status,) = [each for each in tables.get_columns(table) if each["name"] == "status"]
        assert "1" in str(status["default"])
    (kind,) = [each for each in tables.get_columns("message") if each["name"] == "content_type"]
    assert "text" in str(kind["default"])


def test_keys_name_one_row(tables: Inspector) -> None:
    """Agents and users by their id; sessions and messages by their id within a space."""
    assert tables.get_pk_constraint("agent")["constrained_columns"] == ["agent_id"]
    assert tables.get_pk_constraint("app_user")["constrained_columns"] == ["user_id"]
    assert tables.get_pk_constraint("session")["constrained_columns"] == ["space_no", "session_id"]
    unique = [set(columns) for columns in unique_indexes(tables)]
    assert {"space_no", "message_id"} in unique


def test_a_message_is_named_by_agent_user_session_and_time(tables: Inspector) -> None:
    """The space stands for agent and user: a unique pair.

    The seed's index would refuse two messages that tell of the same time: their order of arrival
    is its last column.
    """
    unique = [set(columns) for columns in unique_indexes(tables)]
    assert {"space_no", "session_id", "create_time", "sequence_no"} in unique
    pairs = [set(each["column_names"]) for each in tables.get_unique_constraints("space")]
    assert {"agent_id", "user_id"} in pairs


@each(
    "table, columns",
    [
        ("agent", ["status"]),
        ("agent", ["create_time"]),
        ("app_user", ["agent_id", "status"]),
        ("app_user", ["last_active_time"]),
        ("session", ["user_id"]),
        ("session", ["status", "create_time"]),
        ("session", ["create_time"]),
        ("message", ["space_no", "create_time", "id"]),
        ("message", ["create_time"]),
    ],
)
def test_what_is_looked_up_is_indexed(tables: Inspector, table: str, columns: list[str]) -> None:
    """An index begins with the columns of the seed; agent and user are the space."""
    indexes = [each["column_names"] for each in tables.get_indexes(table)]
    assert any(index[: len(columns)] == columns for index in indexes)


def test_sessions_are_indexed_by_time_and_by_number(tables: Inspector) -> None:
    """Both orders of a session are unique, which is an index too."""
    unique = unique_indexes(tables)
    assert ["space_no", "session_id", "create_time", "sequence_no"] in unique
    assert ["space_no", "session_id", "sequence_no"] in unique


def test_rows_cannot_point_to_nothing(tables: Inspector) -> None:
    """Foreign keys lead from message to session and agent, and from user and session to agent.

    The space of a message is that of its session.
    """
    for table, referred in (
        ("app_user", {"agent"}),
        ("session", {"agent", "space"}),
        ("message", {"agent", "session"}),
    ):
        assert referred <= {key["referred_table"] for key in tables.get_foreign_keys(table)}


@pytest.mark.parametrize("level", ["agent", "user", "session"])
def test_name_type_config_and_status_are_of_use(tmp_path: Path, level: Any) -> None:
    """§4.1-4.3: they are set and listed, and a status of "disabled" is kept to."""
    ids: dict[str, Any] = {"user_id": "小明", "agent_id": "助手", "session_id": "会话"}
    owner = {name: ids[name] for name in ("user_id", "agent_id")} if level == "session" else {}
    with Memory(data_dir=tmp_path, embedder=HashingEmbedder()) as memory:
        memory.add("我不吃辣", **ids)
        values: dict[str, Any] = {"name": "名称", "type": "chatbot", "config": {"温度": 0.2}}
        made = memory.configure(level, ids[f"{level}_id"], **owner, **values, disabled=True)
        assert {name: getattr(made, name) for name in values} == values
        with pytest.raises(PermissionDenied, match=f"{level} '{ids[f'{level}_id']}' is disabled"):
            memory.add("我又吃辣了", **ids)
        memory.configure(level, ids[f"{level}_id"], **owner, disabled=False)
        assert memory.add("我又吃辣了", **ids).message_ids
