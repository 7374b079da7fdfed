"""A PostgreSQL with Citus as a store over several servers: the rows of a space stay together."""

import sqlalchemy as sa

from kemem.errors import Conflict, InvalidArgument
from kemem.store import keys, schema, tally, webhooks
from kemem.store.migrate import read_meta, write_meta
from kemem.store.pipeline import DISTRIBUTED
from kemem.store.postgres import create_engine, row_words, without_schema

# Every server has all of these; they are small, and tables of spaces refer to them.
REFERENCES = (schema.agent, schema.app_user, schema.space, schema.embedding_model)
# Only the coordinator has these: they belong to no space.
LOCAL = (schema.meta, schema.job, schema.journal, tally.table, keys.table, webhooks.table)
SHARDED = (
    *(it for it in schema.metadata.sorted_tables if it not in (*REFERENCES, *LOCAL)),
    row_words,
)

_first, *_others = (it.name for it in SHARDED)
_is_citus = sa.select(sa.func.to_regproc("citus_version").is_not(None))


def check_citus(url: sa.URL) -> None:
    """Refuse a PostgreSQL that has no Citus, before anything is created there."""
    with create_engine(without_schema(url), poolclass=sa.NullPool).connect() as connection:
        if not connection.execute(_is_citus).scalar_one():
            raise InvalidArgument(
                "this PostgreSQL has no Citus: install it on every server, add citus to "
                "shared_preload_libraries, and run CREATE EXTENSION citus and citus_add_node"
            )


def distribute(connection: sa.Connection, shards: int) -> bool:
    """Spread the tables of an empty store over the servers of Citus; False if they were already.

    In the transaction of the caller, beside which nobody writes.
    """
    if DISTRIBUTED in read_meta(connection):
        return False
    for table in (schema.agent, schema.job, schema.journal):
        if connection.execute(sa.select(table).limit(1)).first():
            raise Conflict(
                f"the store has rows of {table.name}; distribute an empty one, "
                "then move the rows there with kemem move"
            )
    # Citus refuses to work in parallel on what refers to a table that has changed.
    name = connection.execute(sa.select(sa.func.current_database())).scalar_one()
    quoted = connection.dialect.identifier_preparer.quote(name)
    option = "citus.multi_shard_modify_mode TO 'sequential'"
    connection.execute(sa.text(f"ALTER DATABASE {quoted} SET {option}"))
    connection.execute(sa.text(f"SET LOCAL {option}"))
    for table in REFERENCES:
        connection.execute(sa.select(sa.func.create_reference_table(table.name)))
    create = "SELECT create_distributed_table(:name, 'space_no', "
    first = sa.text(f"{create}shard_count => :shards, colocate_with => 'none')")
    connection.execute(first, {"name": _first, "shards": shards})
    for name in _others:  # parents first
        beside = sa.text(f"{create}colocate_with => :beside)")
        connection.execute(beside, {"name": name, "beside": _first})
    write_meta(connection, DISTRIBUTED, "space_no")
    return True
