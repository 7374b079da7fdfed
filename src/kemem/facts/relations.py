"""Relations of users' own types in what was said, by the names and examples of the types.

An example tells by which verb or noun a relation is said, and which end is its source. A clause
that says it in the same way, of something that is so now, states the relation. A wrong edge is
worse than none: what is asked, denied, wished or over states nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from kemem.facts import relations_en as english
from kemem.facts import relations_zh as chinese
from kemem.facts.grammar import ME, Discourse, Part, Relation, Subject
from kemem.facts.language import language
from kemem.facts.readers import parts_of
from kemem.facts.relations_en import Pair
from kemem.facts.sentences import sentences
from kemem.records.ontology import OwnType

_LONGEST = 160  # characters of a clause that is read
_USER = {"zh": "用户", "en": "User"}
_HAN = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class RelationType:
    """How an own relation is said."""

    name: str
    english: tuple[english.Phrase, ...]
    chinese: tuple[chinese.Phrase, ...]
    examples: tuple[str, ...]  # as notes
    is_passive: bool  # managed_by: who does it is the target


class Found(NamedTuple):
    """A relation that a clause states; if it is `weak`, the clause must be near to an example."""

    relation: Relation
    own: RelationType
    weak: bool


def relation_types(types: Mapping[str, OwnType]) -> tuple[RelationType, ...]:
    """How relations are said, by what their types tell of them."""
    return tuple(_learned(name, own) for name, own in types.items())


def _learned(name: str, own: OwnType) -> RelationType:
    parts = [
        part
        for text in own.examples
        for sentence in sentences(text)
        for part in parts_of(sentence, Discourse(Subject(_USER[sentence.language], ME, "user")))
    ]
    is_passive = name.endswith("_by")
    is_done = not is_passive and english.is_participle(name.partition("_")[0])  # assigned_to
    said = [part.text for part in parts if _HAN.search(part.text)]
    said = [it for it in said if not is_done or not re.search("[被由归]", it)]
    told = [part.note for part in parts if not _HAN.search(part.text)]
    return RelationType(
        name,
        english.phrases(name, own.description, told),
        chinese.phrases(own.description, said),
        tuple(part.note for part in parts),
        is_passive,
    )


def relations_in(part: Part, me: str, types: Sequence[RelationType]) -> Iterator[Found]:
    """The own relations that a clause states; `me` is the entity of who says it."""
    if part.silent or len(part.text) > _LONGEST:
        return
    text = part.text if _HAN.search(part.text) else ""
    tokens = [] if text else english.tokens_of(part.note)
    stems = english.stems_of(tokens)
    verbs = {it.verb for own in types for it in own.chinese if len(it.verb) > 1 and it.verb in text}
    for own in types:
        ways: list[tuple[english.Phrase | chinese.Phrase, Iterator[Pair]]] = [
            *(
                (it, chinese.pairs(text, it))
                for it in own.chinese
                if _is_whole(it.word, text, verbs)
            ),
            *((it, english.pairs(tokens, it)) for it in own.english if it.head in stems),
        ]
        for phrase, pairs in ways:
            ends = [it for it in dict.fromkeys(pairs) if it[0] != it[1] and not _has(it, verbs)]
            ends = [it for it in ends if not any(_says(end, phrase) for end in it)]
            for pair in ends:
                one, other = reversed(pair) if own.is_passive else pair
                source, target = (it.replace(ME, me) for it in (one, other))
                relation = Relation(source, own.name, target, _kind(one), _kind(other))
                yield Found(relation, own, phrase.is_weak)
            if ends:
                break


def _is_whole(word: str, text: str, verbs: Set[str]) -> bool:
    """Whether a text has a word that is not only part of a longer one: 送, but not of 配送."""
    return word in text and not any(word != verb and word in verb for verb in verbs)


def _has(ends: Pair, verbs: Set[str]) -> bool:
    """Whether an end is none: 负责维护集群 is said by 维护, not by 负责."""
    return any(verb in end for verb in verbs for end in ends)


def _says(end: str, phrase: english.Phrase | chinese.Phrase) -> bool:
    """Whether an end says the relation once more, and so is none: "Ajax and Bo plays" """
    if isinstance(phrase, chinese.Phrase):
        return len(phrase.verb) > 1 and phrase.verb in end
    return phrase.head in english.stems_of(english.tokens_of(end))


def _kind(end: str) -> str:
    """What somebody or something is, where its name tells."""
    if end == ME:
        return "person"
    code = "zh" if _HAN.search(end) else "en"
    word = re.sub(f"^{ME}(?:'s |的)", "", end)
    role = language(code).roles.get(word) if word != end else None
    is_person = (chinese if code == "zh" else english).is_person(end)
    return role.kind if role else "person" if is_person else "thing"
