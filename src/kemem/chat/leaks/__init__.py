"""Tool calls that a model writes into its text: detected, hidden and parsed, whatever the form."""

from kemem.chat.leaks.stream import Leak, Shown, StreamGuard, guarded
from kemem.chat.leaks.values import LeakedCall, Written

__all__ = ["Leak", "LeakedCall", "Shown", "StreamGuard", "Written", "guarded"]
