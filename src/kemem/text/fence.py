"""Recalled text as data inside a prompt: it can neither leave its fence nor pose as markup.

Brackets and bars of what looks like a marker give way to look-alikes that are part of none:
`<tool_call>` -> `‹tool_call>`. Control characters go, everything else stays as it is.
"""

import re
import unicodedata
from functools import lru_cache


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


FENCES = _names("""
recalled_memories found_before tool_data memories conversation question talk instructions
""")
CALL_TAGS = _names("""
dsml invoke function_call function_calls function functions tool_call tool_calls tool_use tool_uses
tool_code tool_sep calls parameter parameters arg_key arg_value start_function_call
end_function_call
""")
RESULT_TAGS = _names("""
tool_result tool_results tool_response tool_responses tool_output tool_outputs function_result
function_results function_response start_function_response end_function_response
""")
ROLE_TAGS = _names("""
system assistant user human developer tool tools sys think thinking reasoning system_prompt
system_message system_reminder start_of_turn end_of_turn
""")
TOKENS = _names("""
im_start im_end python_tag start_header_id end_header_id begin_of_text end_of_text endoftext eot_id
eom_id tool_calls_begin tool_calls_end tool_call_begin tool_call_end tool_calls_section_begin
tool_calls_section_end tool_call_argument_begin tool_call_start action_start action_end
begin_of_sentence end_of_sentence
""")  # also where their bars got lost
BARRED_TOKENS = _names("""
channel message call return constrain start end open close sep plugin turn interpreter
""")  # only between bars: else they are ordinary words
BARE_TOKENS = _names("s bos eos")  # only where they are closed at once
SQUARE_TAGS = _names("""
tool_calls tool_results tool_content available_tools inst system_prompt call_id think
""")
CODE_LANGUAGES = _names("tool_code tool_call tool_calls tool_output tool_outputs tool_result")

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_INVISIBLE = ("Cf", "Mn", "Me", "Cn")
_FILLERS = "\u115f\u1160"
_LOOK_ALIKES = str.maketrans(
    "〈《⟨⟪❮❰«≪ᐸ˂⧼〉》⟩⟫❯❱»≫ᐳ˃⧽‖∥│┃║∣❘ǀ丨⎮╎【〔⟦〖】〕⟧〗▁‐–—−⠀" + "авекмнорстухіѕјԁ",
    "<" * 11 + ">" * 11 + "|" * 11 + "[[[[]]]]_---- " + "abekmhopctyxisjd",
)
_HARMLESS = {"<": "‹", "|": "¦", "[": "⁅", "`": "‵"}  # none of them folds to what it stands for

_END = "(?![.-]?[a-z0-9_])"
_JOINED, _LOOSE = "[_-]++", r"[\s_-]*+"  # between the words of a name


def _any(names: frozenset[str], gap: str = _LOOSE) -> str:
    return "(?:" + "|".join(re.escape(name).replace("_", gap) for name in sorted(names)) + ")"


@lru_cache(maxsize=64)
def _markers(fence: str) -> re.Pattern[str]:
    """What must not stand in a text.

    Linear time: a repetition ends before the next bracket, or has a limit. Once only: whether
    something matches does not depend on characters that another match replaces.
    """
    tags = FENCES | CALL_TAGS | RESULT_TAGS | ROLE_TAGS | TOKENS | ({fence} - {""})
    telling = frozenset(tag for tag in tags if "_" in tag or tag in ("dsml", "invoke"))
    # A word such as "user" is a tag where something closes it: not in "a < user".
    closed = r"(?(closes)|(?=[^>\n]{0,400}+>|[\s/|]*+>|\s*+(?:[\w:-]{1,40}+\s*+)?=))"
    return re.compile(
        r"(?<!<)<++[\s|]*+(?P<closes>/)?[\s/|]*+(?:"
        rf"(?:\w{{1,40}}+:\s*+)?(?:{_any(telling, _JOINED)}{_END}"
        rf"|{_any(tags)}{_END}{closed})[\s|]*+|{_any(BARE_TOKENS)}[\s|]*+>)"
        r"|<\|++[^>|¦\n]{1,80}+\|++>|<\|++[\w.:-]{1,64}+>|<[\w.:-]{1,64}+\|++>"
        rf"|<[\s/]*+\|[\s|]*+{_any(BARRED_TOKENS)}[\s|]*+>"
        rf"|\|[ \t|]{{0,8}}+dsml{_END}[\s|]*+"
        rf"|\[[\s/|]*+(?:{_any(SQUARE_TAGS)}\s*+\]|args\s*+\](?=\s*+\{{))"
        rf"|(?<!`)`{{3,}}+[^\S\n]*+{_any(CODE_LANGUAGES)}{_END}"
    )


def fenced(name: str, text: str) -> str:
    """A text as data between tags that it cannot close.  ("talk", "hi") -> <talk>\\nhi\\n</talk>"""
    return f"<{name}>\n{_neutralised(text, name)}\n</{name}>"


def neutralise(text: str) -> str:
    """A text for a prompt, its markers disarmed.  "</memories> 你好 a < b" -> "‹/memories> …" """
    return _neutralised(text, "")


def _neutralised(text: str, fence: str) -> str:
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
    return "".join(
        each
        for each in plain
        if unicodedata.category(each) not in _INVISIBLE and each not in _FILLERS
    )
