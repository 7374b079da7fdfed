"""Python objects, JSON schemas and commands described as JSON, without names of private places."""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

Described = Any  # JSON
PACKAGE = "kemem"
SPECIAL = {
    *("__call__", "__str__", "__len__", "__iter__", "__getitem__", "__contains__", "__bool__"),
    *("__enter__", "__exit__", "__aenter__", "__aexit__", "__aiter__", "__await__", "__or__"),
}
POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
NAMELESS = {"object", "Generic", "Protocol", "ABC"}  # bases that say nothing to a caller
MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")  # "kemem.types." of "kemem.types.Note"


# Python


def value_text(value: object) -> str:
    """A default as text: plain values as in source, others by their kind only."""
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case Path():
            at_home = value.is_relative_to(Path.home())
            return repr(str("~" / value.relative_to(Path.home()) if at_home else value))
        case tuple() | list():
            shown = ", ".join(value_text(each) for each in value)
            return f"({shown})" if isinstance(value, tuple) else f"[{shown}]"
        case set() | frozenset():
            shown = ", ".join(sorted(value_text(each) for each in value))
            return f"{type(value).__name__}({shown})"
        case type() | types.FunctionType() | types.BuiltinFunctionType():
            return value.__name__
    shown = repr(value)
    return shown if shown == "<factory>" else f"<{type(value).__name__}>"


def type_text(annotation: object) -> str:
    """An annotation as in source, classes without their modules."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return MODULES.sub("", str(annotation))


def parameters(function: Callable[..., Any], *, bound: bool = False) -> list[str]:
    """Names, kinds and defaults of parameters as in source; `bound` leaves out the first."""
    lines: list[str] = []
    before: inspect.Parameter | None = None
    for each in list(inspect.signature(function).parameters.values())[bound:]:
        if before and before.kind is POSITIONAL_ONLY and each.kind is not POSITIONAL_ONLY:
            lines.append("/")
        starred = before and before.kind in (VAR_POSITIONAL, KEYWORD_ONLY)
        if each.kind is KEYWORD_ONLY and not starred:
            lines.append("*")
        name = str(each.replace(annotation=each.empty, default=each.empty))
        lines.append(name if each.default is each.empty else f"{name}={value_text(each.default)}")
        before = each
    return [*lines, "/"] if before and before.kind is POSITIONAL_ONLY else lines


def public_object(value: Any, public: Collection[str] = ()) -> Described:
    """What a public name stands for; bases and the like are named where they are public too."""
    if inspect.isclass(value):
        return described_class(value, public)
    if inspect.isroutine(value):
        return {"kind": _way(value, "function"), "parameters": parameters(value)}
    if isinstance(value, Mapping):
        return {"kind": "mapping", "keys": list(value)}
    if typing.get_origin(value) or isinstance(value, types.UnionType):
        return {"kind": "type", "means": type_text(value)}
    return {"kind": "value", "value": value_text(value)}


def described_class(kind: type[Any], public: Collection[str]) -> Described:
    """Constructor, fields, methods, properties, class attributes and bases of a class."""
    own = _own(kind)
    fields = _fields(kind)
    shown = {name: value for name, value in own.items() if not name.startswith("_")}
    shown = {name: value for name, value in shown.items() if name not in fields}
    found: Described = {
        "kind": "class",
        "bases": sorted(_bases(kind, public)),
        "special": sorted(SPECIAL & own.keys()),
        "fields": fields,
        "methods": {name: _method(value) for name, value in shown.items() if _is_method(value)},
        "properties": [name for name, it in shown.items() if _is_property(it)],
        "attributes": {name: value_text(it) for name, it in shown.items() if _is_plain(it)},
    }
    found["properties"].sort()
    if getattr(kind, "_is_protocol", False):
        found["members"] = sorted(own.get("__annotations__", ()))
    elif not issubclass(kind, BaseModel):
        found["constructor"] = parameters(kind)
    if dataclasses.is_dataclass(kind):
        found["frozen"] = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return {name: part for name, part in found.items() if part or name == "constructor"}


def _own(kind: type[Any]) -> dict[str, Any]:
    """Members of a class by name, those of classes outside the package left out."""
    ours = [each for each in kind.__mro__ if each.__module__.partition(".")[0] == PACKAGE]
    own = {name: value for each in reversed(ours) for name, value in vars(each).items()}
    if issubclass(kind, BaseModel):
        others = [each for each in kind.__mro__ if each not in ours]
        return {k: v for k, v in own.items() if not any(hasattr(each, k) for each in others)}
    return own


def _bases(kind: type[Any], public: Collection[str]) -> set[str]:
    return {
        each.__name__
        for each in kind.__mro__[1:]
        if each.__name__ not in NAMELESS
        and (each.__name__ in public or each.__module__.partition(".")[0] != PACKAGE)
    }


def _fields(kind: type[Any]) -> dict[str, str]:
    """Fields of a dataclass or model, with defaults as text."""
    if issubclass(kind, BaseModel):
        return {
            name: _default(field.default, field.default_factory, PydanticUndefined)
            for name, field in kind.model_fields.items()
        }
    if not dataclasses.is_dataclass(kind):
        return {}
    return {
        field.name: _default(field.default, field.default_factory, dataclasses.MISSING)
        for field in dataclasses.fields(kind)
        if not field.name.startswith("_")
    }


def _default(default: object, factory: object, missing: object) -> str:
    if factory not in (None, missing):
        return "<factory>"
    return "required" if default is missing else value_text(default)


def _is_method(value: object) -> bool:
    return inspect.isroutine(value) and not inspect.isdatadescriptor(value)


def _is_property(value: object) -> bool:
    return isinstance(value, property | cached_property)


def _is_plain(value: object) -> bool:
    """Whether a member is data of the class; a slot is not."""
    return not (_is_method(value) or _is_property(value) or inspect.isdatadescriptor(value))


def _method(value: Any) -> Described:
    if isinstance(value, staticmethod):
        return {"kind": _way(value.__func__, "static method"), "parameters": parameters(value)}
    if isinstance(value, classmethod):
        inner = value.__func__
        return {"kind": _way(inner, "class method"), "parameters": parameters(inner, bound=True)}
    return {"kind": _way(value, "method"), "parameters": parameters(value, bound=True)}


def _way(function: object, name: str) -> str:
    if inspect.isasyncgenfunction(function):
        return f"async generator {name}"
    return f"async {name}" if inspect.iscoroutinefunction(function) else name


def json_shape(value: object) -> Described:
    """The keys and types of a JSON value; what a list holds is described as one."""
    match value:
        case Mapping():
            return {str(name): json_shape(each) for name, each in value.items()}
        case list() | tuple():
            shapes = [json_shape(each) for each in value]
            return [reduce(_either, shapes)] if shapes else []
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
    raise TypeError(f"{type(value).__name__} is no JSON")


def _either(one: Described, other: Described) -> Described:
    """The shape of what has one of two shapes; a key that only one of them has ends with "?"."""
    match one, other:
        case dict(), dict():
            return dict(_keys(one, other))
        case list(), list():
            return [reduce(_either, [*one, *other])] if one or other else []
        case str(), str():
            return " | ".join(sorted({*one.split(" | "), *other.split(" | ")}))
    raise TypeError(f"{one} and {other} have no shape in common")


def _keys(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, Described]]:
    for name in sorted({key.removesuffix("?") for key in (*one, *other)}):
        shapes = [each[key] for each in (one, other) for key in (name, f"{name}?") if key in each]
        always = name in one and name in other
        yield name if always else f"{name}?", reduce(_either, shapes)


# JSON schemas


def inlined(document: Mapping[str, Any]) -> Described:
    """A schema or an OpenAPI document with references replaced, and no titles of classes."""
    return _Inliner(document).resolve({k: v for k, v in document.items() if k != "$defs"})


class _Inliner:
    """Replaces references by what they mean; one to a schema around it stays, by its distance."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._inside: list[str] = []

    def resolve(self, value: Any) -> Described:
        match value:
            case {"$ref": str(target), **beside}:
                return {**self._target(target), **self.resolve(beside)}
            case Mapping():
                return {
                    name: self._part(name, each)
                    for name, each in value.items()
                    if not (name == "title" and isinstance(each, str))
                }
            case list():
                return [self.resolve(each) for each in value]
        return value

    def _part(self, name: str, value: Any) -> Described:
        if name == "properties":  # its keys are names of fields, "title" among them
            return {field: self.resolve(each) for field, each in value.items()}
        if name == "mapping":  # of a discriminator: the values name classes
            return sorted(value)
        if name == "required" and isinstance(value, list):
            return sorted(value)
        return value if name in ("default", "enum", "const", "examples") else self.resolve(value)

    def _target(self, target: str) -> dict[str, Any]:
        if target in self._inside:
            return {"$ref": f"{len(self._inside) - self._inside.index(target)} references up"}
        found: Any = self._document
        for step in target.removeprefix("#/").split("/"):
            found = found[step]
        self._inside.append(target)
        resolved: dict[str, Any] = self.resolve(
            {name: part for name, part in found.items() if name != "description"}
        )
        self._inside.pop()
        return resolved


