"""What a session teaches: the problem, what was tried in vain, what worked."""

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kemem.add.prompt import list_schema, object_schema
from kemem.add.rules import Fact
from kemem.add.summarize import ask
from kemem.errors import Unavailable
from kemem.ports import Deps
from kemem.records import Message, Note
from kemem.text import summary
from kemem.text.language import count_tokens
from kemem.text.lexicon import load
from kemem.text.query import asks
from kemem.text.segment import STOPS

MIN_MESSAGES = 4  # fewer teach nothing
_SHOWN = 6_000  # tokens of a session that the model is shown
_LONGEST = 300  # tokens of an experience
_STEPS = 3  # sentences of each kind
_PROBLEMS = 3  # of a session, the newest
_KEYWORDS = 8
_SCHEMA = object_schema(
    experience={"type": ["string", "null"]}, keywords=list_schema({"type": "string"})
)
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.+#-]+[A-Za-z0-9_+#]")
_TITLES = {
    True: ("目标：", "无效：", "有效：", "结论："),
    False: ("Goal: ", "Did not work: ", "Worked: ", "Learned: "),
}

log = logging.getLogger("kemem")


async def extract_experience(
    messages: Sequence[Message], notes: Sequence[Note], deps: Deps
) -> Fact | None:
    """The lesson of a session, by the model or else by rules; None where it teaches nothing.

    It tells what was wanted, what was tried in vain, and what worked. What rules read of that, a
    model's lesson must tell as well.
    """
    if len(messages) < MIN_MESSAGES:
        return None
    chinese = summary.speaks_chinese(message.content for message in messages)
    problems = await asyncio.to_thread(_taught, messages, notes)
    if deps.llm is not None:
        try:
            talk = await asyncio.to_thread(_shown, messages, notes, chinese)
            answer = await ask("experience", talk, chinese, _SCHEMA, _LONGEST, deps)
            text, keywords = _read(answer)
            if text and read_verdict(text) and not _ended_well(messages):
                raise Unavailable("the LLM calls solved what the session calls failed")
            if not all(_tells(text, one) for one in problems):
                raise Unavailable("the LLM leaves out what was tried or what worked")
            return _experience(text, [it.id for it in messages], keywords) if text else None
        except Unavailable as error:
            log.warning("%s; the experience is extracted by rules", error.message)
    return await asyncio.to_thread(_experience_by_rules, problems, chinese)


def _tells(text: str, parts: Sequence[Sequence["_Sentence"]]) -> bool:
    """Whether a text names a problem, what was tried and what worked, and takes none for another.

    A name or a number of each part is enough: a model words things in its own way.
    """
    goal, failed, worked, _ = (_terms(*(one.text for one in part)) for part in parts)
    told = _terms(text)
    for sentence in summary.sentences(text):
        terms = _terms(sentence)
        if read_verdict(sentence) and len(terms & (failed - worked)) > len(terms & worked):
            return False
    return all(3 * len(part & told) >= len(part) for part in (goal, failed, worked))


def _terms(*texts: str) -> frozenset[str]:
    return frozenset(summary.rarity([summary.Sentence("", "", text) for text in texts]))


def _read(answer: Any) -> tuple[str, list[str]]:
    """Text and keywords of a model's answer; the text is empty where nothing was learned."""
    if not isinstance(answer, dict) or not isinstance(answer.get("experience"), str | None):
        raise Unavailable("the LLM answered without an experience")
    words = answer.get("keywords")
    listed = words if isinstance(words, list) else []
    keywords = [word.strip() for word in listed if isinstance(word, str)]
    return summary.one_line(answer.get("experience") or "", _LONGEST), keywords


