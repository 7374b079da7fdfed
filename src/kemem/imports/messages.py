"""Messages and conversations in KeMem's own fields or in the formats of model APIs."""

from collections.abc import Iterator

from kemem.imports.items import Item, wrong
from kemem.text.parts import Fields
from kemem.text.shapes import SHAPES, to_items, to_message

FORMAT = "messages"


def is_messages(value: object) -> bool:
    """Whether a value is a message, or holds some."""
    items = _messages(value)
    return bool(items) and all(
        it is not None and any(shape.keys <= it.keys() for shape in SHAPES) for it in items[:3]
    )


def read_messages(value: object, place: str) -> Iterator[Item]:
    """The messages of a value, which is one of them or a conversation."""
    own = value.get("user_id") if isinstance(value, dict) else None
    for message in _messages(value) or [None]:
        if message is None:
            raise wrong(place, "not a message, nor a list of messages")
        fields = {name: it for name, it in message.items() if name != "user_id" or own is None}
        yield Item(place, FORMAT, fields, own)


def _messages(value: object) -> list[Fields | None]:
    is_pair = isinstance(value, list) and to_message(value) is not None
    return [to_message(it) for it in ([value] if is_pair else to_items(value) or [])]
