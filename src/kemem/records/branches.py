"""The tree that messages form by their parents: which of them are alternatives to newer ones."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from kemem.records import Message, Micros

SPEAKERS = ("user", "assistant")  # several results of tools answer one message together


def current(messages: Iterable[Message]) -> list[Message]:
    """Messages without those that were replaced. The order must be that of time."""
    listed = list(messages)
    replaced = branch_ends(listed)
    return [message for message in listed if message.id not in replaced]


def branch_ends(messages: Sequence[Message]) -> dict[str, Micros]:
    """When messages were replaced, as by a regenerated answer or an edited question, by their ids.

    Messages of one speaker with one parent are alternatives: the one that the newest message
    descends from stays; the others go, with all that follows them, from the next message on that
    descends from another alternative. The order must be that of time.
    """
    groups = defaultdict[tuple[object, ...], list[Message]](list)
    children = defaultdict[str, list[str]](list)
    for message in messages:
        if message.parent_message_id is not None:
            children[message.parent_message_id].append(message.id)
        if (key := _alternatives(message)) is not None:
            groups[key].append(message)
    contested = [group for group in groups.values() if len(group) > 1]
    if not contested:
        return {}
    places = {message.id: place for place, message in enumerate(messages)}
    newest = _newest_descendants(messages)
    roots: dict[str, int] = {}  # the places of the messages that replaced them
    for group in contested:
        chosen = max(newest[it.id] for it in group)
        for message in group:
            if (last := newest[message.id]) != chosen:
                others = (it.id for it in group if it is not message and newest[it.id] > last)
                roots[message.id] = min(_first_after(last, it, places, children) for it in others)
    ends: dict[str, Micros] = {}
    for root, place in sorted(roots.items(), key=lambda it: it[1]):
        for name in _descendants(root, children):
            if name in places:
                ends.setdefault(name, messages[place].ts)
    return ends


def _newest_descendants(messages: Sequence[Message]) -> dict[str, int]:
    """The place of the newest message that descends from each, or of itself."""
    parents = {message.id: message.parent_message_id for message in messages}
    newest: dict[str, int] = {}
    for place in reversed(range(len(messages))):
        name: str | None = messages[place].id
        while name is not None and name not in newest:
            newest[name] = place
            name = parents.get(name)
    return newest


def _first_after(
    last: int, name: str, places: Mapping[str, int], children: Mapping[str, Sequence[str]]
) -> int:
    """The first place after `last` of a message or, where it came before, of its descendants."""
    if places[name] > last:
        return places[name]
    later = (places.get(it, -1) for it in _descendants(name, children))
    return min(place for place in later if place > last)


def _descendants(root: str, children: Mapping[str, Sequence[str]]) -> list[str]:
    """A message and all that follow it; none twice where parents form a circle."""
    found = {root: None}
    waiting = [root]
    while waiting:
        new = [it for it in children.get(waiting.pop(), ()) if it not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return [*found]


def continues(messages: Sequence[Message], before: Message | None) -> bool:
    """Whether each message follows the one right before it, so that none leaves a branch."""
    listed = messages if before is None else [before, *messages]
    return all(_follows(it, last) for last, it in pairwise(listed))


def _follows(message: Message, last: Message) -> bool:
    parent = message.parent_message_id
    is_another_result = message.role not in SPEAKERS and parent == last.parent_message_id
    return parent in (None, last.id) or is_another_result


def _alternatives(message: Message) -> tuple[object, ...] | None:
    """Equal for messages that stand for each other; None for one that stands for itself."""
    if message.parent_message_id is None or message.role not in SPEAKERS:
        return None
    return (message.parent_message_id, message.role, message.speaker)
