"""What a chat model is told before a turn."""

from collections.abc import Sequence
from importlib.resources import files

from kemem.text.fence import fenced

SILENCE = "[silent]"  # the reply of a member of a group who has nothing to say
_ASSISTANT = {
    "zh": "你是一位贴心、可靠的助手，记得用户告诉过你的事。",
    "en": "You are a thoughtful, reliable assistant who remembers what the user has told you.",
}


def system(
    instructions: str | None, limit: int, language: str, summaries: Sequence[str] = ()
) -> str:
    """Who the model is, how it recalls, and what was said before what it is shown."""
    told = _read(f"chat_{language}.md").format(
        instructions=instructions or _ASSISTANT[language], limit=limit
    )
    return f"{told}\n{fenced('summaries', chr(10).join(summaries))}\n" if summaries else told


def as_member(
    instructions: str | None, name: str, member_id: str, others: Sequence[str], language: str
) -> str:
    """Who a member of a group is, for `system`."""
    group = _read(f"group_{language}.md").format(
        name=name,
        member_id=member_id,
        others=("、" if language == "zh" else ", ").join(others) or "—",
        silence=SILENCE,
    )
    return f"{instructions}\n\n{group}" if instructions else group


def _read(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")
