"""How long an answer of a model is waited for, and how long it may become."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kemem.ports.faults import fault

_THOUGHTS = 2_000  # tokens, for a model that thinks before it answers
_WORDY = 4  # times the tokens that an answer is expected to have
_LONG_THOUGHTS = 4  # times the tokens of an answer, once a model has used up all of them to think
MOST_PATIENCE = 8  # times its timeout that a model is waited for, where a first wait was in vain
REFUSALS = (400, 404, 422)  # how servers say that they do not know something

patience = ContextVar("patience", default=1)  # how many times its timeout a model is waited for
answer_tokens = ContextVar("answer_tokens", default=0)  # the most of an answer; 0: no limit


log = logging.getLogger("kemem")


def most_tokens(expected: int) -> int:
    """A bound that no good answer of so many tokens reaches, but one without an end does."""
    return _THOUGHTS + _WORDY * expected


def most_of_reply(history: int) -> int:
    """The tokens of a reply in a chat: no more than it is shown of the chat, beside thoughts."""
    return _THOUGHTS + history


@contextmanager
def asking(expected: int, times: int = 1) -> Iterator[None]:
    """A question whose answer is expected to have so many tokens."""
    patient, bounded = patience.set(times), answer_tokens.set(most_tokens(expected))
    try:
        yield
    finally:
        answer_tokens.reset(bounded)
        patience.reset(patient)


class TokenLimit:
    """The name by which a server is told how long an answer may be.

    Servers at home know the old name and silently ignore the new one; OpenAI's newer models refuse
    the old one, and say so. What is refused is not sent again.
    """

    def __init__(self) -> None:
        self._names = ["max_tokens", "max_completion_tokens"]
        self.room = 1  # times the tokens that an answer may have

    def widen(self) -> bool:
        """Give a model more room that has thought until it was cut; False where it has that."""
        was_narrow, self.room = self.room == 1, _LONG_THOUGHTS
        return was_narrow

    def option(self, tokens: int) -> dict[str, int]:
        """The limit as a parameter of a request; empty where the server knows none."""
        return {self._names[0]: tokens} if self._names and tokens else {}

    def is_refused(self, option: dict[str, int], error: Exception, whose: str) -> bool:
        """Whether an error refuses this parameter, which is then sent no more."""
        name = next(iter(option), "")
        status = getattr(error, "status_code", None)
        is_refusal = status in REFUSALS or isinstance(error, TypeError)  # of a client's function
        if not (name and is_refusal and name in str(error)):
            return False
        self._names = [it for it in self._names if it != name]
        following = f"with {self._names[0]}" if self._names else "without a limit of tokens"
        log.warning("%s %s to %s; it is asked %s", whose, fault(error), name, following)
        return True
