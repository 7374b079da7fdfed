"""Which of the two languages a text is in, and how long it is for a model."""

import re

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]+")


def is_chinese(text: str) -> bool:
    """Whether most of a text is Chinese.  "用 Python 写代码" -> True"""
    return 2 * len("".join(_CJK.findall(text))) > len(_WORD.findall(text)) * 3


def count_tokens(text: str) -> int:
    """About how many tokens a model makes of a text, rather too many than too few.

    A Chinese character counts as one, four other characters count as one.
    """
    chinese = 0 if text.isascii() else len("".join(_CJK.findall(text)))
    return chinese + (len(text) - chinese + 3) // 4
