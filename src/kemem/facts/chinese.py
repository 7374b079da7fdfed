"""Chinese sentences read clause by clause: who is spoken of, and what is said of them."""

import re
from collections.abc import Iterator
from dataclasses import replace

from kemem.facts.chinese_rules import NAME, PLACE, SELF, chinese
from kemem.facts.dates import without_times
from kemem.facts.grammar import Clause, Statement, Subject, Talk, in_roles, named, read
from kemem.facts.sentences import Sentence
from kemem.text.patterns import any_word

_BORDER = re.compile(r"[，；：]|,(?!\d)|[;:](?!\d|//)")
_TOGETHER = re.compile("(?:它|他|她)?的?(?:名字)?(?:叫|名叫|名为)")  # goes with the clause before
# A name, and what follows it without a sign.  我叫小明住在北京 -> 我叫小明，住在北京
_NAMED = re.compile(
    rf"((?:我|本人)(?:(?:的?(?:全名|名字))?(?:叫做?|名叫|是叫)(?:{NAME}|[\u4e00-\u9fff]{{2,4}}?)"
    rf"|是{SELF}))"
    "(?=(?:[现正]?在|住|来自|是|今年|目前|喜欢|毕业|就读|从事|有)[^，])"
)
_SUPPOSED = re.compile("如果|假如|假设|要是|倘若|万一|若是|的话$|就好了|但愿|假装|想象")
_ASKS = re.compile(
    "[吗么]$|呢$|什么|怎么|怎样|为何|谁|哪[里儿个些家种]|多少|是否|几[点岁号]|是不是|有没有|能不能"
    "|会不会|可不可以|要不要|好不好|对不对|行不行|记不记得|还记得"
)
_ORDER = re.compile(
    "请|麻烦|帮|替我|给我|告诉我|写|翻译|解释|总结|推荐|列出|介绍|生成|画|讲|说说|看看|查|搜|把|让"
    "|别|不要|继续|停|再来|提醒我|用.{1,8}(?:回答|回复|写|翻译|解释)"
)
_STANDING = re.compile(
    "请?(?:以后|今后|默认|始终|永远|每次)(?:都|请|要|就)*(?:用|以|使用|不要|别|叫).{1,40}"
)
_OPENER = re.compile(
    r"(?:对了|哦|噢|嗯+|啊|呃|那个|其实|另外|还有|顺便说一下|顺便说|顺便|补充一下|请?你?记住|请?记一下"
    r"|请?记得|别忘了|话说|说实话|老实说|你好|您好|大家好|嗨|哈喽|而且|并且|但是|但|不过|然后|所以|同时|此外"
    r"|[你您]可以(?=叫|称呼)|虽然|告诉你|跟你说|是的|好的|没错|不是|没有|不客气|谢谢|哈哈+)[ ，,]*"
)
_FILLER = re.compile("[呵哈嘿嗯哦噢啊呀]*|好[的吧啊]*|真的|[对是]吧|拜托|行|可以")
_ATTACHED = re.compile("因为|由于|比如|例如|尤其|特别是|包括|主要")
_TRIVIAL = re.compile(
    "[也还就都早快已真现在的可能似乎经一直]*(?:觉得|认为|想|知道|明白|懂|理解|同意|猜|怀疑|希望|感觉|需要"
    "|看|听|发现|没|试|来|再|先|能|应该|不[清确懂明知记信想太会]|说|问|要|记|忘|很高兴|相信|打个|意思|问题|去"
    "|给|回|到|等|刚|马上|闲|有[空事点些]|几|会|累|困|饿|烦|忙|[好很太真]|心情|谢|该|尽量|担心|放"
    "|用不着|有.{0,4}(?:问题|疑问|想法|建议|要求))"
)
_MENTAL = re.compile("[还也就我]*(?:记得|听说|觉得|认为|知道|以为|看到|发现|猜|希望|相信|说|问)")
_VAGUE = re.compile("[这那它此他她]|你|您|一下|试试|看看|吧$")
_CONCRETE = re.compile(
    rf"[\d《]|[A-Za-z]{{2}}|{PLACE}|"
    "(?<!第)[一二两三四五六七八九十百千万]+[个只条台辆套家门岁年名位本场](?!人)"
)
_TELLING = re.compile(  # of things done, and of what somebody is
    "(?:在|正|一直|主要|开始|经常|也|还|已经|自己)*(?:是(?![^，]*[的么样]$|[很真太最不为因第说想])"
    "|做|写|学|研究|开发|负责|管理|卖|种|养|戴|穿|练|收集|画|设计|经营|参加|备考|装修|租|投资)"
    "[^，]{2}"
)
_LATELY = re.compile("最近|近来|近期|刚才|刚刚")
_PART = re.compile("端口|版本|IP|域名|地址|密码")  # of a thing that was named before
_ME = re.compile("[我咱俺]们|我(?!国)|本人|咱|俺")
_PRONOUNS = {"他们": "they", "她们": "they", "他": "he", "她": "she", "它": "it"}
_PRONOUN = re.compile("|".join(_PRONOUNS))
_FAMILY = re.compile(
    any_word("妈妈 爸爸 父母 爸妈 老婆 老公 妻子 丈夫 儿子 女儿 公司 团队 家人 女朋友 男朋友")
)
_UNSAID = {"user_preference", "residence", "health"}  # as answers often are: 不吃辣
_SELF = re.compile("(?<!自)我(?:们|(?!国))|[咱俺]们?|本人")


