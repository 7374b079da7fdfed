"""The recall agent: five tools that find, for another agent, what a user's memories say."""

from kemem.recall.agent import RecallAgent
from kemem.recall.caches import Cache, Caches
from kemem.recall.context import MemoryContext
from kemem.recall.desk import Budget
from kemem.recall.models import (
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
from kemem.recall.registry import MEMRECALL_TOOLS
from kemem.recall.render import json_schemas, mcp_tools, openai_tools
from kemem.recall.result import Account, Evidence, Limits, OnRecall, Recalled, Step

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
    "Recalled",
    "SearchMemoriesInput",
    "SearchMemoriesOutput",
    "Step",
    "json_schemas",
    "mcp_tools",
    "openai_tools",
]
