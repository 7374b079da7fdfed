"""Who people, pets and groups are to each other, read from `roles.tsv`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Role:
    """What somebody is to an owner.  mother: 妈妈, mom; X --parent_of--> the owner"""

    kind: str
    name: str  # in topics: "user/mother"
    pronoun: str  # he, she, it, they; "" where only the name could tell
    relation: str  # from the owner to the one in the role; "<" turns it round, "=" is mutual
    one: bool  # a new one takes the place of the old
    words: Mapping[str, tuple[str, ...]]  # by language


@cache
def roles() -> tuple[Role, ...]:
    """The table of roles."""
    lines = (files(__package__) / "roles.tsv").read_text("utf-8").splitlines()
    return tuple(_role(n, line) for n, line in enumerate(lines, 1) if line and line[0] != "#")


def _role(number: int, line: str) -> Role:
    cells = line.split("\t")
    if len(cells) != 7 or not all(cells) or cells[4] not in ("one", "many"):
        raise ValueError(f"roles.tsv:{number}: expected seven columns, see its head: {line!r:.80}")
    kind, name, pronoun, relation, number_of, chinese, english = cells
    words = {"zh": tuple(chinese.split("|")), "en": tuple(english.split("|"))}
    return Role(kind, name, pronoun.strip("-"), relation, number_of == "one", words)
