"""What the five tools take and give, as pydantic models, and what models are told of them.

Texts are data files of a package, in Chinese and English; `tools.toml` describes the fields.
"""

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kemem.text.ids import MAX_ID

Language = Literal["zh", "en"]
ToolTexts = Literal["short", "full"]
SearchMode = Literal["semantic", "keyword", "hybrid"]
KeywordType = Literal["entity", "action", "concept", "time"]


@cache
def tool_texts(package: str) -> Mapping[str, Any]:
    """The `tools.toml` of a package: what its tools, their fields and their messages say."""
    return tomllib.loads((files(package) / "tools.toml").read_text("utf-8"))


def message(name: str, language: Language, /, **values: object) -> str:
    """A message of the recall agent with its values filled in."""
    template: str = tool_texts(__package__)["messages"][name][language]
    return template.format(**values)


class Model(BaseModel):
    """Input or output of a tool; its fields are described in the `tools.toml` of its package.

    NaN and infinity are not accepted.
    """

    # Built on first use, when its fields have their descriptions.
    model_config = ConfigDict(allow_inf_nan=False, defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name, text in _field_texts(cls).get(cls.__name__, {}).items():
            fields[name].description = text["zh"]


def schema(model: type[Model], language: Language) -> dict[str, Any]:
    """The JSON schema of a model, described in one language."""
    return deepcopy(_schema(model, language))  # the caller may change it


@cache
def _schema(model: type[Model], language: Language) -> dict[str, Any]:
    texts, document = _field_texts(model), model.model_json_schema()
    for name, part in {model.__name__: document, **document.get("$defs", {})}.items():
        part.pop("description", None)
        part.pop("title", None)
        for field, property_schema in part["properties"].items():
            property_schema.pop("title", None)
            property_schema["description"] = texts[name][field][language]
    return document


def _field_texts(model: type[Model]) -> dict[str, dict[str, dict[Language, str]]]:
    fields: dict[str, Any] = tool_texts(model.__module__.rpartition(".")[0])["fields"]
    return fields


class SearchMemoriesInput(Model):
    """记忆搜索工具输入"""

    query: str = Field(min_length=1, max_length=2_000)
    search_mode: SearchMode = "hybrid"
    keywords: list[str] | None = Field(None, max_length=20)
    memory_types: list[str] | None = Field(None, max_length=20)
    time_range_days: int | None = Field(None, ge=1, le=365)
    limit: int = Field(5, ge=1, le=10)
    min_relevance_score: float = Field(0.5, ge=0.0, le=1.0)


class MemorySearchResultItem(Model):
    """单个记忆搜索结果"""

    memory_key: str
    summary: str
    content_preview: str
    memory_type: str | None = None
    relevance_score: float
    created_at: str
    keywords: list[str] = []


class SearchMemoriesOutput(Model):
    """记忆搜索工具输出"""

    success: bool
    total_found: int
    results: list[MemorySearchResultItem] = []
    search_query_expanded: str | None = None
    message: str | None = None


class GetMemoryDetailInput(Model):
    """获取记忆详情输入"""

    memory_key: str = Field(min_length=1, max_length=MAX_ID)


class GetMemoryDetailOutput(Model):
    """获取记忆详情输出"""

    success: bool
    memory_key: str | None = None
    summary: str | None = None
    content: str | None = None
    memory_type: str | None = None
    created_at: str | None = None
    metadata: dict[str, Any] | None = None
    message: str | None = None


class ExtractKeywordsInput(Model):
    """提取关键词输入"""

    query: str = Field(min_length=1, max_length=10_000)
    context: str | None = Field(None, max_length=10_000)
    max_keywords: int = Field(5, ge=1, le=10)


class KeywordExtractionItem(Model):
    """提取的关键词项"""

    keyword: str
    weight: float = Field(ge=0.0, le=1.0)
    type: KeywordType


class ExtractKeywordsOutput(Model):
    """提取关键词输出"""

    success: bool
    keywords: list[KeywordExtractionItem] = []
    expanded_query: str | None = None
    message: str | None = None


class ExpandContextWindowInput(Model):
    """请求拓展上下文窗口"""

    reason: str
    current_size: int
    requested_size: int


class ExpandContextWindowOutput(Model):
    """拓展上下文窗口输出"""

    approved: bool
    new_size: int
    iteration: int
    max_iterations: int
    message: str


class HandoffInput(Model):
    """完成记忆召回任务的输入"""

    reason: str
    search_summary: str
    relevant_memory_keys: list[str] = []
    confidence: float = Field(ge=0.0, le=1.0)
    needs_more_info: bool = False
    follow_up_question: str | None = None
    iteration_used: int = 1
    context_window_used: int = 5


class HandoffOutput(Model):
    """完成记忆召回输出"""

    success: bool
    message: str
    task_completed: bool = True
