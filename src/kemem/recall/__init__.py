"""The recall agent: five tools that find, for another agent, what a user's memories say."""

from kemem.recall.agent import MemoryContext, RecallAgent
from kemem.recall.caches import Cache, Caches
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
from kemem.recall.state import Budget

Account = RecallReport  # the former names of these two
OnRecall = RecallCallback

__all__ = [
    "MEMRECALL_TOOLS",
    "Account",
    "Budget",
    "Cache",
    "Caches",
    "Evidence",
    "ExpandContextWindowInput",
    "ExpandContextWindowOutput",
    "ExtractKeywordsInput",
    "ExtractKeywordsOutput",
    "GetMemoryDetailInput",
    "GetMemoryDetailOutput",
    "HandoffInput",
    "HandoffOutput",
    "KeywordExtractionItem",
    "Limits",
    "MemoryContext",
    "MemorySearchResultItem",
    "OnRecall",
    "RecallAgent",
    "RecallCallback",
    "RecallReport",
    "Recalled",
    "SearchMemoriesInput",
    "SearchMemoriesOutput",
    "Step",
    "json_schemas",
    "mcp_tools",
    "openai_tools",
]
