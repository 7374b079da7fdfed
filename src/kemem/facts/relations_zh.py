"""Chinese relations of users' own types: the phrases that say them, and who is meant.

王大夫给豆豆看病 -> 给……看病: 李医生在给我妈看病 is (李医生, 我妈)
订单服务依赖库存服务 -> 依赖: 库存服务被订单服务依赖 is (订单服务, 库存服务)
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kemem.facts.grammar import ME
from kemem.facts.language import language
from kemem.facts.sentences import without_times
from kemem.text.lexicon import Lexicon, load
from kemem.text.segment import STOP_CHARACTERS

_LONGEST = 12  # characters of an end
_MARKERS = "给向对跟和与为替在"  # what may stand before an object
_NO_WORDS = STOP_CHARACTERS | {*_MARKERS, *"被由归把的是了我于"}

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Phrase:
    """One way to say a relation, by a verb or by a noun."""

    verb: str = ""
    marker: str = ""  # before the object: 给, 向
    behind: str = ""  # the verb: 给 of 汇报给, 于 of 效力于
    tail: str = ""  # behind the object: 旁边 of 坐在……旁边, 的 of 租……的房子
    noun: str = ""  # 租客 of 是……的租客
    is_cleft: bool = False  # only known from 是……在治
    is_guess: bool = False  # by the form of one example, which nothing else confirms

    @property
    def word(self) -> str:
        """What a clause must have to say it so."""
        return self.noun or self.verb

    @property
    def is_weak(self) -> bool:
        """Whether its verb may mean anything, or is part of many words: 负责, 带."""
        is_common = self.verb in _rules().tables["ZH_COMMON"]
        return self.is_guess or is_common or (len(self.verb) == 1 and self.behind != "于")


def phrases(description: str, examples: Sequence[str]) -> tuple[Phrase, ...]:
    """How the examples of a type say a relation."""
    learned = []
    for text in examples:
        others = " ".join([description, *(it for it in examples if it != text)])
        bare = re.sub(r"\s", "", without_times(text))
        learned.append(_of_example(_without_adverbs(bare), others))
    own = dict.fromkeys(it for it in (*learned, *_of_description(description)) if it)
    # 和……签约 before 签约: 我和青山签约 has one source.
    return tuple(sorted(own, key=lambda it: not it.marker))


def pairs(text: str, phrase: Phrase) -> Iterator[Pair]:
    """Who does what a phrase says, or is what its noun says, and to whom."""
    bare = without_times(_rules().pattern("ZH_ASIDE").sub("", text)).strip()
    for pattern in _patterns(phrase):
        match = pattern.fullmatch(bare)
        said = match and bare[: match.start("verb")] + "。" + bare[match.end("verb") :]
        if match is None or _rules().pattern("ZH_NOT_NOW").search(said or ""):
            continue
        is_plain = replace(phrase, is_guess=False) == Phrase(phrase.verb)
        only_shaped = is_plain and len(phrase.verb) == 1
        sources, targets = (_ends(match[it], only_shaped) for it in ("source", "target"))
        yield from ((one, other) for one in sources for other in targets)
        if sources and targets:
            return


def is_person(name: str) -> bool:
    """Whether a name is somebody's by its form."""
    return re.fullmatch(f"{_titled()}|[小老阿][\u4e00-\u9fff]", name) is not None


def _rules() -> Lexicon:
    return load(__package__, "relations.rules")


@cache
def _any_of(table: str) -> str:
    return "|".join(sorted(_rules().tables[f"ZH_{table}"], key=len, reverse=True))


@cache
def _roles() -> str:
    return "|".join(sorted(language("zh").roles, key=len, reverse=True))


@cache
def _titled() -> str:
    surname = language("zh").patterns.lines["SURNAME"].text
    return f"(?:欧阳|{surname})(?:{_any_of('TITLES')})"


@cache
def _shaped() -> re.Pattern[str]:
    """What is an end by its form: the speaker and their kin, names, 豆豆."""
    kin = f"我们?(?:家?的?(?:{_roles()}))?"
    doubled = r"(?P<twin>[\u4e00-\u9fff])(?P=twin)"
    return re.compile(rf"{kin}|{_titled()}|[小老阿][\u4e00-\u9fff]|{doubled}|[A-Za-z][\w.-]*")


def _without_adverbs(text: str) -> str:
    """An example without adverbs, but for 在, which may also say where."""
    return re.sub(f"(?<!^)(?!在)(?:{_any_of('ADVERBS')})(?=.)", "", text)


# How phrases are learned.


