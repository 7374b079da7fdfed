"""What travels over HTTP about recalls: evidence and steps."""

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.serve.http.schemas import Share, Time


class EvidenceItem(TypedDict):
    """A memory that answers, and the messages that say it."""

    memory_key: str
    kind: str
    memory_type: str
    content: str
    summary: str
    score: Share
    said_by: str
    event_time: Time
    message_ids: list[str]


class StepItem(TypedDict):
    """One move of a recall."""

    number: int
    iteration: int
    tool: str
    arguments: dict[str, Any]
    success: bool
    outcome: str
    keys: list[str]
    started: Time
    seconds: float
    cached: bool


class LimitsItem(TypedDict):
    """What a recall was limited to."""

    max_iterations: int
    max_window: int
    max_calls: int
    seconds: float
    windows: list[int]
    memory_types: list[str]
    time_range_days: int | None
    min_relevance_score: float | None


class Recollection(TypedDict):
    """What was found, how sure it is, and every step of the way; `text` is for a prompt."""

    question: str
    completed: bool
    by: Literal["llm", "rules"]
    reason: str
    search_summary: str
    confidence: Share
    needs_more_info: bool
    follow_up_question: str | None
    relevant_memory_keys: list[str]
    message_ids: list[str]
    evidence: list[EvidenceItem]
    message: str
    text: str
    iteration_used: int
    context_window_used: int
    limits: LimitsItem
    trace: list[StepItem]
    problems: list[str]
