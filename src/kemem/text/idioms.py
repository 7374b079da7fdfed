"""Idioms of questions, which only tell what kind of answer is wanted: "do for a living"."""

from kemem.text.lexicon import Lexicon, load

_JOB = (("EN_WORK_IDIOM", " job "), ("ZH_WORK_IDIOM", " 工作 "))
_BARE = ("EN_IDIOM", "ZH_IDIOM")


def without_idioms(text: str) -> str:
    """A question in plain words.  "What does Pip do for a living?" -> "What does Pip job?" """
    for name, job in _JOB:
        text = _lexicon().pattern(name).sub(job, text)
    for name in _BARE:
        text = _lexicon().pattern(name).sub(" ", text)
    return text


def without_telling(text: str) -> str:
    """A text without the words that say who told it.  你让我种什么来着 -> 种什么"""
    return _lexicon().pattern("ZH_TOLD").sub(" ", text)


def _lexicon() -> Lexicon:
    return load(__package__, "reading.rules")
