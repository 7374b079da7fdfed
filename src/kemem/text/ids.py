"""Ids and texts, checked where they come from outside; ids that we make sort by time."""

import re
import secrets
import unicodedata
from reprlib import repr as shown

from kemem.errors import InvalidArgument
from kemem.records import Micros

MAX_ID = 255
MAX_ID_BYTES = 3 * MAX_ID  # three of them fit into one entry of an index of PostgreSQL
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")  # categories of characters
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # Cf: zero-width characters and marks of direction
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")  # embeddings, overrides and isolates
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U


def check_id(value: object, field: str) -> str:
    """The id itself, if it can be one: 1-255 characters, no control characters, no outer blanks."""
    if not isinstance(value, str):
        problem = f"be a string, not {shown(value)}"
    elif not 1 <= len(value) <= MAX_ID:
        problem = f"be 1-{MAX_ID} characters, not {len(value)}: {shown(value)}"
    elif (size := len(value.encode(errors="surrogatepass"))) > MAX_ID_BYTES:
        problem = f"be at most {MAX_ID_BYTES} bytes, not {size}"
    elif value in (".", ".."):
        problem = f"not be {value!r}, which no path can name"
    elif value != value.strip():
        problem = f"not begin or end with blanks: {value!r}"
    elif not value.isprintable() and any(unicodedata.category(it) in _CONTROLS for it in value):
        problem = f"not hold control characters: {value!a}"
    else:
        return value
    raise InvalidArgument(f"{field} must {problem}", field=field)


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen: blanks, control and zero-width characters alone."""
    if text[:1].isalnum():  # as most begin
        return False
    return all(unicodedata.category(it) in _INVISIBLE for it in text)


def without_bidi(text: str) -> str:
    """A text without the controls that change the order in which a reader sees it.

    "\u202egnp.exe" -> "gnp.exe"
    """
    return _BIDI.sub("", text)


def encode(text: str, field: str) -> bytes:
    """The bytes of a text; a lone surrogate has none, so that no database can hold it."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        reason = f"{field} holds a lone surrogate, which is no text: {text!a:.80}"
        raise InvalidArgument(reason, field=field) from None


def new_id(prefix: str, now: Micros) -> str:
    """A fresh id that sorts by time.  ("m", …) -> "m_01KFX3J9C0V5T8W2Q7Z4N6B1RD" """
    number = (max(now, 0) // 1000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    return f"{prefix}_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
