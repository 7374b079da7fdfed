"""What makes two texts the same statement: words and values; not punctuation, bullets, fillers."""

import re
from hashlib import blake2b

from kemem.text.segment import normalise

_BULLET = re.compile(r"^\s*(?:[-*•·]\s|\d{1,3}[.)、]\s*)")
_DATE = re.compile(r"\s*[(（]\d{4}-\d{2}-\d{2}[^()（）]{0,40}[)）]\s*$")
# Signs that separate words; those inside values do not: -5, 3.5, 8:30, don't.
_SEPARATORS = re.compile(r"(?:(?!(?<!\w)-(?=\d)|(?<=\d)[.:/-](?=\d)|(?<=\w)['’](?=\w))[^\w+#%])+")
# What may come and go without changing what is said.
_FILLERS = frozenset({"a", "an", "the", "really", "very", "also", "quite", "just", "so", "too"})
_PARTICLES = re.compile("[的了呢啊吧呀嘛很也都挺]")


def fingerprint(text: str) -> str:
    """Equal for texts that make the same statement.  "- 很喜欢猫。 (2026-01-26)" ~ "喜欢猫"

    A number, a date, a negation, any word more or less makes another one: no update is eaten.
    """
    bare = _SEPARATORS.sub(" ", normalise(_DATE.sub("", _BULLET.sub("", text))))
    words = [word for word in _PARTICLES.sub("", bare).split() if word not in _FILLERS]
    statement = " ".join(words) or text
    return blake2b(statement.encode(errors="replace"), digest_size=16).hexdigest()
