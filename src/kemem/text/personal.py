"""Personal data and secrets in texts: found by their form and checksums, and masked.

The patterns and word lists are in `personal.rules`. What has a checksum must fulfil it; a password
or key that is only told ("my password is …", 密码是…) must look like one.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from kemem.errors import InvalidArgument
from kemem.records.privacy import DATA_KINDS, ContentPolicy, DataKind
from kemem.text.language import is_chinese
from kemem.text.lexicon import load

PLACEHOLDERS: Mapping[DataKind, tuple[str, str]] = {  # English, Chinese
    "api_key": ("[API key]", "[密钥]"),
    "password": ("[password]", "[密码]"),
    "id_number": ("[ID number]", "[证件号]"),
    "card_number": ("[card number]", "[卡号]"),
    "phone_number": ("[phone number]", "[电话号码]"),
    "email": ("[e-mail address]", "[邮箱]"),
}
_NAMES: Mapping[DataKind, str] = {
    **{"api_key": "an API key", "password": "a password", "id_number": "an ID number"},
    **{"card_number": "a card number", "phone_number": "a phone number"},
    "email": "an e-mail address",
}
# One character for one, so that places stay the same.
_FOLDED = str.maketrans(
    "".join(map(chr, range(0xFF01, 0xFF5F)))
    + "\u00a0\u2002\u2003\u2007\u2009\u200b\u202f\u3000\u2010\u2011\u2012\u2013\u2014\u2212",
    "".join(map(chr, range(0x21, 0x7F))) + " " * 8 + "-" * 6,
)
_FOLDABLE = frozenset(map(chr, _FOLDED))
_PROVINCES = {
    *(11, 12, 13, 14, 15, 21, 22, 23, 31, 32, 33, 34, 35, 36, 37, 41, 42, 43, 44, 45, 46),
    *(50, 51, 52, 53, 54, 61, 62, 63, 64, 65, 71, 81, 82, 83, 91),
}
_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CARDS: tuple[tuple[range, int, tuple[int, ...]], ...] = (  # first numbers, their digits, lengths
    (range(2221, 2721), 4, (16,)),  # Mastercard
    (range(51, 56), 2, (16,)),
    (range(4, 5), 1, (13, 16, 19)),  # Visa
    (range(34, 35), 2, (15,)),  # American Express
    (range(37, 38), 2, (15,)),
    (range(300, 306), 3, (14, 16)),  # Diners Club
    (range(36, 37), 2, (14,)),
    (range(38, 40), 2, (14, 16)),
    (range(3528, 3590), 4, (16,)),  # JCB
    (range(62, 63), 2, (16, 17, 18, 19)),  # UnionPay
    (range(60, 61), 2, (16, 17, 18, 19)),  # Discover and others
    (range(644, 660), 3, (16, 19)),
    (range(9558, 9559), 4, (19,)),  # older cards of ICBC
)
_ZH_PASSWORDS = ("ZH_PASSWORD", "ZH_LATER_PASSWORD", "ZH_BARE_PASSWORD")
# A text without all of these has no match, which is faster to see than by the pattern.
_HINTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("TOLD_KEY", "ENV_KEY", "ZH_KEY"), ("key", "token", "secret", "密钥", "秘钥", "令牌")
    ),
    **dict.fromkeys(("PASSWORD", "NEW_PASSWORD", "LATER_PASSWORD"), ("pass", "pwd", "pw")),
    **dict.fromkeys(_ZH_PASSWORDS, ("密码", "口令", "暗号")),
    **{"URL_PASSWORD": ("://",), "EMAIL": ("@",)},
    "API_KEY": (
        *("sk-", "sk_", "rk_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        *("glpat-", "akia", "asia", "ltai", "akid", "aiza", "ya29.", "xox", "hf_", "npm_", "pypi-"),
        *("dop_v1_", "sg."),
    ),
    **{"BEARER": ("bearer",), "JWT": ("eyj",), "PIN": ("pin", "cv", "code", "码")},
    "PEM": ("-----begin",),
}
_ALL_HINTS = frozenset(chain.from_iterable(_HINTS.values()))
_PHONES = (
    *("CN_MOBILE", "CN_LANDLINE", "CN_SERVICE", "INTERNATIONAL", "NORTH_AMERICA"),
    *("BRITISH", "NAMED_PHONE"),
)
_NUMBERS = {*_PHONES, "CN_ID", "SSN", "NAMED_SSN", "CARD_RUN", "CARD_GROUPS"}
_LONG_NUMBER = re.compile(r"\d(?:[ ().-]{0,3}\d){6}", re.ASCII)
_UNIT = re.compile(
    r"\s{0,2}(?:位|个|次|字|characters?\b|chars\b|digits?\b|letters?\b|symbols?\b|words?\b|times\b"
    r"|attempts\b|days\b|minutes\b|years\b)",
    re.IGNORECASE,
)
_CODE = re.compile(  # what stands for a value: variables, calls, placeholders
    r"[A-Za-z_][\w.]*[(\[]|\$[A-Z_{(]|%[(s]|\{\{|\{\w+\}|<[^<>]*>|\[[^\[\]]*\]|\*{2,}|[xX.…_-]+$"
    r"|your|https?:",
    re.ASCII,
)
_order = DATA_KINDS.index
_SENTENCE_END = re.compile(r"\s*(?:$|[.,;:!?)\]}。、])|\s*\n")
_TRAILING = ".,;:)]}>\"'"


class Finding(NamedTuple):
    """A piece of personal data and where it stands in a text."""

    start: int
    end: int
    kind: DataKind


def find_personal_data(text: str) -> list[Finding]:
    """The personal data in a text, in its order; no two findings overlap.

    "mail ann@example.org" -> [Finding(5, 20, "email")]
    """
    folded, found = _Folded(text), list[Finding]()
    if not folded.may_match:
        return found
    spans = [(*span, kind) for kind in DATA_KINDS for span in _FINDERS[kind](folded)]
    for start, end, kind in sorted(spans):
        last = found[-1] if found else None
        if last is None or last.end <= start:
            found.append(Finding(start, end, kind))
        else:  # what is more secret keeps its kind
            found[-1] = Finding(last.start, max(last.end, end), min(last.kind, kind, key=_order))
    return found


def apply_policy(text: str, policy: ContentPolicy, field: str) -> tuple[str, bool]:
    """A text as it may be stored, and whether it is sensitive; InvalidArgument where it may not.

    The error names the kind of what was found, never the value.
    """
    findings = find_personal_data(text)
    actions = {it.kind: policy.actions[it.kind] for it in findings}
    for kind, action in actions.items():
        if action == "refuse":
            setting = f"KEMEM_PRIVACY_{kind.upper()}=refuse"
            reason = f"{field} contains {_NAMES[kind]}, which this server refuses to store"
            raise InvalidArgument(f"{reason} ({setting})", field=field, kind=kind)
    masked = [it for it in findings if actions[it.kind] == "mask"]
    return _mask(text, masked) if masked else text, "mark" in actions.values()


def apply_policy_to_value(value: Any, policy: ContentPolicy, field: str) -> tuple[Any, bool]:
    """The same for what JSON can hold: every text and every whole number in it."""
    marks: list[bool] = []

    def allowed(text: str) -> str:
        stored, is_marked = apply_policy(text, policy, field)
        marks.append(is_marked)
        return stored

    return _mapped(value, allowed), any(marks)


def masked(value: Any, policy: ContentPolicy) -> Any:
    """What JSON can hold for a journal: what may not be stored as it is has a placeholder."""
    hidden = {kind for kind, action in policy.actions.items() if action in ("mask", "refuse")}

    def without(text: str) -> str:
        return _mask(text, [it for it in find_personal_data(text) if it.kind in hidden])

    return _mapped(value, without) if hidden else value


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case int() if not isinstance(value, bool):
            text = str(value)
            return value if (changed := change(text)) == text else changed
        case Mapping():
            return {key: _mapped(it, change) for key, it in value.items()}
        case list() | tuple():
            return [_mapped(it, change) for it in value]
    return value


def _mask(text: str, findings: list[Finding]) -> str:
    starts, ends = [it.start for it in findings], [it.end for it in findings]
    rest = [text[start:end] for start, end in zip([0, *ends], [*starts, None], strict=True)]
    language = int(is_chinese("".join(rest)))
    masks = [PLACEHOLDERS[it.kind][language] for it in findings]
    return "".join(chain.from_iterable(zip(rest, [*masks, ""], strict=True)))


class _Folded:
    """A text whose characters are folded, and the matches of patterns in it."""

    def __init__(self, text: str) -> None:
        # To translate takes ten times as long as to see that there is nothing to translate.
        is_folded = text.isascii() or _FOLDABLE.isdisjoint(text)
        self.text = text if is_folded else text.translate(_FOLDED)
        lower = self.text.lower()
        self._hints = {hint for hint in _ALL_HINTS if hint in lower}
        self._has_number = _LONG_NUMBER.search(self.text) is not None

    @property
    def may_match(self) -> bool:
        """Whether any pattern can have a match."""
        return self._has_number or bool(self._hints)

    def matches(self, name: str) -> Iterator[re.Match[str]]:
        """The matches of a pattern of `personal.rules`."""
        is_possible = (
            self._has_number if name in _NUMBERS else not self._hints.isdisjoint(_HINTS[name])
        )
        if not is_possible:
            return iter(())
        return load(__package__, "personal.rules").pattern(name).finditer(self.text)

    def spans(self, *names: str) -> "Spans":
        """Where the values of some patterns are."""
        for match in chain.from_iterable(map(self.matches, names)):
            yield match.span("value" if "value" in match.re.groupindex else 0)


Spans = Iterator[tuple[int, int]]


def _keys(text: _Folded) -> Spans:
    yield from text.spans("API_KEY", "JWT", "PEM", "BEARER")
    for name in ("TOLD_KEY", "ENV_KEY", "ZH_KEY"):
        for match in text.matches(name):
            value = match["value"].rstrip(_TRAILING)
            has_both = re.search(r"\d", value) and re.search("[A-Za-z]", value)
            if has_both and len(value) >= 12 and not _CODE.match(value):
                yield match.start("value"), match.start("value") + len(value)


def _passwords(text: _Folded) -> Spans:
    for name in ("PASSWORD", "NEW_PASSWORD", "LATER_PASSWORD", *_ZH_PASSWORDS):
        for match in text.matches(name):
            group = match.lastgroup or "value"
            start, value = match.start(group), match[group]
            if _CODE.match(value):
                continue
            if group == "value":
                value = value.rstrip(_TRAILING)
            end = start + len(value)
            rest, is_chinese = text.text[end : end + 16], name in _ZH_PASSWORDS
            if _is_password(value, rest, group != "value", is_chinese):
                yield start, end
    for match in text.matches("URL_PASSWORD"):
        if not _CODE.match(match["value"]) and match["value"] not in _no_values():
            yield match.span("value")
    yield from text.spans("PIN")


def _is_password(value: str, rest: str, is_quoted: bool, is_chinese: bool) -> bool:
    """Whether what is said to be a password can be one: 密码是错的 tells none."""
    if not value.strip() or value.casefold() in _no_values():
        return False
    if is_quoted:
        return True
    if len(value) < 3 or _UNIT.match(rest):
        return False
    is_word = re.fullmatch(r"[A-Z]?[a-z]+(?:['’/-][a-z]+)*", value)
    return not is_word or is_chinese or _SENTENCE_END.match(rest) is not None


@cache
def _no_values() -> frozenset[str]:
    return frozenset(load(__package__, "personal.rules").tables["NO_VALUE"])


def _id_numbers(text: _Folded) -> Spans:
    for match in text.matches("CN_ID"):
        if is_chinese_id(re.sub("[ -]", "", match[0])):
            yield match.span()
    yield from text.spans("SSN", "NAMED_SSN")


def is_chinese_id(number: str) -> bool:
    """Whether 18 characters are an ID-card number: province, date of birth and checksum."""
    if int(number[:2]) not in _PROVINCES:
        return False
    try:
        date(int(number[6:10]), int(number[10:12]), int(number[12:14]))
    except ValueError:
        return False
    total = sum(int(it) * weight for it, weight in zip(number, _ID_WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == number[17].upper()


def _cards(text: _Folded) -> Spans:
    for match in chain(text.matches("CARD_RUN"), text.matches("CARD_GROUPS")):
        places = [at for at in range(*match.span()) if text.text[at].isdigit()]
        digits = "".join(text.text[at] for at in places)
        # Behind a card there may be its security code: "4111 1111 1111 1111 123".
        lengths = [len(digits), *([16] if len(digits) in range(17, 20) and " " in match[0] else [])]
        for length in lengths:
            if is_card_number(digits[:length]):
                yield places[0], places[length - 1] + 1
                break


def is_card_number(digits: str) -> bool:
    """Whether digits are a card number: first digits and length of an issuer, and Luhn's sum."""
    if not any(
        int(digits[:width]) in first and len(digits) in lengths for first, width, lengths in _CARDS
    ):
        return False
    return luhn(digits) == 0


def luhn(digits: str) -> int:
    """Luhn's sum modulo 10; 0 for a number with a right check digit."""
    doubled = (sum(divmod(2 * int(it), 10)) for it in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10


def _phones(text: _Folded) -> Spans:
    yield from text.spans(*_PHONES)


_FINDERS: Mapping[DataKind, Callable[[_Folded], Spans]] = {
    "api_key": _keys,
    "password": _passwords,
    "id_number": _id_numbers,
    "card_number": _cards,
    "phone_number": _phones,
    "email": lambda text: text.spans("EMAIL"),
}
