"""What a correction puts right: the note that says the same of the same subject, but for a value.

"My dog is called Max", "Correction: my dog is called Moritz"; 我的狗叫旺财, 说错了，我的狗叫来福
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from kemem.facts.losses import language_code, words_of
from kemem.text.lexicon import load

_TOKEN = re.compile(r"[\w'’.@+-]+(?<![.])", re.ASCII)
_TOKEN_ZH = re.compile(r"[A-Za-z0-9_.@+-]+|[^\W_]")
_DATED = re.compile(r"\s*[(（][^()（）]*[)）]$")
_LONGEST = {"EN": 4, "ZH": 8}  # words, characters of a value


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "endings.rules").pattern(name)


@lru_cache(maxsize=1024)  # asked of one long message for each of its sentences
def is_correction(message: str) -> bool:
    """Whether a message says that something told before is wrong.  "Correction: it is Moritz" """
    return any(
        _pattern(f"{name}_{language_code(message)}").search(message)
        for name in ("CORRECTION", "DOUBT", "DENIED")
    )


def corrected_note(text: str, message: str, notes: Sequence[str]) -> int | None:
    """The place of the note that a statement of such a message puts right, if it is certain which.

    Words like "actually" open other statements, too: they correct only names and numbers.
    """
    if not is_correction(message):
        return None
    code = language_code(text)
    is_sure = _pattern(f"CORRECTION_{code}").search(message) is not None
    told = {at: it for at, it in enumerate(notes) if language_code(it) == code}
    alike = [at for at, it in told.items() if _differ_by_value(text, it, code, is_sure)]
    alike = alike or [at for at, it in told.items() if _is_renamed(text, it, code)]
    alike = alike or [at for at, it in told.items() if _is_denied(text, message, it, code)]
    return alike[0] if len(alike) == 1 else None


def _differ_by_value(text: str, note: str, code: str, is_sure: bool) -> bool:
    """Whether two statements are the same but for one value, and the values are of one kind."""
    words, was = _tokens(text, code), _tokens(note, code)
    new, old = ([it.lower() for it in some] for some in (words, was))
    size = min(len(new), len(old))
    first = next((at for at in range(size) if new[at] != old[at]), size)
    last = next((at for at in range(size - first) if new[-1 - at] != old[-1 - at]), size - first)
    values = words[first : len(new) - last], was[first : len(old) - last]
    if not all(0 < len(it) <= _LONGEST[code] for it in values):
        return False
    joint = " " if code == "EN" else ""
    before, after = joint.join(words[:first]), joint.join(words[len(new) - last :])
    kind, other = (_kind(joint.join(it)) for it in values)
    is_named = kind != "WORD" and _pattern("COPULA").search(before)
    is_value = is_sure or is_named or _pattern("CALLED").search(before)
    return bool(kind == other and is_value and words_of(f"{before} … {after}"))


def _kind(value: str) -> str:
    """Whether a value is a number, a name, or another word, by its form."""
    return next((it for it in ("FIGURE", "PROPER") if _pattern(it).search(value)), "WORD")


def _tokens(text: str, code: str) -> list[str]:
    plain = _pattern(f"STRESSED_{code}").sub("", _DATED.sub("", text))
    return (_TOKEN if code == "EN" else _TOKEN_ZH).findall(plain)


def _is_renamed(text: str, note: str, code: str) -> bool:
    """Whether two statements name the same one of the same owner differently."""
    new, old = (_pattern(f"NAMING_{code}").fullmatch(_DATED.sub("", it)) for it in (text, note))
    if not new or not old or new["name"] == old["name"]:
        return False
    one, other = sorted((new["one"].lower(), old["one"].lower()), key=len)
    return other.endswith(one) and (new["owner"] or "") == (old["owner"] or "")


def _is_denied(text: str, message: str, note: str, code: str) -> bool:
    """Whether a note says what a message denies of the same.  "It is walnuts, not peanuts" """
    match = _pattern(f"DENIED_{code}").search(message)
    wrong = words_of(match["wrong"]) if match else frozenset[str]()
    said = words_of(note)
    return bool(wrong) and wrong <= said and bool((said - wrong) & words_of(text))
