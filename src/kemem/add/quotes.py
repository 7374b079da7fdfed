"""What of a message is new: lines that quote no memory."""

import re
from collections.abc import Sequence

from kemem.add.rules import VERBATIM
from kemem.records import Message, Note
from kemem.text.segment import as_printed, fingerprint, is_listed

_ROLES = ("user", "assistant")  # what systems and tools say is not worth a memory
# A message as the result of a search prints it.
_PRINTED = re.compile(r"^- \[\d{4}-\d{2}-\d{2}\] \w[^:\n]{0,80}: ")


def fingerprints(messages: Sequence[Message]) -> list[tuple[Message, dict[str, frozenset[str]]]]:
    """The fingerprints of each line of each message, without lines that a search printed."""
    lines = []
    for message in messages:
        own = message.content.splitlines() if message.role in _ROLES else ()
        new = [line for line in own if line.strip() and not _PRINTED.match(line)]
        if new:
            lines.append((message, {line: frozenset(as_printed(line)) for line in new}))
    return lines


class Quoted:
    """The notes that a line may quote: what was recalled is not said again."""

    def __init__(self, notes: Sequence[Note], keeps_words: bool) -> None:
        """Where facts keep the words that were said, a verbatim note has all of them already."""
        self._marks = {mark for note in notes for mark in (note.digest, note.topic)}
        self._said: dict[str | None, set[str]] = {}  # topics of verbatim notes, and their messages
        for note in notes:
            if note.memory_type == VERBATIM and not keeps_words:
                self._said.setdefault(note.topic, set()).update(note.sources)

    def by(self, message: Message, line: str, marks: frozenset[str]) -> bool:
        """Whether a line quotes a note.

        A message that was kept verbatim does not quote itself, and neither does another that says
        the same in plain words: that has been said twice.
        """
        quotes = self._marks & marks
        said = {mark for mark in quotes if message.message_id in self._said.get(mark, ())}
        if quotes - said and not is_listed(line):
            said |= {fingerprint(line)} & self._said.keys()
        return bool(quotes - said)
