"""Agents, users and sessions named, typed, configured and disabled."""

from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any, get_args

from kemem.add.parse import check_label, check_metadata
from kemem.errors import InvalidArgument
from kemem.ports import Deps
from kemem.ports.entries import find_entry
from kemem.records import Entry, Scope
from kemem.records.batch import MAX_NAME, MAX_TYPE, Batch, Configuration, ConfiguredLevel
from kemem.scope import check_flag
from kemem.text.ids import check_id


async def configure(
    level: ConfiguredLevel,
    name: str,
    owner: Mapping[str, str | None],
    given: Mapping[str, Any],
    deps: Deps,
) -> Entry:
    """Change what is given of the one that is named; the owner tells sessions of a name apart."""
    if level not in get_args(ConfiguredLevel):
        raise InvalidArgument(
            f"level must be agent, user or session, not {shown(level)}", field="level"
        )
    ids = {key: check_id(value, key) for key, value in owner.items() if value is not None}
    if ids and level != "session":
        raise InvalidArgument(f"only a session needs {', '.join(ids)} beside its id", field="level")
    scope = Scope(**ids, **{f"{level}_id": check_id(name, "id")})
    checked = {key: _check(key, value) for key, value in given.items() if value is not None}
    if not checked:
        raise InvalidArgument(f"one of {', '.join(given)} is required", field="name")
    entry = await find_entry(deps.store, level, scope)
    if level == "session":
        scope = Scope(entry.agent_id, entry.user_id or "", entry.id)
    change = Configuration(level, scope, deps.clock(), **checked)
    await deps.store.apply(Batch(configured=(change,)))
    return await find_entry(deps.store, level, scope)


def _check(key: str, value: Any) -> Any:
    match key:
        case "disabled":
            return check_flag(value, key)
        case "config":
            return check_metadata(value, key)
    if value == "":  # takes it away
        return value
    return check_label(value, key, MAX_NAME if key == "name" else MAX_TYPE)
