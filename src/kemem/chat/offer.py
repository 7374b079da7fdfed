"""The tools that a chat request offers, and whether a call that leaked may be run."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kemem.chat.leaks import LeakedCall


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the application gets it."""

    name: str
    arguments: str  # JSON


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that a model knows of, and the schemas of those that a leaked call may run."""

    known: frozenset[str]
    schemas: Mapping[str, Any]  # validators of jsonschema
    wanted: bool  # False: the application takes no calls at all

    @classmethod
    def of(cls, tools: Iterable[Any], only: Collection[str] | None, *, wanted: bool) -> "Offer":
        """The offer of a request's tools; with `only`, no other tool may be run."""
        from jsonschema import Draft202012Validator
        from referencing import Registry

        functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
        run = [it for it in functions if wanted and (only is None or it["name"] in only)]
        schemas = {it["name"]: it.get("parameters") or {"type": "object"} for it in run}
        none = Registry()  # the library would fetch whatever address a schema refers to
        checks = {name: Draft202012Validator(it, registry=none) for name, it in schemas.items()}
        return cls(frozenset(it["name"] for it in functions), checks, wanted)

    def accept(self, leaked: LeakedCall) -> Call | None:
        """The call, its arguments as its tool's schema types them; None where it may not run."""
        from jsonschema import SchemaError
        from referencing.exceptions import Unresolvable

        if (whole := self.schemas.get(leaked.name)) is None:
            return None
        try:
            whole.check_schema(whole.schema)
            arguments = _fitting(leaked.arguments, whole)
        except (SchemaError, Unresolvable):  # it can vouch for nothing
            return None
        return None if arguments is None else Call(leaked.name, arguments)


def _fitting(given: Mapping[str, Any], whole: Any) -> str | None:
    """The arguments as JSON, typed by a schema; None where they do not fit it."""
    properties = whole.schema.get("properties") or {}
    arguments = {
        key: _typed(value, whole.evolve(schema=properties.get(key, True)))
        for key, value in given.items()
    }
    return json.dumps(arguments, ensure_ascii=False) if whole.is_valid(arguments) else None


def _typed(value: Any, schema: Any) -> Any:
    """The value itself, or the JSON that a text spells where only that fits the schema."""
    if not isinstance(value, str) or schema.is_valid(value):
        return value
    try:
        spelled = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return spelled if schema.is_valid(spelled) else value
