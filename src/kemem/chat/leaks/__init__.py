"""Tool calls that a model writes into its text: found, hidden and read, whatever the form."""

from kemem.chat.leaks.stream import Leak, LeakedCall, Shown, StreamGuard, Written, guarded

__all__ = ["Leak", "LeakedCall", "Shown", "StreamGuard", "Written", "guarded"]