def model_schema(model: type[BaseModel]) -> Described:
    """The JSON schema of a model without the sentence on its class."""
    return {k: v for k, v in inlined(model.model_json_schema()).items() if k != "description"}


# Commands


def described_command(command: Any) -> Described:
    """A command of typer with its parameters, and the commands below it."""
    inner = getattr(command, "commands", {})
    found = {
        "help": command.help,
        "hidden": command.hidden,
        "help_options": command.context_settings.get("help_option_names"),
        "parameters": [_parameter(each) for each in command.params],
        "commands": {name: described_command(each) for name, each in inner.items()},
    }
    return {name: part for name, part in found.items() if part}


def _parameter(given: Any) -> Described:
    """An option or argument; of those that typer adds itself, only the names."""
    names = {"names": given.opts, "off": given.secondary_opts}
    if given.name in ("install_completion", "show_completion"):
        return {name: part for name, part in names.items() if part}
    limits = {"min": given.min, "max": given.max, "envvar": given.envvar}
    found = {
        **names,
        "kind": given.param_type_name,
        "type": type_text(given.type_descriptor.annotation),
        "metavar": given.metavar,
        "help": given.help,
        "hidden": given.hidden,
        "many": given.multiple or given.nargs != 1,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }
    found = {name: part for name, part in found.items() if part or name in limits}
    return {**found, "required": given.required, "default": value_text(given.default)}
