"""Recalled text as data inside a prompt: it can neither leave its fence nor pose as markup.

Brackets and bars of what looks like a marker give way to look-alikes that are part of none:
`<tool_call>` -> `‹tool_call>`. Control characters go, everything else stays as it is.
"""

import re
import unicodedata
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

_END = "(?![.-]?[a-z0-9_])"
_JOINED, _LOOSE = "[_-]++", r"[\s_-]*+"  # between the words of a name


def _names(*lists: str) -> set[str]:
    lines = load(__package__, "fence.rules").lines
    return {name for it in lists for name in lines[it].text.split()}


def _any(names: set[str], gap: str = _LOOSE) -> str:
    return "(?:" + "|".join(re.escape(name).replace("_", gap) for name in sorted(names)) + ")"


@lru_cache(maxsize=64)
def _markers(fence: str) -> re.Pattern[str]:
    """What must not stand in a text.

    Linear time: a repetition ends before the next bracket, or has a limit. Once only: whether
    something matches does not depend on characters that another match replaces.
    """
    tags = _names("FENCES", "CALL_TAGS", "RESULT_TAGS", "ROLE_TAGS", "TOKENS") | ({fence} - {""})
    telling = {tag for tag in tags if "_" in tag or tag in ("dsml", "invoke")}
    # A word such as "user" is a tag where something closes it: not in "a < user".
    closed = r"(?(closes)|(?=[^>\n]{0,400}+>|[\s/|]*+>|\s*+(?:[\w:-]{1,40}+\s*+)?=))"
    return re.compile(
        r"(?<!<)<++[\s|]*+(?P<closes>/)?[\s/|]*+(?:"
        rf"(?:\w{{1,40}}+:\s*+)?(?:{_any(telling, _JOINED)}{_END}"
        rf"|{_any(tags)}{_END}{closed})[\s|]*+|{_any(_names('BARE_TOKENS'))}[\s|]*+>)"
        r"|<\|++[^>|¦\n]{1,80}+\|++>|<\|++[\w.:-]{1,64}+>|<[\w.:-]{1,64}+\|++>"
        rf"|<[\s/]*+\|[\s|]*+{_any(_names('BARRED_TOKENS'))}[\s|]*+>"
        rf"|\|[ \t|]{{0,8}}+dsml{_END}[\s|]*+"
        rf"|\[[\s/|]*+(?:{_any(_names('SQUARE_TAGS'))}\s*+\]|args\s*+\](?=\s*+\{{))"
        rf"|(?<!`)`{{3,}}+[^\S\n]*+{_any(_names('CODE_LANGUAGES'))}{_END}"
    )


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
