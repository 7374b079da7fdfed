"""Keywords of a question without a model: what it names, does and is about, and when."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Literal

from kemem.facts.chinese_rules import PLACE, SELF
from kemem.facts.english_rules import FIRST_NAMES
from kemem.facts.roles import CHINESE
from kemem.text.patterns import any_word, words
from kemem.text.segment import STOP_CHARACTERS, STOP_WORDS, is_cjk, search_text, stem
from kemem.text.when import time_phrases

Kind = Literal["entity", "action", "concept", "time"]
_Spot = tuple[int, str, Kind]  # where a word stands
_READ = 2_000  # characters; what a long question is about stands at its beginning
_WORTH: dict[Kind, float] = {"entity": 0.9, "concept": 0.7, "action": 0.6, "time": 0.5}
_IDLE = words("""
怎么 怎样 如何 多少 多久 时候 有时 东西 事情 一点 一起 一样 一定 也许 或者 帮忙 麻烦 告诉 记得 记住
知道 觉得 感觉 认为 提到 提过 讲过 聊过 聊到 问过 可以 是否 能否 不能 应该 需要 希望 打算 准备 然后
因为 所以 如果 关于 按照 根据 大家 自己 别人 样子 情况 问题 内容 部分 方面 已经 正在 一直 总是 经常
其实 到底 好像 大概 可能 非常 特别 比较 真的 确实 现在 目前 时间 通过 使用 进行 继续 上面 下面 里面
等等 谢谢 曾经 其中 其他 另外 所有 全部 任何 相关 有关 具体 当时 后来
""")
_DONE = words("""
配置 部署 删除 安装 更新 升级 修改 修复 调试 测试 运行 启动 停止 重启 备份 恢复 迁移 导出 导入 上传
下载 上线 下线 发布 提交 合并 优化 设计 开发 实现 翻译 总结 整理 分析 统计 计算 查询 搜索 检查 讨论
沟通 开会 学习 预约 预订 购买 付款 支付 退款 发送 回复 联系 通知 邀请 见面 旅游 旅行 出差 搬家 装修
结婚 毕业 辞职 创业 投资 运动 跑步 游泳 健身 开车 做饭 吃饭 睡觉 看病 住院 过敏 喜欢 讨厌 推荐 选择
决定 取消 改成 换成 切换 创建 添加 设置 调整 连接 登录 注册 解决 处理 报名 参加 安排 提醒 记录 保存
打开 关闭 负责 合作 申请 报销 维修 工作 上班 下班 上课 认识 请假 吃 喝 买 住 学 写 读 看 玩 养
""")
_THINGS = words("""
数据库 数据 服务器 服务 系统 项目 计划 方案 任务 文档 文件 代码 接口 端口 版本 环境 密码 用户 用户名
权限 邮箱 邮件 电话 手机号 地址 名字 生日 机票 酒店 餐厅 医院 会议 会议室 会计 报告 周报 周会 周期
合同 预算 价格 订单 客户 产品 模型 参数 结果 建议 日期 地点 论文 考试 面试 小说 程序 小程序 高性能
高可用 高并发 高铁 方法 方式 方向 来源 个人 对象 过程 机会 车 书 药 茶 酒 肉 钱 病
""")
_PLAIN = STOP_WORDS | words("""
tell told say said says mention talk talking know knew remember recall think thought want wanted
need let get got getting give gave given make made use used using go going went thing things stuff
something anything everything nothing one ones two three someone anyone please help show find look
see also again ever never always often usually sometimes really actually exactly maybe much many
more most other another same such lot kind way ok okay oh hi hello hey thanks thank yes no not now
here only even still already well good may might must while since until because after etc off out
over under between through without back down each every all both few own ask asked put keep take
took come came try happened time times according regarding don didn doesn isn won
""")
_DOING = words("""
deploy configure install update upgrade fix debug test build built run ran start stop restart
restore migrate export import upload download release publish commit merge refactor design develop
implement write wrote read translate summarize organize analyze calculate query search check review
discuss meet met call email send sent reply contact invite visit travel fly flew move rent buy
bought sell sold book cancel pay paid return learn study practice teach train eat drink cook sleep
swim hike play watch listen like love hate prefer recommend choose chose decide change switch create
add remove delete connect solve join attend remind save open close sign apply live work marry
""")
_STEMS = frozenset(map(stem, _DOING))
_KINDS: dict[str, Kind | None] = dict.fromkeys([*CHINESE, *_THINGS], "concept")
_KINDS |= dict.fromkeys(_DONE, "action")
_KINDS |= dict.fromkeys(_IDLE)
_CUTS = "".join(STOP_CHARACTERS | set("说给把让还再很没不别请帮跟谁哪什着过到对叫为里最更但些几"))
_LIGHT = "用做要想能会"  # before a verb or a thing: 用咖啡机, 想买
_BODIES = "大学|学院|公司|集团|银行|医院|研究[院所]|实验室|[餐饭]厅|机场|[车铁]站|公园|[物书啡]馆"
_FIRMS = any_word("微信 支付宝 淘宝 京东 抖音 钉钉 飞书 腾讯 阿里云 百度 华为 小米 谷歌 特斯拉")
_NUMBERED = any_word("端口 版本 编号 工号 订单 单号 房间 (?i:port|version|room|flight|ticket)")
_UNITS = r"%|[万亿]?美?元|[万亿块米岁人台次页]|公?斤|公里|小时|分钟|(?:[GMKT]i?B|ms|k[gm]|people)\b"
_LETTER = "A-Za-z0-9_\u00c0-\u1fff\uff10-\uff19\uff21-\uff3a\uff41-\uff5a"
_NOUN = re.compile(r"(?:tion|sion|ment|ness|ity|ance|ence|er|or|ist|al)s?$")
_THE = re.compile(r"\b(?:the|an?|my|your|our|his|her|their|its|this|that|which|what)\s+$", re.I)
_ODD = re.compile(r"\d.|.\d|[@_+#]|\w[./:]\w|[a-z][A-Z]|^[A-Z]{2,}s?$")  # no plain word
_STARTS = re.compile(r"(?:^|[.!?:;。！？：；\n])[\s\"'“‘(（]*$")
_TIMES = re.compile(r"上一?次|上回|之前|以前|\b(?:last time|previously|earlier|before)\b", re.I)
_LEAD = re.compile(r"(?:(?:on|in|at|during|over|for|within|the)\s+)+(?=\S)", re.I)
_SPEAKER = re.compile(r"^[^\S\n]*(?:用户|助手|系统|user|assistant|system)\s*[:：]", re.I | re.M)
_POINTING = re.compile(r"[那这它他她]|\b(?:that|this|it|th[eo]se|them|one|s?he|they)\b", re.I)


@dataclass(frozen=True, slots=True)
class Keyword:
    """A word to search for, and how much it tells.  Keyword("数据库", 0.7, "concept")"""

    text: str
    weight: float  # 0-1
    kind: Kind


@cache
def _tokens() -> re.Pattern[str]:
    """A Chinese word that the lexicon lacks (`run`) stands whole between words that it has."""
    known = any_word(" ".join(sorted((it for it in _KINDS if it[1:]), key=len, reverse=True)))
    cut = rf"[{_CUTS}]|(?<=[一两几哪这那每])[部本只件张家位种款辆座场份篇首间名套]"
    han = rf"(?:(?!{known}|{cut})[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3])"
    idle = any_word(" ".join([*_PLAIN, *_DOING]))
    cap = rf"[A-Z][{_LETTER}-]+"
    body = rf"(?:{PLACE}{han}{{0,6}}?|{han}{{2,8}}?)(?:{_BODIES})|{han}{{1,6}}(?:·{han}{{1,6}})+"
    after = rf"(?=\Z|[^\u3400-\u9fff]|[{_CUTS}吃喝买住学写]|{known})"
    person = rf"(?!{cut}|[小老阿]?{known}|[A-Z]|.[我你他这那的了是吃喝买卖看听]){SELF}{after}"
    return re.compile(
        r"(?P<entity>“[^”\n\0]{1,40}”|「[^」\n\0]{1,40}」|《[^》\n\0]{1,40}》|[\"`][^\"`\n\0]{1,40}[\"`]"
        rf"|{_NUMBERED}号?\s?#?[A-Z]{{0,3}}\d[{_LETTER}.-]*|[$¥￥€£]\s?\d[\d,.]{{0,20}}+[万亿kKmM]?"
        rf"|\d[\d,]{{0,20}}+(?:\.\d{{1,9}}+)?\s?(?:{_UNITS})|https?://[^\s，。；、）)\"'<>]+"
        rf"|[{_LETTER}.+-]{{1,64}}+@[{_LETTER}-]+(?:\.[{_LETTER}-]+)+|{body}|{PLACE}|{_FIRMS}|{person}"
        rf"|(?:[DM]r|Mrs|Ms|Prof)\. {cap}|(?!(?i:{idle})\b){cap}(?: (?:of (?:the )?)?{cap}){{1,3}})"
        rf"|(?P<known>{known})|(?P<run>{han}{{1,8}})"
        rf"|(?P<latin>\.?[~/]?[{_LETTER}]+(?:[./'’:-][{_LETTER}]+)*[+#]*)"
    )


def keywords(text: str, *, context: str = "", limit: int = 5) -> list[Keyword]:
    """What to search for, most telling first.  "上次说的那个方案" -> 方案 (concept), 上次 (time)"""
    around = _SPEAKER.sub("", context[-_READ:])
    found = _weighed(_spots(text), frozenset(_once(_spots(around))))
    telling = [word for word in found if word.kind != "time"]
    vague = len(telling) == 1 and telling[0].kind != "entity" and _POINTING.search(text)
    if vague or not telling:
        lines = [line for line in around.splitlines() if line.strip()][:-4:-1]  # the latest first
        known = {search_text(word.text) for word in found}
        for word in _weighed(_spots("\n".join(lines))):
            if word.kind != "time" and search_text(word.text) not in known:
                found.append(replace(word, weight=round(word.weight / 2, 3)))
    return sorted(found, key=lambda word: -word.weight)[: max(limit, 0)]


def expanded(text: str, found: Sequence[Keyword]) -> str:
    """What to search for.  "按照我之前的数据库配置来" -> "数据库 配置", then what it lacks"""
    said = [word for _, word, kind in _once(_spots(text)).values() if kind != "time"]
    own = f" {search_text(' '.join(said))} "
    more = [it.text for it in found if it.kind != "time" and f" {search_text(it.text)} " not in own]
    return " ".join(dict.fromkeys([*said, *more])) or text[:_READ].strip()


def _weighed(spots: Sequence[_Spot], near: frozenset[str] = frozenset()) -> list[Keyword]:
    counts = Counter(search_text(word) for _, word, _ in spots)
    found = []
    for at, (key, (_, word, kind)) in enumerate(_once(spots).items()):
        worth = _WORTH[kind] + 0.1 * (key in near) + 0.03 * min(counts[key] - 1, 3)
        found.append(Keyword(word, round(min(worth - 0.002 * min(at, 50), 1.0), 3), kind))
    return found


def _once(spots: Sequence[_Spot]) -> dict[str, _Spot]:
    """By search text, each once, and none that is part of a longer one of its kind."""
    first: dict[str, _Spot] = {}
    for spot in spots:
        first.setdefault(search_text(spot[1]), spot)
    whole = {k: "|".join(f" {key} " for key, it in first.items() if it[2] == k) for k in _WORTH}
    return {key: it for key, it in first.items() if key and whole[it[2]].count(f" {key} ") == 1}


def _spots(text: str) -> list[_Spot]:
    """The telling words of a text, in order."""
    said, last = text[:_READ], 0
    spans = [(it.start, it.end) for it in time_phrases(said, datetime(1970, 1, 1, tzinfo=UTC))]
    spans += [match.span() for match in _TIMES.finditer(said)]
    found = list[_Spot]()
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= last:
            found.append((start, _LEAD.sub("", said[start:end]), "time"))
            said, last = said[:start] + "\0" * (end - start) + said[end:], end
    return sorted([*found, *_words(said)])


def _words(said: str) -> Iterator[_Spot]:
    """All but the times."""
    for match in _tokens().finditer(said):
        at, word, kind = match.start(), match.group(), _KINDS.get(match.group())
        if match.lastgroup == "latin":
            word, kind = _latin(match)
        elif match.lastgroup == "entity":
            word, kind = word.strip('“”「」《》"` '), "entity"
        elif match.lastgroup == "run":
            if word[0] in _LIGHT and (word[2:] or word[1:] in _KINDS):
                at, word = at + 1, word[1:]
            word = word[:-1] if word[2:] and word[-1] in "要想发" else word
            if word[2:] and _KINDS.get(word[0]) == "action":  # a verb and its object
                yield at, word[0], "action"
                at, word = at + 1, word[1:]
            kind = _KINDS.get(word, "concept" if word[1:] else None)
        if kind and len(word) <= 80:  # longer is a paste
            yield at, word, kind


def _latin(match: re.Match[str]) -> tuple[str, Kind | None]:
    """A word in Latin letters; beside Chinese it is a name."""
    said, (at, end) = match.string, match.span()
    low = (word := re.sub(r"['’]s$", "", match.group())).lower()
    if not word[1:] or (_PLAIN.issuperset(re.split("['’/-]", low)) and word not in ("US", "IT")):
        return word, None
    if _ODD.search(word):
        return word, "entity"
    if stem(low) in _STEMS and (low.rstrip("s") in _DOING or not _NOUN.search(low)):
        return word, "concept" if _THE.search(said[max(0, at - 12) : at]) else "action"
    beside = any(map(is_cjk, said[max(0, at - 3) : end + 3]))
    inside = word[0].isupper() and not _STARTS.search(said[max(0, at - 6) : at])
    return word, "entity" if beside or inside or word in FIRST_NAMES else "concept"
