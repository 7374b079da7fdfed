"""Thoughts that a model writes before its answer, where its server does not set them apart."""

_BEGIN, _END = "<think>", "</think>"


class ThoughtFilter:
    """Takes the thoughts from the beginning of a text that comes in pieces.

    >>> said = ThoughtFilter()
    >>> [said.feed(it) for it in ("<thi", "nk>Hm.</thi", "nk>\\n\\nYes", ".")], said.close()
    (['', '', 'Yes', '.'], '')
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False
        self._has_thought = False
        self._has_spoken = False

    def feed(self, piece: str) -> str:
        """What of a piece, and of those before it, is said."""
        if self._has_spoken:
            return piece
        self._held += piece
        while True:
            if self._is_thinking:
                _, end, rest = self._held.partition(_END)
                self._held, self._is_thinking = rest if end else self._held[-len(_END) :], not end
                if not end:
                    return ""
            begun = self._held.lstrip()
            if begun != _BEGIN and _BEGIN.startswith(begun):
                return ""  # blank, or what may become the mark
            if not begun.startswith(_BEGIN):
                self._has_spoken = True
                return begun if self._has_thought else self._held
            self._is_thinking = self._has_thought = True
            self._held = begun.removeprefix(_BEGIN)

    def close(self) -> str:
        """What is left at the end of the text; of thoughts without an end, nothing."""
        return "" if self._has_spoken or self._has_thought else self._held


def without_thoughts(text: str) -> str:
    """A text without the thoughts before it.  "<think>Hm.</think>\\nYes" -> "Yes" """
    said = ThoughtFilter()
    return said.feed(text) + said.close()
