"""The recall agent: five tools that find, for another agent, what a user's memories say."""

from kemem.recall.agent import MemoryContext, RecallAgent
from kemem.recall.registry import MEMRECALL_TOOLS, json_schemas, mcp_tools, openai_tools
from kemem.recall.results import Evidence, Limits, RecallCallback, Recalled, RecallReport, Step
from kemem.recall.schemas import (
    ExpandContextWindowInput,
    ExpandContextWindowOutput,
    ExtractKeywordsInput,
    ExtractKeywordsOutput,
    GetMemoryDetailInput,
    GetMemoryDetailOutput,
    HandoffInput,
    HandoffOutput,
    KeywordExtractionItem,
    MemorySearchResultItem,
    SearchMemoriesInput,
    SearchMemoriesOutput,
)
from kemem.recall.state import Budget, Cache, Caches

Account = RecallReport  # the former names of these two
OnRecall = RecallCallback

__all__ = ["Budget", "Cache", "Caches", "Limits", "MemoryContext", "RecallAgent"]
__all__ += ["Account", "Evidence", "OnRecall", "RecallCallback", "RecallReport", "Recalled", "Step"]
__all__ += ["MEMRECALL_TOOLS", "json_schemas", "mcp_tools", "openai_tools"]
__all__ += ["MemorySearchResultItem", "SearchMemoriesInput", "SearchMemoriesOutput"]
__all__ += ["GetMemoryDetailInput", "GetMemoryDetailOutput"]
__all__ += ["ExtractKeywordsInput", "ExtractKeywordsOutput", "KeywordExtractionItem"]
__all__ += ["ExpandContextWindowInput", "ExpandContextWindowOutput"]
__all__ += ["HandoffInput", "HandoffOutput"]
