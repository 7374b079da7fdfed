"""The five tools, each described once: whatever shows them is rendered from here."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NotRequired, TypedDict

from kemem.recall.models import (
    ExpandContextWindowInput,
    ExpandContextWindowOutput,
    ExtractKeywordsInput,
    ExtractKeywordsOutput,
    GetMemoryDetailInput,
    GetMemoryDetailOutput,
    HandoffInput,
    HandoffOutput,
    Model,
    SearchMemoriesInput,
    SearchMemoriesOutput,
)
from kemem.recall.tools import (
    expand_context_window_tool,
    extract_search_keywords_tool,
    get_memory_detail_tool,
    handoff_tool,
    search_memories_tool,
)


class ToolEntry(TypedDict):
    """A tool: what it is called, when to use it, what it takes and gives, and what it does."""

    name: str
    description: str  # in Chinese
    description_en: str
    input_model: type[Model]
    output_model: type[Model]
    func: Callable[..., Awaitable[Any]]  # of the desk and the input
    is_expansion: NotRequired[bool]  # a call that is approved ends the iteration
    is_handoff: NotRequired[bool]  # a call ends the agent
    title: NotRequired[str]  # for people, in Chinese
    title_en: NotRequired[str]
    hints: NotRequired[Mapping[str, bool]]  # of MCP, where it does more than read


MEMRECALL_TOOLS: dict[str, ToolEntry] = {
    "search_memories": {
        "name": "search_memories",
        "description": """搜索用户的历史记忆。

使用场景:
1. 用户提到之前讨论过的话题时
2. 需要了解用户偏好或历史操作时
3. 需要验证或引用之前的结论时
4. 上下文出现不明确的引用时（如"按照之前的配置"）

搜索策略:
- 模糊查询时使用 search_mode="semantic"
- 有明确关键词时使用 search_mode="keyword"
- 不确定时使用默认的 "hybrid" 模式

示例:
- "我之前的数据库配置" -> keywords=["数据库", "配置"]
- "上次的方案" -> search_mode="semantic", query="上次讨论的方案"
""",
        "description_en": """Search the user's memories.

When to use it:
1. The user mentions something that was discussed before
2. You need the user's preferences or past actions
3. An earlier conclusion has to be checked or quoted
4. Something refers to the past without saying what (such as "with the settings from before")

How to search:
- search_mode="semantic" when the question is vague
- search_mode="keyword" when the exact words are known
- the default "hybrid" when in doubt

Examples:
- "my database settings from before" -> keywords=["database", "settings"]
- "the plan from last time" -> search_mode="semantic", query="the plan discussed last time"
""",
        "input_model": SearchMemoriesInput,
        "output_model": SearchMemoriesOutput,
        "func": search_memories_tool,
    },
    "get_memory_detail": {
        "name": "get_memory_detail",
        "description": """获取特定记忆的完整内容。

使用场景:
1. search_memories 返回的记忆摘要不完整
2. 需要查看记忆的具体内容细节
3. 需要确认记忆的具体元数据

注意: 必须通过 search_memories 获取 memory_key 后再调用此工具
""",
        "description_en": """Get the whole content of one memory.

When to use it:
1. The preview from search_memories is not enough
2. The details matter
3. You need its metadata, or what was said around it

Note: take the memory_key from the results of search_memories
""",
        "input_model": GetMemoryDetailInput,
        "output_model": GetMemoryDetailOutput,
        "func": get_memory_detail_tool,
    },
    "extract_search_keywords": {
        "name": "extract_search_keywords",
        "description": """从复杂查询中提取关键词（辅助工具）。

使用场景:
1. 用户查询很长很复杂
2. 不确定应该搜索哪些关键词
3. 需要系统性地分析用户意图

通常不需要直接调用，search_memories 会自动处理关键词提取
""",
        "description_en": """Extract keywords from a complex question (an aid).

When to use it:
1. The question is long and complex
2. It is not clear which words to search for
3. The user's intent needs a careful look

Usually not needed: search_memories extracts keywords by itself
""",
        "input_model": ExtractKeywordsInput,
        "output_model": ExtractKeywordsOutput,
        "func": extract_search_keywords_tool,
    },
    "expand_context_window": {
        "name": "expand_context_window",
        "description": """请求拓展上下文窗口大小。

使用场景:
1. 当前搜索结果不理想，需要查看更多历史消息
2. 用户查询涉及久远的对话，需要回溯更早的上下文
3. 当前上下文不足以理解用户意图

重要: 调用此工具后会立即结束当前迭代，系统将重新发起调用并提供更多消息！
此工具只能在未达到最大迭代次数时使用。

示例:
- reason="搜索结果太少，需要查看更早的对话来找到相关记忆"
- current_size=5, requested_size=10
""",
        "description_en": """Ask for a larger window of the conversation.

When to use it:
1. The results are poor and more of the conversation may help
2. The question is about something said long ago
3. The window is too small to understand what the user means

Important: an approved call ends this round at once; you are called again with more messages.
It can only be used while rounds are left.

Example:
- reason="too few results; earlier messages may name what is meant"
- current_size=5, requested_size=10
""",
        "input_model": ExpandContextWindowInput,
        "output_model": ExpandContextWindowOutput,
        "func": expand_context_window_tool,
        "is_expansion": True,
    },
    "handoff": {
        "name": "handoff",
        "description": """完成记忆搜索任务并结束 Agent。

使用场景:
1. 已完成记忆搜索并整理出结果
2. 无法找到相关记忆，需要报告完成情况
3. 已达到最大迭代次数，必须结束

重要: 调用此工具后 MemRecallAgent 会立即结束！这是唯一的正常退出方式。

示例:
- reason="已找到3个相关记忆，搜索完成"
- reason="达到最大迭代次数，返回当前最佳结果"
""",
        "description_en": """Finish the recall and end the agent.

When to use it:
1. The search is done and its results are in order
2. Nothing relevant can be found, and that has to be reported
3. No rounds are left

Important: the agent ends with this call; there is no other proper way out.

Examples:
- reason="3 relevant memories were found"
- reason="no rounds are left; these are the best results so far"
""",
        "input_model": HandoffInput,
        "output_model": HandoffOutput,
        "func": handoff_tool,
        "is_handoff": True,
    },
}
