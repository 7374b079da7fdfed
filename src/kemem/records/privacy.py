"""What a store may keep of a text: how long it may be, and what happens to personal data in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

DataKind = Literal["api_key", "password", "id_number", "card_number", "phone_number", "email"]
Action = Literal["keep", "mark", "mask", "refuse"]

DATA_KINDS: tuple[DataKind, ...] = get_args(DataKind)
SECRETS: tuple[DataKind, ...] = ("api_key", "password", "id_number", "card_number")
DEFAULT_ACTIONS: Mapping[DataKind, Action] = {
    kind: "mark" if kind in SECRETS else "keep" for kind in DATA_KINDS
}


class PolicySettings(Protocol):
    """The settings that a policy follows from."""

    max_content_bytes: int
    privacy_api_key: Action
    privacy_password: Action
    privacy_id_number: Action
    privacy_card_number: Action
    privacy_phone_number: Action
    privacy_email: Action


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """The limits of a server on what it stores, by its settings."""

    max_bytes: int
    actions: Mapping[DataKind, Action] = field(default_factory=lambda: DEFAULT_ACTIONS)

    @classmethod
    def of(cls, settings: PolicySettings) -> "ContentPolicy":
        """The policy of some settings."""
        return cls(
            settings.max_content_bytes,
            {
                "api_key": settings.privacy_api_key,
                "password": settings.privacy_password,
                "id_number": settings.privacy_id_number,
                "card_number": settings.privacy_card_number,
                "phone_number": settings.privacy_phone_number,
                "email": settings.privacy_email,
            },
        )