def _shown(messages: Sequence[Message], notes: Sequence[Note], chinese: bool) -> str:
    """A session for the model: its newest half verbatim, what is older by its main sentences."""
    lines = [
        f"{summary.speaker(one, chinese)}: {summary.cut(one.content, _SHOWN // 8)}"
        for one in messages
    ]
    start, room = len(lines), _SHOWN // 2
    while start and (room := room - count_tokens(lines[start - 1])) >= 0:
        start -= 1
    older = summary.summarise(summary.sentences_of(messages[:start], chinese), _SHOWN // 4)
    bullets = summary.cut("\n".join(f"- {note.content}" for note in notes), _SHOWN // 4)
    return "\n".join(part for part in (bullets, older, *lines[start:]) if part)


class _Sentence(NamedTuple):
    text: str
    sources: tuple[str, ...]
    by_user: bool


@dataclass(slots=True)
class _Problem:
    """What was wanted, and what came of it, in the order of the talk."""

    goal: _Sentence
    failed: list[_Sentence] = field(default_factory=list)
    worked: list[_Sentence] = field(default_factory=list)
    lessons: list[_Sentence] = field(default_factory=list)

    def parts(self) -> list[list[_Sentence]]:
        """Sentences by title; none without something to learn."""
        told = [self.failed[-_STEPS:], self.worked[-_STEPS:], self.lessons[-_STEPS:]]
        # A complaint alone is no task that what was decided later belongs to.
        teaches = any(told[:2]) or (self.lessons and _matches("request", self.goal.text))
        return [[self.goal], *told] if teaches else []


def _matches(name: str, text: str) -> bool:
    return bool(load(__package__, "experience.rules").pattern(name).search(text))


def _told(one: _Sentence) -> bool | None:
    """The verdict of a sentence; what an assistant says of things in general is none."""
    if asks(one.text) or not (one.by_user or _matches("own_work", one.text)):
        return None
    return read_verdict(one.text)


def read_verdict(text: str) -> bool | None:
    """Whether a sentence says that something worked (True) or failed; None if it says neither.

    "X did not help, but Y fixed it" -> True, "It worked at first, then failed" -> False
    """
    rules = load(__package__, "experience.rules")
    failures = [match.start() for match in rules.pattern("failure").finditer(text)]
    rest = rules.pattern("failure").sub(lambda match: " " * len(match[0]), text)
    successes = [match.start() for match in rules.pattern("success").finditer(rest)]
    if successes and _matches("unsure", text[: successes[-1]]) and not failures:
        return None
    if failures or successes:
        return max(successes, default=-1) > max(failures, default=-1)
    return None


def _ended_well(messages: Sequence[Message]) -> bool:
    """Whether the last word on success is a good one, or nobody said any."""
    verdicts = (_told(one) for one in reversed(_sentences(messages)))
    return next((it for it in verdicts if it is not None), True)


def _sentences(messages: Sequence[Message]) -> list[_Sentence]:
    return [
        _Sentence(text, (one.id,), one.role == "user")
        for one in messages
        if one.role in ("user", "assistant")
        for text in summary.sentences(one.content)
    ]


def _problems(talk: Sequence[_Sentence]) -> Iterator[_Problem]:
    """The problems of a talk, each with what was tried; a new one begins when one is solved."""
    problem: _Problem | None = None
    for at, one in enumerate(talk):
        verdict = _told(one)
        relapse = _matches("relapse", one.text) or _matches("attempt", one.text)
        if _opens(one, verdict) and (problem is None or (problem.worked and not relapse)):
            if problem:
                yield problem
            problem = _Problem(one)
        elif problem and not asks(one.text):
            _note(problem, one, talk[at - 1])
    if problem:
        yield problem


def _opens(one: _Sentence, verdict: bool | None) -> bool:
    """Whether a sentence states something to be solved."""
    asked = verdict is None and _matches("request", one.text)  # "that did not help" asks for none
    states = asked or (not verdict and _matches("problem", one.text))
    return one.by_user and states and count_tokens(one.text) >= 6


def _note(problem: _Problem, one: _Sentence, before: _Sentence) -> None:
    """Add to a problem what a sentence says about it; `before` is the sentence before."""
    verdict, whole = _told(one), one
    refers = verdict is not None and _matches("anaphor", one.text)
    if refers and _suggests(before, verdict):
        text = summary.joined([before.text, one.text])
        whole = _Sentence(text, (*before.sources, *one.sources), one.by_user)
    if verdict is False:
        # "It failed an hour later" is about what had worked, if nothing else is named.
        if _matches("relapse", one.text) or (refers and whole is one):
            problem.failed += problem.worked
            problem.worked.clear()
        problem.failed.append(whole)
        problem.lessons = [it for it in problem.lessons if it.text not in whole.text]
    elif verdict:
        vain, good = _split(whole)
        problem.failed += vain
        # The cause that was found on the way is part of what worked.
        causes = [it for it in problem.lessons[-1:] if it.text not in good.text]
        problem.worked += [*causes, good]
        problem.lessons = problem.lessons[:-1]
    elif _matches("lesson" if one.by_user else "cause", one.text):
        problem.lessons.append(one)


def _suggests(before: _Sentence, verdict: bool | None) -> bool:
    """Whether a sentence names what the next one says worked or failed."""
    told = read_verdict(before.text)
    return (
        not asks(before.text) and not summary.acknowledges(before.text) and told in (None, verdict)
    )


def _split(one: _Sentence) -> tuple[list[_Sentence], _Sentence]:
    """What failed and what worked in one sentence.  "X did not help, but Y fixed it" """
    contrasts = load(__package__, "experience.rules").pattern("contrast").finditer(one.text)
    for match in contrasts:
        head, tail = one.text[: match.start()], one.text[match.end() :]
        if read_verdict(head) is False and read_verdict(tail):
            return [one._replace(text=head)], one._replace(text=tail)
    return [], one


def _taught(messages: Sequence[Message], notes: Sequence[Note]) -> list[list[list[_Sentence]]]:
    """The newest problems of a session that teach something, as sentences by title."""
    talk = _sentences(messages)
    texts = {one.text for one in talk}
    talk += [
        _Sentence(text, note.sources, True)
        for note in notes
        for text in summary.sentences(note.content)
        if text not in texts
    ]
    return [parts for one in _problems(talk) if (parts := one.parts())][-_PROBLEMS:]


def _experience_by_rules(
    problems: Sequence[Sequence[Sequence[_Sentence]]], chinese: bool
) -> Fact | None:
    """Each problem with what failed, what worked and what was learned."""
    if not problems:
        return None
    each = _LONGEST // len(problems) - 1
    text = "\n".join(_written(parts, chinese, each) for parts in problems)
    # Names and longer words in Latin letters; Chinese words are found by the text itself.
    keywords = [
        word
        for (goal,), *_ in problems
        for word in _LATIN_WORD.findall(goal.text)
        if not ((word.islower() and len(word) < 5) or _is_common(word))
    ]
    sources = [
        source for parts in problems for part in parts for one in part for source in one.sources
    ]
    return _experience(text, sources, keywords)


def _is_common(word: str) -> bool:
    return word.lower() in STOPS or _matches("request", word)


def _written(parts: Sequence[Sequence[_Sentence]], chinese: bool, most: int) -> str:
    """A problem with a line for each title; what worked has room before what failed."""
    lines = dict[int, str]()
    for at, share in ((0, most // 3), (2, most // 2), (3, most // 4), (1, most)):
        room = min(share, most - sum(count_tokens(line) + 1 for line in lines.values()))
        if parts[at]:
            text = summary.joined(list(dict.fromkeys(one.text for one in parts[at])))
            lines[at] = summary.cut(_TITLES[chinese][at] + text, room)
    return "\n".join(lines[at] for at in sorted(lines) if lines[at])


def _experience(text: str, sources: Sequence[str], keywords: Sequence[str]) -> Fact:
    words = tuple(dict.fromkeys(word[:50] for word in keywords if word))[:_KEYWORDS]
    unique, text = tuple(dict.fromkeys(sources)), summary.cut(text, _LONGEST)
    return Fact(text, unique, memory_type="experience", keywords=words, importance=0.6)
