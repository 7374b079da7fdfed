"""Tool calls that a model writes into its text: detected, hidden and parsed, whatever the form."""

from kemem.chat.leaks.parsing import LeakedCall, UntypedText
from kemem.chat.leaks.stream import FilteredText, Leak, StreamGuard, filter_text

__all__ = ["FilteredText", "Leak", "LeakedCall", "StreamGuard", "UntypedText", "filter_text"]
