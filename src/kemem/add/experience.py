"""What is worth keeping when a session ends: what was wanted, what was tried, how it ended."""

import asyncio
import logging
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from kemem.add.facts import Fact
from kemem.errors import Unavailable
from kemem.ports import Deps, Schema
from kemem.records import Message, Note
from kemem.text.language import count_tokens
from kemem.text.marks import asks
from kemem.text.summary import cut, sentences, sentences_of, speaker, speaks_chinese, summarise

FEWEST = 4  # messages; fewer teach nothing
IMPORTANCE = 0.6
_SHOWN = 6_000  # tokens of a session that the model is shown
_LONGEST = 300  # tokens of an experience
_STEPS = 4
_KEYWORDS = 8

_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "experience": {"type": ["string", "null"]},
        "keywords": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["experience", "keywords"],
    "additionalProperties": False,
}
_REQUEST = re.compile(
    r"帮我|帮忙|请|怎么|如何|为什么|想(?:要|让|把|做|用|学|知道|实现)|需要|能不能|可不可以|有没有办法|报错|出错|"
    r"\b(?:help|please|how (?:do|can|to|should)|why (?:is|does|do)|i need|i want|"
    r"i'd like|i would like|can you|could you|is there a way|trying to|error)\b",
    re.IGNORECASE,
)
_LESSON = re.compile(
    r"决定|记住|下次|以后|原因是|原来是|改成|改为|改用|换成|"
    r"\b(?:decid\w+|remember|next time|from now on|turn(?:s|ed) out|switch\w* to|"
    r"the (?:cause|reason|problem) (?:is|was))\b",
    re.IGNORECASE,
)
_ATTEMPT = re.compile(  # tells something only beside a lesson or an outcome
    r"试了|试过|尝试|发现|换了|不要|别再|必须|应该先|"
    r"\b(?:tried|found|instead|because of|don't|do not|never|always|must)\b",
    re.IGNORECASE,
)
_OUTCOME = re.compile(
    r"解决了|搞定|成功|失败|可以了|[修弄搞调改]好了|跑通|通过了|完成了|没用|不行|最后|最终|"
    r"\b(?:solved|fixed|works? now|worked|succe(?:ed|ss)\w*|failed|"
    r"did(?: not|n't) (?:work|help)|done|finished|passes|passed|resolved|in the end|finally)\b",
    re.IGNORECASE,
)
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.+#-]+[A-Za-z0-9_+#]")

log = logging.getLogger("kemem")


class _Spoken(NamedTuple):
    text: str
    sources: tuple[str, ...]
    by_user: bool


async def extract_experience(
    messages: Sequence[Message], notes: Sequence[Note], deps: Deps
) -> Fact | None:
    """The lesson of a session, by the model or else by rules; None where it teaches nothing."""
    if len(messages) < FEWEST:
        return None
    chinese = speaks_chinese(message.content for message in messages)
    if deps.llm is None:
        return await asyncio.to_thread(_by_rules, messages, notes, chinese)
    try:
        return await _by_model(messages, notes, chinese, deps)
    except Unavailable as error:
        log.warning("%s; the experience is extracted by rules", error.message)
        return await asyncio.to_thread(_by_rules, messages, notes, chinese)


async def _by_model(
    messages: Sequence[Message], notes: Sequence[Note], chinese: bool, deps: Deps
) -> Fact | None:
    prompt = files(__package__) / f"experience_{'zh' if chinese else 'en'}.md"
    shown = await asyncio.to_thread(_shown, messages, notes, chinese)
    talk = shown.replace("</talk", "< /talk")  # data cannot end itself
    answer = await deps.ask(
        [
            {"role": "system", "content": prompt.read_text("utf-8")},
            {"role": "user", "content": f"<talk>\n{talk}\n</talk>"},
        ],
        _SCHEMA,
    )
    if not isinstance(answer, dict) or not isinstance(answer.get("experience"), str | None):
        raise Unavailable("the LLM answered without an experience")
    text = (answer.get("experience") or "").strip()
    named = answer.get("keywords")
    words = (
        [word.strip() for word in named if isinstance(word, str)] if isinstance(named, list) else []
    )
    return _fact(text, [message.id for message in messages], words) if text else None


def _shown(messages: Sequence[Message], notes: Sequence[Note], chinese: bool) -> str:
    """A session for the model: its newest half verbatim, what is older by its main sentences."""
    lines = [f"{speaker(one, chinese)}: {cut(one.content, _SHOWN // 8)}" for one in messages]
    start, room = len(lines), _SHOWN // 2
    while start and (room := room - count_tokens(lines[start - 1])) >= 0:
        start -= 1
    older = summarise(sentences_of(messages[:start], chinese), _SHOWN // 4) if start else ""
    noted = cut("\n".join(f"- {note.content}" for note in notes), _SHOWN // 4)
    return "\n".join(part for part in (noted, older, *lines[start:]) if part)


def _by_rules(messages: Sequence[Message], notes: Sequence[Note], chinese: bool) -> Fact | None:
    spoken = _spoken(messages, notes)
    goal = next((one for one in spoken if one.by_user and _is_request(one.text)), None)
    if goal is None:
        return None
    later = [one for one in spoken[spoken.index(goal) + 1 :] if not asks(one.text)]
    outcome = next((one for one in reversed(later) if _OUTCOME.search(one.text)), None)
    lessons = [one for one in later if one is not outcome and _LESSON.search(one.text)]
    if outcome is None and not lessons:
        return None
    tried = [one for one in later if one is not outcome and _ATTEMPT.search(one.text)]
    taught = set(lessons)
    ranked = sorted(
        dict.fromkeys(lessons + tried), key=lambda one: (one not in taught, not one.by_user)
    )
    steps = sorted(ranked[:_STEPS], key=later.index)
    titles = ("目标：", "过程：", "结果：") if chinese else ("Goal: ", "Steps: ", "Outcome: ")
    sections = zip(titles, ([goal], steps, [outcome] if outcome else []), strict=True)
    joint = "" if chinese else " "
    text = "\n".join(
        title + joint.join(one.text for one in some) for title, some in sections if some
    )
    used = [goal, *steps, *([outcome] if outcome else [])]
    return _fact(text, [id_ for one in used for id_ in one.sources], _keywords(goal.text))


def _spoken(messages: Sequence[Message], notes: Sequence[Note]) -> list[_Spoken]:
    """Sentences of the talk in order, then those of the session's notes."""
    talk = [
        _Spoken(text, (one.id,), one.role == "user")
        for one in messages
        if one.role in ("user", "assistant")
        for text in sentences(one.content)
    ]
    known = {one.text for one in talk}
    noted = [
        _Spoken(text, note.sources, False) for note in notes for text in sentences(note.content)
    ]
    return talk + [one for one in noted if one.text not in known]


def _is_request(text: str) -> bool:
    return count_tokens(text) >= 5 and _REQUEST.search(text) is not None


def _keywords(text: str) -> list[str]:
    """Names and longer words in Latin letters; Chinese words are found by the text itself."""
    return [
        word
        for word in _LATIN_WORD.findall(text)
        if not ((word.islower() and len(word) < 5) or _REQUEST.search(word))
    ]


def _fact(text: str, sources: Sequence[str], keywords: Sequence[str]) -> Fact:
    words = tuple(dict.fromkeys(word[:50] for word in keywords if word))[:_KEYWORDS]
    return Fact(
        text=cut(text, _LONGEST),
        sources=tuple(dict.fromkeys(sources)),
        memory_type="experience",
        keywords=words,
        importance=IMPORTANCE,
    )