def _of_example(text: str, others: str) -> Phrase | None:
    """The phrase of an example; None where its verb, or which end is the source, is not certain."""
    shared = _shared(text, others)
    if match := re.fullmatch("(.+?)(?:被|由|归)(.+)", text):
        word = _verb_in(match[2], shared)
        verb = match[2][match[2].find(word) :] if word else ""
        return Phrase(verb) if 1 < len(verb) < 4 else None
    if match := re.fullmatch("(.+?)是(.+?)在(.{1,3})", text):
        return Phrase(match[3], is_cleft=True)
    if match := re.fullmatch("(.+?)(?<!的)是(.+?)的(?P<noun>.{2,4})", text):
        return Phrase(noun=match["noun"])
    if match := re.fullmatch("(.+?)[和跟与](.+?)是(?P<noun>.{2,4})", text):
        return Phrase(noun=match["noun"], marker="和")
    if match := re.fullmatch("(.+?)把.+?(?P<verb>.)给(.+)", text):
        return Phrase(match["verb"], marker="把", behind="给")
    return _with_behind(text, others, shared) or _with_marker(text, others, shared)


def _of_description(description: str) -> Iterator[Phrase]:
    """某人对某种食材过敏 -> 对……过敏; 企业赞助球队 -> 赞助"""
    for clause in re.split(r"[^\u4e00-\u9fff]+", _without_adverbs(description)):
        if match := re.search("([给向对跟和与为替])(?:另一|某)[个家种支位]?.{0,3}?(..)$", clause):
            yield Phrase(match[2], match[1])
            continue
        for match in re.finditer(f"(?<=.)(..)(?={_any_of('NOUNS')}|一[家栋个])", clause):
            yield from [] if _no_verb().search(match[1]) else [Phrase(match[1])]


def _shared(text: str, others: str) -> list[str]:
    """The words that a text shares with others and that are no nouns of it, longest first."""
    words, start = set[str](), 0
    while start < len(text):
        end = start
        while end < len(text) and text[start : end + 1] in others:
            end += 1
        words |= {*_no_verb().split(text[start:end])}
        start = max(end, start + 1)
    own = [it for it in words if it and text.count(it) == 1 and not it.isascii()]
    return sorted(own, key=lambda it: (-len(it), text.index(it)))


@cache
def _no_verb() -> re.Pattern[str]:
    """What divides a text into what can be verbs: nouns, roles and particles."""
    nouns = "|".join((_any_of("NOUNS"), _any_of("TITLES"), _roles()))
    return re.compile(f"{nouns}|一[家个位名只条台]|[{''.join(sorted(_NO_WORDS))}]")


def _with_behind(text: str, others: str, shared: Sequence[str]) -> Phrase | None:
    """汇报给技术总监, 效力于东城俱乐部, 住在吴奶奶隔壁"""
    for word in (*map(re.escape, shared), "..(?=于)"):
        match = re.search(f"(?<=.)({word})([给于在到])了?(.{{2,}})", text)
        if match:
            return Phrase(match[1], behind=match[2], tail=_tail(match[3], others))
    first = _shaped().match(text)
    match = re.fullmatch("(.)([给在])了?(.+)", text[first.end() :] if first else "")
    if match is None or _shaped().match(match[3]) is None:
        return None
    return Phrase(match[1], behind=match[2], tail=_tail(match[3], others))


def _tail(text: str, others: str) -> str:
    """What follows an object: 隔壁 of 吴奶奶隔壁, by what others say, too, or by a known form."""
    ends = (text[at:] for at in range(1, len(text) - 1))
    known = next((it for it in ends if it in others and not _no_verb().fullmatch(it)), "")
    end = _shaped().match(text)
    return known or (text[end.end() :] if end else "")


def _with_marker(text: str, others: str, shared: Sequence[str]) -> Phrase | None:
    """王大夫给豆豆看病; 跟着陈老师学 does not tell who is the source"""
    at = next((at for at, it in enumerate(text) if at and it in _MARKERS), 0)
    if not at:
        return _plain(text, others, shared)
    verb = "" if text.startswith("跟着", at) else _verb_in(text[at + 1 :], shared)
    is_vague = len(verb) == 1 and verb not in shared and text[at] in "跟和与在"
    return Phrase(verb, text[at]) if verb and not is_vague else None


def _verb_in(text: str, shared: Sequence[str]) -> str:
    """The verb behind an object: what others say, too, else what follows a name or a role."""
    if long := next((it for it in shared if len(it) > 1 and text.find(it) > 0), ""):
        return long
    group = re.match(f".{{1,6}}?(?:{_any_of('GROUPS')})", text)
    if (match := _shaped().match(text) or group) and (rest := text[match.end() :]):
        known = next((it for it in shared if rest.startswith(it)), "")
        return known or (rest if len(rest) == 2 else rest[0].strip("一"))
    return next((it for it in shared if text.find(it) > 0), "")


def _plain(text: str, others: str, shared: Sequence[str]) -> Phrase | None:
    """老周带小陈, 登录改造卡住了支付上线, 我租的是刘阿姨的房子"""
    first = _shaped().match(text)
    after = text[first.end() :] if first else ""
    for word in shared:
        inside = 0 < text.find(word) < len(text) - len(word)
        if inside and (len(word) > 1 or after.startswith(word)):
            of = re.search(f"{re.escape(word)}.+(的.{{1,4}})$", text)
            return Phrase(word, tail="的" if of and of[1] in others else "")
    match = re.fullmatch(".{2,}(..)了.{2,}", text)
    return Phrase(match[1]) if match else _guessed(text)


