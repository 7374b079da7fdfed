"""The tree that messages form by their parents: which of them are alternatives to newer ones."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from kemem.records import Message

_SPEAKERS = ("user", "assistant")  # several results of tools answer one message together


def current(messages: Iterable[Message]) -> list[Message]:
    """Messages without those that were replaced, as by a regenerated answer or an edited question.

    Messages of one speaker with one parent are alternatives: the one that the newest message
    descends from stays; the others go, with all that follows them. The order must be that of time.
    """
    listed = list(messages)
    if all(message.parent_message_id is None for message in listed):
        return listed
    newest: dict[str, int] = {}  # the place of the last descendant
    for place, message in reversed([*enumerate(listed)]):
        last = newest[message.id] = max(place, newest.get(message.id, place))
        if message.parent_message_id is not None:
            parent = message.parent_message_id
            newest[parent] = max(last, newest.get(parent, last))
    chosen: dict[tuple[object, ...], int] = {}
    for message in listed:
        if (group := _alternatives(message)) is not None:
            chosen[group] = max(newest[message.id], chosen.get(group, 0))
    kept, gone = [], set[str]()
    for message in listed:
        group = _alternatives(message)
        is_replaced = group is not None and newest[message.id] != chosen[group]
        if is_replaced or message.parent_message_id in gone:
            gone.add(message.id)
        else:
            kept.append(message)
    return kept


def continues(messages: Sequence[Message], before: Message | None) -> bool:
    """Whether each message follows the one right before it, so that none leaves a branch."""
    listed = messages if before is None else [before, *messages]
    return all(_follows(it, last) for last, it in pairwise(listed))


def _follows(message: Message, last: Message) -> bool:
    parent = message.parent_message_id
    is_another_result = message.role not in _SPEAKERS and parent == last.parent_message_id
    return parent in (None, last.id) or is_another_result


def _alternatives(message: Message) -> tuple[object, ...] | None:
    """Equal for messages that stand for each other; None for one that stands for itself."""
    if message.parent_message_id is None or message.role not in _SPEAKERS:
        return None
    return (message.parent_message_id, message.role, str(message.metadata.get("speaker")))