def chinese_statements(sentence: Sentence, talk: Talk) -> list[Statement]:
    """What a sentence states.  我叫李明，住在北京 -> 用户叫李明; 用户住在北京"""
    if _SUPPOSED.search(sentence.text):
        return []
    made: list[Statement] = []
    for clause in _clauses(sentence):
        if _STANDING.fullmatch(clause):
            found = [Statement(f"{talk.me.label}希望{_third(clause, talk)}", "user_preference")]
        elif _ORDER.match(clause) or re.search("[你您]", clause):
            continue
        else:
            found = _read(clause, talk, made[-1].about if made else None)
        if found:
            made += found
        elif made and not any(_openings(clause, talk)):
            made[-1] = _with(made[-1], clause, talk)
        for match in chinese().mine.finditer(clause):
            talk.heard(chinese().one_of(talk.me, match["role"]))
        talk.heard(found[-1].about if found else None)
    return made


def _clauses(sentence: Sentence) -> list[str]:
    """The clauses that tell something; a question that ends the sentence does not."""
    clauses: list[str] = []
    for part in _BORDER.split(_NAMED.sub(r"\1，", sentence.text)):
        said = part.strip()
        if clauses and _TOGETHER.match(said):
            clauses[-1] += f"，{said}"
        elif clauses and not without_times(clauses[-1]):
            clauses[-1] += said
        else:
            clauses.append(said)
    if _ordered(sentence.text):
        return []
    if sentence.asks:
        asked = clauses.pop()
        if not _ASKS.search(asked) and not re.search("[你您能可]", asked):
            return []
    opened = (_open(clause) for clause in clauses)
    return [it for it in opened if not _ASKS.search(it) and not _FILLER.fullmatch(it)]


def _ordered(said: str) -> bool:
    """An order with its material: 翻译成英文：我喜欢雨天"""
    order, colon, _ = said.replace(":", "：").partition("：")
    return bool(colon) and bool(_ORDER.match(order) or order.endswith(("说", "问", "道")))


def _open(clause: str) -> str:
    while match := _OPENER.match(clause):
        clause = clause[match.end() :]
    return clause


def _read(said: str, talk: Talk, last: Subject | None) -> list[Statement]:
    """The statements of a clause by the first reading that a rule knows."""
    bare = without_times(said)
    if last:
        bare, said = (re.sub("^其", "的", each) for each in (bare, said))
    if last and last.kind == "setting" and not _PART.match(bare):
        last = last.owner
    unsaid = [Clause(talk.me, "", f"@{bare}"), Clause(last or talk.me, "", bare)]
    for clause in [*_said(bare, talk), *unsaid, *_said(said, talk)]:
        if _MENTAL.match(clause.predicate) or (
            not clause.words and "我" in bare and clause.predicate[:1] != "@"
        ):
            continue
        found = read(clause, _text(said, clause, talk), chinese(), talk.me)
        sure = clause.words or last or clause.predicate[:1] == "@"
        if found and (sure or found[0].memory_type in _UNSAID):
            return found
    return _general(said, bare, talk, last)


def _said(said: str, talk: Talk) -> Iterator[Clause]:
    """The clause by its subject: the speaker, a pronoun, a name, or somebody in a role of these."""
    for subject, opening in _openings(said, talk):
        rest = said[len(opening) :]
        yield from in_roles(subject, opening, rest, talk, chinese())
        we = replace(subject, label=f"{subject.label}等人") if opening[1:] == "们" else subject
        yield Clause(we, opening, rest)
    if _FAMILY.match(said):
        yield from in_roles(talk.me, "", said, talk, chinese())


def _openings(said: str, talk: Talk) -> Iterator[tuple[Subject, str]]:
    if match := _ME.match(said):
        yield talk.me, match.group()
    elif match := _PRONOUN.match(said):
        if known := talk.meant(_PRONOUNS[match.group()]):
            yield known, match.group()
    else:
        found = dict.fromkeys(
            match.group() for each in chinese().names if (match := each.match(said))
        )
        yield from ((named(name), name) for name in found)


def _text(said: str, clause: Clause, talk: Talk) -> str:
    """The clause in the third person, with its subject in full."""
    if clause.predicate[:1] == "@":
        return _third(said, talk)
    before, found, after = said.partition(clause.words) if clause.words else ("", "", said)
    label = clause.subject.label if found or not clause.words else ""
    return _third(before, talk) + label + _third(after, talk)


def _third(text: str, talk: Talk) -> str:
    return _SELF.sub(talk.me.label, text)


def _with(statement: Statement, clause: str, talk: Talk) -> Statement:
    """A statement together with a clause that cannot stand alone."""
    if statement.memory_type != "general" and not _ATTACHED.match(clause):
        return statement
    return replace(statement, text=f"{statement.text}，{_third(clause, talk)}")


def _general(said: str, bare: str, talk: Talk, last: Subject | None) -> list[Statement]:
    """A statement that no rule knows, if it tells something of somebody."""
    timed = bare != _LATELY.sub("", said)
    unsaid = [Clause(last, "", bare)] if last and timed else []
    for clause in [*_said(bare, talk), *unsaid]:
        rest = clause.predicate
        named = clause.subject.entity == clause.subject.topic
        sure = not named or clause.subject.entity in {*talk.known, talk.me.entity}
        long = len(rest) >= (2 if timed else 4)
        telling = timed or _CONCRETE.search(rest) or _TELLING.match(rest)
        if sure and long and telling and not _TRIVIAL.match(rest) and not _VAGUE.search(rest):
            text, subject = _text(said, clause, talk), clause.subject
            return [Statement(text, "general", relations=subject.relations, about=subject)]
    return []