def _guessed(text: str) -> Phrase | None:
    """A verb by its place: 老周|指导|小林, 结算服务|依赖|账本服务, 前端|依赖|网关"""
    named = _shaped().match(text)
    again = re.match(f".*?(?P<noun>{_any_of('NOUNS')})(?=...+(?P=noun)$)", text)
    start = named.end() if named else again.end() if again else 2 if len(text) == 6 else 0
    long = 1 if named and _shaped().fullmatch(text[start + 1 :]) else 2  # 老周|带|小林
    verb, target = text[start : start + long], text[start + long :]
    if not start or len(target) < 2 or _no_verb().search(verb):
        return None
    return Phrase(verb, is_guess=True)


# How clauses are read.


@cache
def _patterns(phrase: Phrase) -> tuple[re.Pattern[str], ...]:
    """What a clause looks like that says a phrase; its verb or noun is the group "verb"."""
    source, target = "(?P<source>.+?)", "(?P<target>.+?)"
    verb = f"(?P<verb>{re.escape(phrase.word)})"
    of = "的.{1,5}" if phrase.tail == "的" else re.escape(phrase.tail)
    if phrase.noun and phrase.marker:
        most = "(?:最[\u4e00-\u9fff]的|的)"
        made = [f"{source}[和跟与]{target}是{verb}", f"{source}{most}{verb}.{{0,2}}是{target}"]
    elif phrase.noun:
        made = [
            f"{source}是{target}的.{{0,4}}{verb}",
            f"{target}的.{{0,3}}{verb}.{{0,2}}是{source}",
        ]
    elif phrase.marker == "把":
        made = [f"{source}把.{{1,8}}?{verb}给了?{target}"]
    elif phrase.marker:
        marker = "[跟和与]" if phrase.marker in "跟和与" else phrase.marker
        made = [f"{source}{marker}{target}{verb}.{{0,5}}"]  # 供货十年了
    elif phrase.is_cleft:
        made = [f"{target}是{source}{verb}[了着的]?"]
    else:
        made = [f"{source}{verb}{phrase.behind}(?:了|着|的是)?{target}{of}"]
        if len(phrase.verb) > 1 and not phrase.behind and not of:
            made += [f"{target}[被由归]{source}{verb}[了着]?", f"{target}是{source}{verb}[了着的]?"]
    return tuple(map(re.compile, reversed(made)))


# Who or what is meant.


@cache
def _around() -> re.Pattern[str]:
    """Adverbs before and behind an end, and 这个客户, which says again what it is."""
    adverbs = f"(?:{_any_of('ADVERBS')}|{_any_of('HELPING')}|[ ])++"
    return re.compile(f"^{adverbs}|{adverbs}$|这[个家位].{{1,3}}$")


def _ends(text: str, only_shaped: bool = False) -> list[str]:
    """What a noun phrase means; nothing where it is none.  小艾和小诺 -> 小艾, 小诺"""
    text = _around().sub("", text).strip("、 ")
    parts = [it.strip() for it in re.split("[和跟与、]", text)]
    if len(parts) > 1 and all(len(it) > 1 or it == "我" for it in parts):
        each = [_ends(it, only_shaped) for it in parts]
        return [it for some in each for it in some] if all(each) else []
    if match := re.search("叫(.{1,6})的", text):
        text = match[1]
    end = _end(re.sub("^一[家个位名只条台间支]", "", text))
    is_sure = not only_shaped or end.startswith(ME) or _shaped().fullmatch(end)
    return [end] if end and is_sure else []


def _end(text: str) -> str:
    latin = re.match(r"[A-Za-z][\w.-]*(?: [A-Za-z\d][\w.-]*)*", text)
    if latin and re.fullmatch(" .{0,5}[了年月周天]|", text[latin.end() :]):  # OPS-9 两周了
        return latin.group()
    if re.fullmatch("(?:我|咱)们?|本人|用户", text):
        return ME
    own = re.match("(?:(?:我|咱)(?P<several>们)?家?|用户(?=的))(?P<of>的)?", text)
    rest = text[own.end() :] if own else text
    named = re.fullmatch(f".{{2,}}?的?(?P<name>{_titled()}|[小老阿][\u4e00-\u9fff])", rest)
    if named:
        return named["name"]
    role = re.match(f"(?:{_roles()})(?P<name>(?!的|{_roles()})[^的]{{2,4}}$)?", rest)
    if own and role and role["name"] and not re.search(_any_of("NO_END"), rest):
        return role["name"]
    if (len(rest) < 2 and not (own and role)) or rest.endswith("的"):
        return ""
    if len(rest) > _LONGEST or "我" in rest or re.search(_any_of("NO_END"), rest):
        return ""
    if own and not (own["several"] or own["of"] or role or len(rest) == 2):  # 我做演讲
        return ""
    return f"{ME}的{rest}" if own else rest
