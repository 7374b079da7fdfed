"""What statements show by their form, and which kinds of questions they answer."""

from functools import lru_cache

from kemem.facts.losses import language_code, size, words_of
from kemem.facts.sentences import without_times
from kemem.text.lexicon import load

VALUES = ("NUMBER", "TIME", "MONEY")


@lru_cache(maxsize=4096)
def signs(text: str) -> frozenset[str]:
    """What the form of a text shows, by the names in `endings.rules`.  "咖啡戒了" -> OVER"""
    rules, language = load(__package__, "endings.rules"), language_code(text)
    own = [name for name in rules.lines if name.startswith(language)]
    return frozenset(name[3:] for name in own if rules.pattern(name).search(text.lower()))


@lru_cache(maxsize=4096)
def answers(text: str) -> frozenset[str]:
    """The kinds of questions that a statement answers.  "Mr Lin teaches tai chi" -> PERSON"""
    rules, code = load(__package__, "endings.rules"), language_code(text)
    told = rules.pattern("TOLD").search(text)  # "User's trainer at the gym is Pedro" is about whom
    for part in (told.group(), text) if told else (text,):
        kinds = {it for it in ("PERSON", "PLACE") if rules.pattern(f"{it}_{code}").search(part)}
        values = signs(part) & {*VALUES}
        if values:
            timed = "TIME" in values or rules.pattern("CLOCK").search(part)
            kinds.add("TIME" if timed else "AMOUNT")
        if kinds:
            break
    return frozenset(kinds)


def tells_other_kind(text: str, note: str) -> bool:
    """Whether a statement changes a value of another kind than a note tells.

    游泳改到周日了 changes when, and nothing that is told of its price, place or teacher.
    """
    rules = load(__package__, "endings.rules")
    text = rules.pattern("EFFECTIVE").sub("", text)  # since when it is 920 is not what changed
    to = rules.pattern(f"SHIFTED_{language_code(text)}").search(text)
    old = answers(rules.pattern("PERIOD").sub("", note))  # 每月3000 is no time
    kinds = answers(to["to"]) if to else frozenset[str]()
    return bool(kinds and old and not kinds & old)


def moves_another(text: str, note: str) -> bool:
    """Whether a statement tells of another day, and a note of one for something else.

    "The handover was put off to March" does not change to when the exam was.
    """
    if not all({"CHANGED", "TIME"} <= signs(it) for it in (text, note)):
        return False
    said, told = map(_moved, (text, note))
    return bool(said) and size(said & told) < 1


def _moved(text: str) -> frozenset[str]:
    """What another day is told for.  "The exam was pushed to July 11" -> exam"""
    changed = load(__package__, "endings.rules").pattern(f"{language_code(text)}_CHANGED")
    return words_of(changed.sub(" ", without_times(text)))
