"""What the five tools take and give, as models; each field is described in both languages."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SearchMode = Literal["semantic", "keyword", "hybrid"]
KeywordKind = Literal["entity", "action", "concept", "time"]


@dataclass(frozen=True, slots=True)
class English:
    """The description of a field in English, beside the Chinese one."""

    text: str


class Model(BaseModel):
    """NaN and infinity are no numbers here."""

    model_config = ConfigDict(allow_inf_nan=False)


class SearchMemoriesInput(Model):
    """记忆搜索工具输入"""

    query: Annotated[
        str,
        English(
            "What to search for, in natural language or as keywords. "
            "Example: 'the database settings the user gave before'"
        ),
    ] = Field(
        ...,
        min_length=1,
        max_length=2_000,
        description="搜索查询，可以是自然语言描述或关键词。例如：'用户之前配置的数据库参数'",
    )
    search_mode: Annotated[
        SearchMode,
        English("How to search: semantic by meaning, keyword by words, hybrid by both"),
    ] = Field(
        default="hybrid",
        description="搜索模式: semantic-语义匹配, keyword-关键词匹配, hybrid-混合",
    )
    keywords: Annotated[
        list[str] | None,
        English(
            "Exact words to filter by; a memory must contain at least one. "
            "Example: ['database', 'config']"
        ),
    ] = Field(
        default=None,
        max_length=20,
        description="可选的精确关键词列表，用于精确过滤。例如：['database', 'config']",
    )
    memory_types: Annotated[
        list[str] | None,
        English("Only memories of these types, such as ['user_preference', 'command_output']"),
    ] = Field(
        default=None,
        max_length=20,
        description="按记忆类型过滤，如 ['user_preference', 'command_output', 'general']",
    )
    time_range_days: Annotated[int | None, English("Only memories of the last N days")] = Field(
        default=None, ge=1, le=365, description="时间范围过滤，最近 N 天内的记忆"
    )
    limit: Annotated[int, English("Most results to return")] = Field(
        default=5, ge=1, le=10, description="返回结果数量限制"
    )
    min_relevance_score: Annotated[float, English("Memories that score less are left out")] = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="最小相关性分数阈值，低于此值的记忆将被过滤",
    )


class MemorySearchResultItem(Model):
    """单个记忆搜索结果"""

    memory_key: Annotated[str, English("The memory's unique key")] = Field(
        ..., description="记忆的唯一标识符"
    )
    summary: Annotated[str, English("The memory in short")] = Field(..., description="记忆摘要")
    content_preview: Annotated[str, English("The first 200 characters")] = Field(
        ..., description="内容预览（前200字符）"
    )
    memory_type: Annotated[str | None, English("The memory's type")] = Field(
        default=None, description="记忆类型"
    )
    relevance_score: Annotated[float, English("Relevance, 0.0-1.0")] = Field(
        ..., description="相关性分数 0.0-1.0"
    )
    created_at: Annotated[str, English("When it was remembered, ISO format")] = Field(
        ..., description="创建时间 ISO 格式"
    )
    keywords: Annotated[list[str], English("Keywords of the memory")] = Field(
        default=[], description="关联的关键词列表"
    )


class SearchMemoriesOutput(Model):
    """记忆搜索工具输出"""

    success: Annotated[bool, English("Whether the search worked")] = Field(
        ..., description="搜索是否成功"
    )
    total_found: Annotated[int, English("How many memories matched in all")] = Field(
        ..., description="找到的记忆总数"
    )
    results: Annotated[list[MemorySearchResultItem], English("The best of them")] = Field(
        default=[], description="搜索结果列表"
    )
    search_query_expanded: Annotated[str | None, English("The query in keywords")] = Field(
        default=None, description="扩展后的搜索查询"
    )
    message: Annotated[str | None, English("Advice, or what went wrong")] = Field(
        default=None, description="附加信息或错误消息"
    )


class GetMemoryDetailInput(Model):
    """获取记忆详情输入"""

    memory_key: Annotated[
        str, English("The memory's unique key, from the results of search_memories")
    ] = Field(
        ...,
        min_length=1,
        max_length=64,
        description="记忆的唯一标识符（从 search_memories 结果中获取）",
    )


class GetMemoryDetailOutput(Model):
    """获取记忆详情输出"""

    success: Annotated[bool, English("Whether the memory was found")] = Field(
        ..., description="是否成功获取"
    )
    memory_key: Annotated[str | None, English("The memory's key")] = Field(
        default=None, description="记忆标识符"
    )
    summary: Annotated[str | None, English("The memory in short")] = Field(
        default=None, description="记忆摘要"
    )
    content: Annotated[str | None, English("The whole content")] = Field(
        default=None, description="完整内容"
    )
    memory_type: Annotated[str | None, English("The memory's type")] = Field(
        default=None, description="记忆类型"
    )
    created_at: Annotated[str | None, English("When it was remembered")] = Field(
        default=None, description="创建时间"
    )
    metadata: Annotated[
        dict[str, Any] | None, English("What else is known: sources, and what was said around it")
    ] = Field(default=None, description="附加元数据")
    message: Annotated[str | None, English("Advice, or what went wrong")] = Field(
        default=None, description="错误或状态信息"
    )


class ExtractKeywordsInput(Model):
    """提取关键词输入"""

    query: Annotated[str, English("The question as the user put it")] = Field(
        ..., min_length=1, max_length=10_000, description="用户原始查询"
    )
    context: Annotated[
        str | None, English("What was said around it, for more accurate keywords")
    ] = Field(
        default=None,
        max_length=10_000,
        description="可选的上下文信息，帮助更准确地提取关键词",
    )
    max_keywords: Annotated[int, English("Most keywords to extract")] = Field(
        default=5, ge=1, le=10, description="最多提取的关键词数量"
    )


class KeywordExtractionItem(Model):
    """提取的关键词项"""

    keyword: Annotated[str, English("The keyword")] = Field(..., description="关键词")
    weight: Annotated[float, English("Importance, 0.0-1.0")] = Field(
        ..., ge=0.0, le=1.0, description="重要性权重 0.0-1.0"
    )
    type: Annotated[KeywordKind, English("entity, action, concept or time")] = Field(
        ..., description="类型: entity(实体), action(动作), concept(概念), time(时间)"
    )


class ExtractKeywordsOutput(Model):
    """提取关键词输出"""

    success: Annotated[bool, English("Whether it worked")] = Field(..., description="是否成功")
    keywords: Annotated[list[KeywordExtractionItem], English("Most important first")] = Field(
        default=[], description="提取的关键词列表"
    )
    expanded_query: Annotated[str | None, English("A better query to search with")] = Field(
        default=None, description="扩展后的搜索查询"
    )
    message: Annotated[str | None, English("Advice, or what went wrong")] = Field(
        default=None, description="状态或错误信息"
    )


class ExpandContextWindowInput(Model):
    """请求拓展上下文窗口"""

    reason: Annotated[
        str, English("Why more is needed, e.g. 'the results are poor, earlier talk may help'")
    ] = Field(
        ...,
        description="需要拓展的原因，例如：'搜索结果不理想，需要查看更早的对话'",
    )
    current_size: Annotated[int, English("Messages shown now")] = Field(
        ..., description="当前使用的消息数"
    )
    requested_size: Annotated[int, English("Messages asked for")] = Field(
        ..., description="请求拓展到的消息数"
    )


class ExpandContextWindowOutput(Model):
    """拓展上下文窗口输出"""

    approved: Annotated[bool, English("Whether more will be shown")] = Field(
        ..., description="是否批准拓展"
    )
    new_size: Annotated[int, English("Messages in the window from now on")] = Field(
        ..., description="新的上下文窗口大小"
    )
    iteration: Annotated[int, English("The round that comes next, from 1")] = Field(
        ..., description="下一迭代轮数（从1开始）"
    )
    max_iterations: Annotated[int, English("Most rounds that are allowed")] = Field(
        ..., description="最大允许迭代次数"
    )
    message: Annotated[str, English("What was decided")] = Field(..., description="状态信息")


class HandoffInput(Model):
    """完成记忆召回任务的输入"""

    reason: Annotated[
        str,
        English("Why the task ends, e.g. 'relevant memories were found' or 'no rounds are left'"),
    ] = Field(
        ...,
        description=(
            "结束任务的原因，例如：'已找到相关记忆，搜索完成' 或 "
            "'达到最大迭代次数，返回当前最佳结果'"
        ),
    )
    search_summary: Annotated[
        str, English("What was found: the memories that matter and what they say")
    ] = Field(..., description="搜索结果的总结，包括找到的相关记忆和关键信息")
    relevant_memory_keys: Annotated[list[str], English("Keys of the memories that matter")] = Field(
        default=[], description="相关记忆的 key 列表"
    )
    confidence: Annotated[
        float, English("How sure it is that they answer the question, 0.0-1.0")
    ] = Field(..., ge=0.0, le=1.0, description="对搜索结果相关性的信心度 0.0-1.0")
    needs_more_info: Annotated[bool, English("Whether the user has to say more")] = Field(
        default=False, description="是否需要更多信息来精确定位记忆"
    )
    follow_up_question: Annotated[str | None, English("What to ask the user then")] = Field(
        default=None, description="如果需要更多信息，向用户提出的问题"
    )
    iteration_used: Annotated[int, English("Rounds that were used")] = Field(
        default=1, description="完成时使用的迭代轮数"
    )
    context_window_used: Annotated[int, English("Messages in the last window")] = Field(
        default=5, description="最终使用的上下文窗口大小（消息数）"
    )


class HandoffOutput(Model):
    """完成记忆召回输出"""

    success: Annotated[bool, English("Whether it worked")] = Field(..., description="是否成功")
    message: Annotated[str, English("The final message")] = Field(..., description="最终结果消息")
    task_completed: Annotated[bool, English("Whether the task is done")] = Field(
        default=True, description="任务是否完成"
    )
