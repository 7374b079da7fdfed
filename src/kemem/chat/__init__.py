"""Chats with memory: recall before every reply, the same tools for real, and no call that leaks."""

from kemem.chat.events import (
    DoneEvent,
    ErrorEvent,
    Event,
    RecallEvent,
    Reply,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from kemem.chat.filters import LeakCounts
from kemem.chat.guard import guard
from kemem.chat.service import ChatService, GroupChatService, Member
from kemem.chat.session import MemorySession

__all__ = [
    "ChatService",
    "DoneEvent",
    "ErrorEvent",
    "Event",
    "GroupChatService",
    "LeakCounts",
    "Member",
    "MemorySession",
    "RecallEvent",
    "Reply",
    "TextEvent",
    "ToolCallEvent",
    "ToolResultEvent",
    "guard",
]
