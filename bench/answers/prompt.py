"""The prompt that every system's evidence goes into."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.answers.questions import Question

Messages = list[dict[str, str]]

LONGEST = 300  # characters of one line of evidence; longer texts are cut
_STEP = 40  # characters between the places where an excerpt may begin
_INSTRUCTIONS = {
    "en": (
        "Answer the question in as few words as possible, without an explanation. "
        "If earlier conversations do not say it, answer: I don't know. Today is {day}."
    ),
    "zh": (
        "用尽量少的字回答问题，不要解释。如果以前的对话没有说过，就回答：不知道。今天是 {day}。"
    ),
}
_QUESTION = {
    "en": 'Earlier conversations ("user" is the one who asks):\n{notes}\n\nQuestion: {question}',
    "zh": "以前的对话（user 就是提问的人）：\n{notes}\n\n问题：{question}",
}
_NONE = {"en": "(none)", "zh": "（无）"}
_TERM = re.compile(r"[a-z0-9]{3,}|[\u3400-\u9fff]{2}")


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of evidence: when it was said, by whom, and what; a note has no speaker."""

    at: str
    speaker: str
    text: str

    def __str__(self) -> str:
        speaker = f"{self.speaker}: " if self.speaker else ""
        return f"[{self.at[:10]}] {speaker}{' '.join(self.text.split())}"


def instructions(question: Question) -> str:
    """How to answer, and when."""
    return _INSTRUCTIONS[question.language].format(day=question.now[:10])


def prompt(question: Question, evidence: Sequence[Line]) -> Messages:
    """What a model is sent."""
    notes = "\n".join(map(str, evidence)) or _NONE[question.language]
    asked = _QUESTION[question.language].format(notes=notes, question=question.text)
    return [
        {"role": "system", "content": instructions(question)},
        {"role": "user", "content": asked},
    ]


def excerpt(text: str, question: str) -> str:
    """A text, or of a long one the part that has most words of the question."""
    text = " ".join(text.split())
    if len(text) <= LONGEST:
        return text
    terms = {*_TERM.findall(question.casefold())}

    def worth(start: int) -> int:
        part = text[start : start + LONGEST].casefold()
        return sum(it in part for it in terms)

    start = max(range(0, len(text) - LONGEST + _STEP, _STEP), key=worth)
    part = text[start : start + LONGEST]
    return f"{'… ' if start else ''}{part}{' …' if start + LONGEST < len(text) else ''}"
