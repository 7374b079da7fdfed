"""Input and output of the MCP server's tools, beside those that the recall agent has too.

`tools.toml` describes their fields.
"""

from typing import Literal

from pydantic import Field

from kemem.recall.schemas import Model


class AddMemoryInput(Model):
    """添加记忆输入"""

    content: str = Field(min_length=1, max_length=100_000)
    infer: bool = False


class AddedMemory(Model):
    """一条记忆的变化"""

    memory_key: str
    content: str
    event: Literal["ADD", "UPDATE", "DELETE", "NONE"]


class AddMemoryOutput(Model):
    """添加记忆输出"""

    memories: list[AddedMemory] = Field([])
    message_keys: list[str] = Field([])
    pending: bool = False
    problems: list[str] = Field([])


class RecallMemoriesInput(Model):
    """召回记忆输入"""

    question: str = Field(min_length=1, max_length=10_000)


class RecalledEvidence(Model):
    """一条证据"""

    memory_key: str
    memory_type: str
    content: str
    score: float
    event_time: str


class RecallMemoriesOutput(Model):
    """召回记忆输出"""

    evidence: list[RecalledEvidence] = Field([])
    search_summary: str
    confidence: float
    completed: bool
    follow_up_question: str | None = None
    problems: list[str] = Field([])


class ListMemoriesInput(Model):
    """列出记忆输入"""

    limit: int = Field(20, ge=1, le=50)
    cursor: str | None = Field(None, max_length=2_000)


class ListedMemory(Model):
    """列表中的一条记忆"""

    memory_key: str
    memory_type: str
    content_preview: str
    created_at: str


class ListMemoriesOutput(Model):
    """列出记忆输出"""

    memories: list[ListedMemory] = Field([])
    next_cursor: str | None = None


class ForgetMemoryInput(Model):
    """忘记记忆输入"""

    memory_key: str = Field(min_length=1, max_length=64)


class ForgetMemoryOutput(Model):
    """忘记记忆输出"""

    forgotten: str
    said_in: list[str] = Field([])


class AddKnowledgeInput(Model):
    """添加知识输入"""

    content: str = Field(min_length=1, max_length=100_000)
    summary: str | None = Field(None, min_length=1, max_length=1_000)
    tags: list[str] = Field([], max_length=20)


class AddKnowledgeOutput(Model):
    """添加知识输出"""

    memory_key: str
    summary: str


class SearchKnowledgeInput(Model):
    """搜索知识输入"""

    query: str = Field(min_length=1, max_length=2_000)
    limit: int = Field(3, ge=1, le=10)


class KnowledgeEntry(Model):
    """一条知识"""

    memory_key: str
    summary: str
    content: str
    score: float


class SearchKnowledgeOutput(Model):
    """搜索知识输出"""

    results: list[KnowledgeEntry] = Field([])
