"""Recalled text as data inside a prompt: it can neither leave its fence nor pose as markup.

Brackets and bars of what looks like a marker give way to look-alikes that are part of none:
`<tool_call>` -> `‹tool_call>`. Control characters go, everything else stays as it is.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from kemem.text.lexicon import load

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_INVISIBLE = ("Cf", "Mn", "Me", "Cn")
_LOOK_ALIKES = str.maketrans(
    "〈《⟨⟪❮❰«≪ᐸ˂⧼〉》⟩⟫❯❱»≫ᐳ˃⧽‖∥│┃║∣❘ǀ丨⎮╎【〔⟦〖】〕⟧〗▁‐–—−⠀" + "авекмнорстухіѕјԁ",
    "<" * 11 + ">" * 11 + "|" * 11 + "[[[[]]]]_---- " + "abekmhopctyxisjd",
    "\u115f\u1160",  # fillers, which go
)
_HARMLESS = {"<": "‹", "|": "¦", "[": "⁅", "`": "‵"}  # none of them folds to what it stands for

_LISTS = ("BARE_TOKENS", "BARRED_TOKENS", "SQUARE_TAGS", "CODE_LANGUAGES")
_TAGS = ("FENCES", "CALL_TAGS", "RESULT_TAGS", "ROLE_TAGS", "TOKENS")
_JOINED, _LOOSE = "[_-]++", r"[\s_-]*+"  # between the words of a name


@lru_cache(maxsize=64)
def _markers(fence: str) -> re.Pattern[str]:
    lines = load(__package__, "fence.rules").lines
    lists = {it: lines[it].text.split() for it in (*_TAGS, *_LISTS)}
    tags = {name for it in _TAGS for name in lists[it]} | ({fence} - {""})
    telling = {tag for tag in tags if "_" in tag or tag in ("dsml", "invoke")}

    def any_of(names: Iterable[str], gap: str = _LOOSE) -> str:
        return "|".join(re.escape(name).replace("_", gap) for name in sorted(names))

    patterns = {it: any_of(lists[it]) for it in _LISTS}
    patterns |= {"TAGS": any_of(tags), "TELLING": any_of(telling, _JOINED)}
    return load(__package__, "fence.rules", **patterns).pattern("MARKER")


def fenced(name: str, text: str) -> str:
    """A text as data between tags that it cannot close.  ("talk", "hi") -> <talk>\\nhi\\n</talk>"""
    return f"<{name}>\n{neutralise(text, name)}\n</{name}>"


def neutralise(text: str, fence: str = "") -> str:
    """A text for a prompt, its markers disarmed.  "</memories> 你好 a < b" -> "‹/memories> …" """
    clean = _CONTROLS.sub("", re.sub(r"\r\n?", "\n", text))
    folded = [_folded(character) for character in clean]
    places = [at for at, part in enumerate(folded) for _ in part]
    shown, end = [], 0
    for match in _markers("".join(map(_folded, fence))).finditer("".join(folded)):
        start, past = places[match.start()], places[match.end() - 1] + 1
        shown.append(clean[end:start])
        shown += [_HARMLESS.get(folded[at], clean[at]) for at in range(start, past)]
        end = past
    return "".join([*shown, clean[end:]])


@lru_cache(maxsize=65_536)
def _folded(character: str) -> str:
    """What a character passes for: nothing where it cannot be seen.  "＜" -> "<", "〈" -> "<" """
    plain = unicodedata.normalize("NFKC", character).casefold().translate(_LOOK_ALIKES)
    return "".join(it for it in plain if unicodedata.category(it) not in _INVISIBLE)
