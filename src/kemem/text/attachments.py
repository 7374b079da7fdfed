"""Images, recordings and files of messages: what is kept of them is one line and their hash."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from mimetypes import guess_type
from typing import Any
from urllib.parse import unquote, urlsplit

MAX_LABEL = 200  # characters of a name or an address that are kept
MAX_DESCRIPTION = 2_000  # characters
_SHOWN_HASH = 16  # characters of a hash in the text; the metadata has all of it
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?,(.*)", re.DOTALL)
_LINE = re.compile(r"^\[(?:image|audio|video|file)\b[^\n]*\]$", re.MULTILINE)

# Where formats keep what is attached, and what they call its properties.
_NESTED = (
    *("image_url", "input_audio", "file", "source", "inline_data", "inlineData", "file_data"),
    *("fileData", "audio", "image", "video_url", "audio_url", "file_url"),
)
_DATA = ("data", "base64", "file_data", "b64_json", "result")
_URL = ("url", "uri", "file_uri", "fileUri", *_NESTED)
_NAME = ("filename", "name", "display_name", "displayName", "title", "file_id", "fileId", "id")
_TYPE = ("media_type", "mime_type", "mimeType", "mediaType", "_media_type")
_KINDS = ("image", "audio", "video")


@dataclass(frozen=True, slots=True)
class Attachment:
    """Something in a message that is not text; its bytes are not stored."""

    kind: str  # image, audio, video or file
    name: str | None = None
    media_type: str | None = None
    size: int | None = None  # bytes
    sha256: str | None = None
    url: str | None = None  # without its query, which may hold a key
    data: bytes | None = field(default=None, repr=False, compare=False)

    def line(self, description: str | None = None) -> str:
        """What a message says in its place.  "[image a.png, image/png, 12 bytes, sha256 9f86…]" """
        size = None if self.size is None else f"{self.size} bytes"
        digest = self.sha256 and f"sha256 {self.sha256[:_SHOWN_HASH]}"
        facts = (self.name, self.media_type, size, digest, self.url)
        line = f"{self.kind} {', '.join(fact for fact in facts if fact)}".strip()
        return f"[{line}: {description}]" if description else f"[{line}]"

    @property
    def properties(self) -> dict[str, Any]:
        """All but the bytes, for the metadata of the message."""
        names = ("kind", "name", "media_type", "size", "sha256", "url")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def read_attachment(part: Mapping[str, Any], kind: str | None = None) -> Attachment:
    """What a part of a message attaches, whatever the format calls its properties."""
    nested = [value for name in _NESTED if isinstance(value := part.get(name), Mapping)]
    merged = {k: v for level in (part, *nested) for k, v in level.items() if v is not None}
    data, url = _bytes(merged), _text(merged, _URL)
    media_type = _text(merged, _TYPE)
    if url and (match := _DATA_URL.fullmatch(url)):
        media_type, url = media_type or match[1], None
    if kind == "audio" and not media_type and isinstance(merged.get("format"), str):
        media_type = f"audio/{merged['format']}"
    address = _without_query(url) if url else None
    name = _text(merged, _NAME) or (address and unquote(address.rpartition("/")[2]))
    media_type = media_type or (guess_type(name)[0] if name else None)
    guessed = (media_type or "").partition("/")[0]
    return Attachment(
        kind=guessed if guessed in _KINDS else kind or "file",
        name=_label(name),
        media_type=_label(media_type),
        size=None if data is None else len(data),
        sha256=None if data is None else sha256(data).hexdigest(),
        url=_label(address),
        data=data,
    )


def without_attachments(text: str) -> str:
    """What is said in a text, without the lines that stand for attachments."""
    return _LINE.sub("", text) if "[" in text else text


def one_line(description: str) -> str:
    """A description as it stands in a line."""
    return " ".join(description.split())[:MAX_DESCRIPTION].replace("[", "(").replace("]", ")")


def _text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    texts = (fields.get(name) for name in names)
    return next((text for text in texts if isinstance(text, str) and text), None)


def _bytes(fields: Mapping[str, Any]) -> bytes | None:
    """The bytes, however they are written; None where only an address is given."""
    values = (fields.get(name) for name in (*_DATA, *_URL))
    for value in values:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str) and (match := _DATA_URL.fullmatch(value)):
            return _decoded(match[2]) if ";base64," in value[:200] else unquote(match[2]).encode()
    written = _text(fields, _DATA)
    if written is None:
        return None
    is_plain = fields.get("type") == "text"  # Anthropic's documents
    return written.encode(errors="replace") if is_plain else _decoded(written)


def _decoded(text: str) -> bytes:
    """Base64, also as URLs have it; what is something else is the text itself."""
    try:
        padded = text.translate({45: 43, 95: 47}) + "=" * (-len(text) % 4)
        return b64decode(padded, validate=True)
    except (NotBase64, ValueError):
        return text.encode(errors="replace")


def _without_query(url: str) -> str:
    try:
        parts = urlsplit(url)
        return parts._replace(
            query="", fragment="", netloc=parts.netloc.rpartition("@")[2]
        ).geturl()
    except ValueError:
        return ""


def _label(text: str | None) -> str | None:
    """A name that stays on its line and within its brackets."""
    cleaned = " ".join((text or "").encode(errors="replace").decode().replace("\0", " ").split())
    return cleaned.translate({91: 40, 93: 41})[:MAX_LABEL] or None
