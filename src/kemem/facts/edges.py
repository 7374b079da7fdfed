"""Which relations are certain: a closed list of names, and objects that are whole typed words.

A wrong edge is worse than none: the sentence is kept and found anyway.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from kemem.facts.grammar import ME, Relation
from kemem.facts.language import language
from kemem.records.ontology import RELATION_TYPES

_WORD = r"[A-Z][\w&'.-]*"
# "Cuenca in Ecuador" -> Cuenca; "the Leeds office" is none
_SPAN = re.compile(
    rf"(?:the )?(?P<name>{_WORD}(?: (?:{_WORD}|(?:of|de|la|del|upon|and|am|the)(?= [A-Z])))*)"
    r"(?:,? (?:in|on|at|for|as|since|with|from|near|last|this|and|where|which|by|to|now)\b.*)?"
)
_FUNCTION = frozenset(
    re.findall(
        r"\w+",
        """a an the this that these those it its my our his her their your me him them us you i we
        he she they to for at in on with of from by as and or but not no so if how what when
        where which who why ever every all any some more most much many lot lots too very just
        only really new old other another same such own being having getting going doing is are
        was be been have has had do does up out off over both user after before into
        about than there here""",
    )
)
_BARE = re.compile(r"[A-Za-z][\w'+#-]*(?: [A-Za-z][\w'+#-]*){0,2}")
_CUT = re.compile(r" (?:on|at|in|for|with|since|from|as|because|by|to|every|so|when|but)\b.*")
_ADJECTIVE = re.compile(r"(?:only|sole|lead|new|newly|former|qualified|registered|certified) ")
_PARTICLE = re.compile("[我你您他她它这那的了着吗呢吧啊呀嘛么把被就都也很太没请跟给得]")
_FEELING = re.compile(
    r"\b(?:lik|lov|hat|dislik|enjoy|adore|prefer|stand\b|fan\b|fond|keen|into\b|crazy|obsess|passion"
    r"|favou?rite|detest|loath|hobb|interest|care for|sick of|scared|afraid|terrified)"
    r"|喜|爱|不[吃喝]|讨厌|受不了|恨|厌|反感|怕|痴迷|迷上|沉迷|偏好|兴趣|惯"
)


# What no Chinese name of a place, a workplace or a school is, or begins with.
_NO_PLACE = re.compile(
    "[爸妈爹娘父母儿女哥姐弟妹楼门得近后面写讲做学\\d]|^(?:家|老家|国外|海外|外地|本地)$"
)
_NO_FIRM = re.compile(
    "^[自一某这那全远]|一[家个所间]|^(?:公司|学校|大学|医院|单位|家)$|[念读讲说写]"
)
_NO_NOUN = re.compile(r"^[讲说念读写看听做\d]|\d")


def _is_chinese(text: str) -> bool:
    return bool(re.search("[\u4e00-\u9fff]", text))


def _proper(value: str, longest: int = 8, never: re.Pattern[str] | None = None) -> str | None:
    """The name that a slot begins with; in Chinese whole words without particles."""
    if _is_chinese(value):
        wrong = _PARTICLE.search(value) or (never and never.search(value))
        return None if wrong or len(value) > longest else value
    match = _SPAN.fullmatch(value)
    return match["name"].rstrip(".") if match and len(match["name"].split()) <= 5 else None


def _bare(value: str) -> str | None:
    """A noun without articles, clauses or further words."""
    if _is_chinese(value):
        wrong = _PARTICLE.search(value) or _NO_NOUN.search(value)
        return None if wrong or len(value) > 8 else value
    words = value.split()
    plain = _BARE.fullmatch(value) and not _FUNCTION.intersection(it.lower() for it in words)
    return value if plain else None


def _cut(value: str) -> str | None:
    return _bare(_CUT.sub("", value))


def _job(value: str) -> str | None:
    if _is_chinese(value):
        jobs = language("zh").patterns.pattern("JOB")
        return _bare(value) if re.search(f"{jobs.pattern}$", value) else None
    return _bare(_ADJECTIVE.sub("", value))


def _place(value: str) -> str | None:
    places = language("zh").patterns.pattern("PLACE")
    if places.fullmatch(value):  # 成都 has what is a particle elsewhere
        return value
    return _proper(value, 8, None if places.match(value) else _NO_PLACE)


def _firm(value: str) -> str | None:
    is_place = language("zh").patterns.pattern("PLACE").fullmatch(value)
    return None if is_place else _proper(value, 12, _NO_FIRM)


def _vehicle(value: str) -> str | None:
    match = re.search(rf"{_WORD}(?: [A-Z0-9][\w-]*)*", value)
    return match.group() if match else _proper(value)


def _any(value: str) -> str | None:
    return value


_BY_TYPE: Mapping[str, Callable[[str], str | None]] = {
    "place": _place,
    "organization": _firm,
    "person": partial(_proper, longest=6),
    "occupation": _job,
    "field": _cut,
    "thing": _bare,
    "product": _bare,
    "language": _bare,
    "vehicle": _vehicle,
}
# What is only owned, used or visited is no relation of the closed list.
_OPEN = frozenset({"owns"})


def certain(relation: Relation, said: str) -> Relation | None:
    """The relation with its object in its shortest whole form; None where it is not certain.

    One of a user's own type is certain as it was read.
    """
    if relation.name not in RELATION_TYPES:
        return relation
    if relation.name in _OPEN or "姓" in said or relation.source.lower() in language("en").roles:
        return None
    if relation.target_type == "occupation" and _is_chinese(said) != _is_chinese(relation.target):
        return None
    if relation.name in ("likes", "dislikes") and not _FEELING.search(said):
        return None
    ends = {"source": relation.source, "target": relation.target}
    for side, kind in (("source", relation.source_type), ("target", relation.target_type)):
        if ME in ends[side] or "'s " in ends[side]:
            continue
        checked = _BY_TYPE.get(kind, _any)(ends[side])
        if checked is None:
            return None
        ends[side] = checked
    return replace(relation, **ends)
