"""The user's own types of notes, entities and relations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from reprlib import repr as shown
from typing import Any, NoReturn

from kemem.errors import InvalidArgument
from kemem.records.serialization import Record

OWN_TYPE = "memory_type"  # the key of a note's metadata that has its own type
MAX_TYPES, MAX_EXAMPLES = 50, 20  # of each group, of each type
MAX_DESCRIPTION, MAX_EXAMPLE = 500, 300  # characters
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
NOTE_TYPES = frozenset(
    {"general", "verbatim", "identity", "contact", "residence", "work", "education", "health"}
    | {"relationship", "user_preference", "skill", "possession", "setting", "plan", "event"}
    | {"experience"}
)
_KINDS = {"message", "user_info", "knowledge", "short_term", "short", "long"}  # types for a recall
ENTITY_TYPES = frozenset(
    {"person", "organization", "place", "occupation", "animal", "thing", "product", "language"}
    | {"field", "vehicle", "name"}
)
RELATION_TYPES = frozenset(
    {"advised_by", "allergic_to", "born_in", "classmate_of", "colleague_of", "dating", "dislikes"}
    | {"doctor_of", "drives", "expert_in", "founded", "friend_of", "from", "graduated_from"}
    | {"grandparent_of", "has_pet", "landlord_of", "likes", "lived_in", "lives_in", "manager_of"}
    | {"married_to", "neighbor_of", "owns", "parent_of", "partner_of", "plans_to_visit", "plays"}
    | {"relative_of", "roommate_of", "sibling_of", "speaks", "studies", "studies_at", "studies_in"}
    | {"teacher_of", "teaches", "teaches_at", "uses", "visited", "worked_at", "works_as"}
    | {"works_at", "works_in"}
)
_BUILT_IN = {"notes": NOTE_TYPES | _KINDS, "entities": ENTITY_TYPES, "relations": RELATION_TYPES}


@dataclass(frozen=True, slots=True)
class OwnType(Record):
    """What a type means, and texts of it."""

    description: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ontology(Record):
    """Types by name, for notes, entities and relations."""

    notes: Mapping[str, OwnType] = field(default_factory=dict)
    entities: Mapping[str, OwnType] = field(default_factory=dict)
    relations: Mapping[str, OwnType] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.notes or self.entities or self.relations)

    def merged(self, other: "Ontology") -> "Ontology":
        """Its types and those of another; where both have a name, its own."""
        groups = (each.name for each in fields(self))
        return Ontology(**{it: {**getattr(other, it), **getattr(self, it)} for it in groups})

    @classmethod
    def parse(cls, value: object) -> "Ontology":
        """An ontology from JSON or TOML; InvalidArgument names what is wrong in it."""
        if isinstance(value, Ontology):
            return value
        groups = _mapping(value, "ontology", {each.name for each in fields(cls)})
        return cls(**{it: _types(it, own) for it, own in groups.items()})


def _types(group: str, value: object) -> dict[str, OwnType]:
    types = _mapping(value, f"ontology.{group}")
    if len(types) > MAX_TYPES:
        _refuse(f"ontology.{group}", f"have at most {MAX_TYPES} types", len(types))
    return {name: _type(group, name, own) for name, own in types.items()}


def _type(group: str, name: str, value: object) -> OwnType:
    place = f"ontology.{group}"
    if not NAME.fullmatch(name):
        rule = "have names of 1-40 lowercase letters, digits and underscores, as bug_report"
        _refuse(place, rule, name)
    if name in _BUILT_IN[group]:
        reason = f"{place}.{name} is a built-in type: choose another name"
        raise InvalidArgument(reason, field=f"{place}.{name}")
    place = f"{place}.{name}"
    own = _mapping(value, place, {"description", "examples"})
    description = _text(own.get("description"), f"{place}.description", MAX_DESCRIPTION)
    examples = own.get("examples", ())
    if not isinstance(examples, list | tuple):
        _refuse(f"{place}.examples", "be a list of texts", examples)
    if len(examples) > MAX_EXAMPLES:
        _refuse(f"{place}.examples", f"have at most {MAX_EXAMPLES} texts", len(examples))
    texts = (_text(it, f"{place}.examples", MAX_EXAMPLE) for it in examples)
    return OwnType(description, tuple(dict.fromkeys(texts)))


def _mapping(value: object, place: str, known: set[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(it, str) for it in value):
        _refuse(place, "be an object", value)
    unknown = [it for it in value if known is not None and it not in known]
    if known is not None and unknown:
        _refuse(place, f"have only {', '.join(sorted(known))}", unknown[0])
    return value


def _text(value: object, place: str, most: int) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not 1 <= len(text) <= most or not text.isprintable():
        _refuse(place, f"be a text of 1-{most} characters", value)
    return text


def _refuse(place: str, rule: str, value: object) -> NoReturn:
    raise InvalidArgument(f"{place} must {rule}, not {shown(value)}", field=place)


NO_TYPES = Ontology()
