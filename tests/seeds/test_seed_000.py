"""Seed 000, chapters 2 and 3: the models of the five tools, their registry, how they are shown."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from kemem import recall as room
from kemem.recall import MEMRECALL_TOOLS, json_schemas, mcp_tools, openai_tools
from kemem.recall.schemas import Language, tool_texts
from tests.cases import each

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "src" / "kemem" / "recall"
SEED = ROOT.parent / "shared" / "seeds" / "000_6a8868aab45cab84.txt"
CHINESE = re.compile(r"[\u3400-\u9fff]")
BOTH = pytest.mark.parametrize("language", ["zh", "en"])
REQUIRED = PydanticUndefined
NAMES = [
    "search_memories",
    "get_memory_detail",
    "extract_search_keywords",
    "expand_context_window",
    "handoff",
]

# Chapter 2: for each model its fields with their defaults.
FIELDS: dict[str, dict[str, Any]] = {
    "SearchMemoriesInput": {
        "query": REQUIRED,
        "search_mode": "hybrid",
        "keywords": None,
        "memory_types": None,
        "time_range_days": None,
        "limit": 5,
        "min_relevance_score": 0.5,
    },
    "MemorySearchResultItem": {
        "memory_key": REQUIRED,
        "summary": REQUIRED,
        "content_preview": REQUIRED,
        "memory_type": None,
        "relevance_score": REQUIRED,
        "created_at": REQUIRED,
        "keywords": [],
    },
    "SearchMemoriesOutput": {
        "success": REQUIRED,
        "total_found": REQUIRED,
        "results": [],
        "search_query_expanded": None,
        "message": None,
    },
    "GetMemoryDetailInput": {"memory_key": REQUIRED},
    "GetMemoryDetailOutput": {
        "success": REQUIRED,
        **dict.fromkeys(("memory_key", "summary", "content", "memory_type")),
        **dict.fromkeys(("created_at", "metadata", "message")),
    },
    "ExtractKeywordsInput": {"query": REQUIRED, "context": None, "max_keywords": 5},
    "KeywordExtractionItem": {"keyword": REQUIRED, "weight": REQUIRED, "type": REQUIRED},
    "ExtractKeywordsOutput": {
        "success": REQUIRED,
        "keywords": [],
        "expanded_query": None,
        "message": None,
    },
    "ExpandContextWindowInput": dict.fromkeys(
        ("reason", "current_size", "requested_size"), REQUIRED
    ),
    "ExpandContextWindowOutput": dict.fromkeys(
        ("approved", "new_size", "iteration", "max_iterations", "message"), REQUIRED
    ),
    "HandoffInput": {
        "reason": REQUIRED,
        "search_summary": REQUIRED,
        "relevant_memory_keys": [],
        "confidence": REQUIRED,
        "needs_more_info": False,
        "follow_up_question": None,
        "iteration_used": 1,
        "context_window_used": 5,
    },
    "HandoffOutput": {"success": REQUIRED, "message": REQUIRED, "task_completed": True},
}
BOUNDS = {
    ("SearchMemoriesInput", "time_range_days"): (1, 365),
    ("SearchMemoriesInput", "limit"): (1, 10),
    ("SearchMemoriesInput", "min_relevance_score"): (0, 1),
    ("ExtractKeywordsInput", "max_keywords"): (1, 10),
    ("HandoffInput", "confidence"): (0, 1),
}
MODELS: dict[str, type[BaseModel]] = {name: getattr(room, name) for name in FIELDS}
WHOLE: dict[str, dict[str, Any]] = {
    "SearchMemoriesInput": {"query": "数据库 config"},
    "ExtractKeywordsInput": {"query": "数据库 config"},
    "HandoffInput": {"reason": "找到 found", "search_summary": "…", "confidence": 0.5},
}
# Inputs to try: which tool, and what is given to it.
SAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("search_memories", {"query": "上次的方案"}),
    ("search_memories", {"query": "plan", "search_mode": "semantic", "limit": 10}),
    ("search_memories", {"query": "plan", "search_mode": "fuzzy"}),
    ("search_memories", {"query": ""}),
    ("search_memories", {}),
    ("search_memories", {"query": "方案", "keywords": ["数据库", "config"], "memory_types": None}),
    ("search_memories", {"query": "方案", "keywords": "数据库"}),
    ("search_memories", {"query": "方案", "keywords": ["k"] * 21}),
    ("search_memories", {"query": "方案", "time_range_days": None}),
    ("search_memories", {"query": "方案", "time_range_days": 366}),
    ("search_memories", {"query": "方案", "limit": 0}),
    ("search_memories", {"query": "方案", "min_relevance_score": 1.01}),
    ("get_memory_detail", {"memory_key": "db_config_001"}),
    ("get_memory_detail", {"memory_key": "k" * 256}),
    ("get_memory_detail", {"memory_key": 7}),
    ("extract_search_keywords", {"query": "方案", "context": None, "max_keywords": 10}),
    ("extract_search_keywords", {"query": "plan", "context": ["plan"]}),
    ("expand_context_window", {"reason": "太少", "current_size": 5, "requested_size": 10}),
    ("expand_context_window", {"reason": "few", "current_size": 5}),
    ("handoff", {"reason": "完成", "search_summary": "…", "confidence": 1}),
    ("handoff", {"reason": "done", "search_summary": "…", "confidence": 1.5}),
    ("handoff", {"reason": "done", "search_summary": "…"}),
    ("handoff", {**WHOLE["HandoffInput"], "needs_more_info": None}),
    ("handoff", {**WHOLE["HandoffInput"], "relevant_memory_keys": ["a", 1]}),
]


# 2. The models


def test_a_model_has_the_fields_and_defaults_of_the_seed() -> None:
    """In the seed's order."""
    for name, wanted in FIELDS.items():
        defaults = {each: field.default for each, field in MODELS[name].model_fields.items()}
        assert list(defaults.items()) == list(wanted.items()), name


def test_a_model_is_described_in_the_words_of_the_seed() -> None:
    """Each field, and the model itself, where the seed is at hand."""
    if not SEED.exists():
        pytest.skip("the seeds are not beside this checkout")
    seed = SEED.read_text("utf-8")
    for name, model in MODELS.items():
        written = seed.partition(f"class {name}(BaseModel)")[2].partition("class ")[0]
        assert f'"""{model.__doc__}"""' in written
        for part, field in model.model_fields.items():
            line = written.partition(f"    {part}: ")[2]
            assert f'description="{field.description}"' in line, (name, part)


@each(("name", "field"), BOUNDS)
def test_a_number_stays_within_the_bounds_of_the_seed(name: str, field: str) -> None:
    """The bounds themselves are right; NaN is no number."""
    low, high = BOUNDS[name, field]
    known = MODELS[name].model_fields[field].metadata
    assert [Ge(low), Le(high)] == [it for it in known if isinstance(it, Ge | Le)]
    for right in (low, high):
        made = MODELS[name].model_validate({**WHOLE[name], field: right})
        assert getattr(made, field) == right
    for wrong in (low - 1, high + 1, float("nan"), "很多 many"):
        with pytest.raises(ValidationError):
            MODELS[name].model_validate({**WHOLE[name], field: wrong})


@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
def test_there_are_three_modes_of_search(mode: str) -> None:
    room.SearchMemoriesInput.model_validate({"query": "方案 plan", "search_mode": mode})
    with pytest.raises(ValidationError):
        room.SearchMemoriesInput.model_validate({"query": "方案 plan", "search_mode": mode[:-1]})


# 3. The registry, and what is rendered from it


def test_the_registry_holds_the_five_tools() -> None:
    """One of them ends an iteration, one ends the agent."""
    assert list(MEMRECALL_TOOLS) == NAMES
    for name, entry in MEMRECALL_TOOLS.items():
        assert entry["name"] == name and entry["func"].__name__ == f"{name}_tool"
        assert entry["input_model"].__name__.endswith("Input")
        assert entry["output_model"].__name__.endswith("Output")
    assert [it for it in NAMES if MEMRECALL_TOOLS[it].get("is_expansion")] == [NAMES[3]]
    assert [it for it in NAMES if MEMRECALL_TOOLS[it].get("is_handoff")] == [NAMES[4]]


def test_the_tools_are_described_as_in_the_seed() -> None:
    """Character by character, where the seed is at hand."""
    if not SEED.exists():
        pytest.skip("the seeds are not beside this checkout")
    written = SEED.read_text("utf-8")
    for name, entry in MEMRECALL_TOOLS.items():
        assert f'"name": "{name}",\n        "description": """{entry["description"]}"""' in written


def test_every_message_is_known_and_used() -> None:
    """Under the names that the code calls them by, in both languages with the same values."""
    texts = tool_texts("kemem.recall")["messages"]
    code = "".join(file.read_text("utf-8") for file in ROOM.glob("*.py"))
    used = {*re.findall(r"""(?:text|message)\(\s*"(\w+)\"""", code)}
    assert used == texts.keys()
    for name, pair in texts.items():
        zh, en = ({field for _, field, *_ in Formatter().parse(it)} for it in pair.values())
        assert zh - {None} == en - {None}, name


def schemas(language: Language) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema there is of a tool's input or output, with the tool's name."""
    for name, shown in json_schemas(language).items():
        yield name, shown["input"]
        yield name, shown["output"]
    for tool in openai_tools(language):
        yield tool["function"]["name"], tool["function"]["parameters"]
    for tool in mcp_tools(language):
        yield tool["name"], tool["inputSchema"]
        yield tool["name"], tool["outputSchema"]


def descriptions(shown: object) -> Iterator[str]:
    """What is described anywhere in a schema, and the tools themselves."""
    if isinstance(shown, Mapping):
        if isinstance(shown.get("description"), str):
            yield shown["description"]
        for inner in shown.values():
            yield from descriptions(inner)
    elif isinstance(shown, list):
        for inner in shown:
            yield from descriptions(inner)


@BOTH
def test_the_tools_are_rendered_in_three_ways(language: Language) -> None:
    """All with the same names, descriptions and schemas."""
    plain, mcp, openai = json_schemas(language), mcp_tools(language), openai_tools(language)
    assert list(plain) == [it["name"] for it in mcp] == NAMES
    assert [it["function"]["name"] for it in openai] == NAMES
    for of_mcp, of_openai in zip(mcp, openai, strict=True):
        shown = plain[of_mcp["name"]]
        assert of_openai["type"] == "function"
        assert shown["description"] == of_mcp["description"] == of_openai["function"]["description"]
        assert shown["input"] == of_mcp["inputSchema"] == of_openai["function"]["parameters"]
        assert shown["output"] == of_mcp["outputSchema"]
        assert of_mcp["annotations"]["readOnlyHint"] is True
    assert json.loads(json.dumps([plain, mcp, openai])) == [plain, mcp, openai]


@BOTH
def test_descriptions_are_in_one_language(language: Language) -> None:
    """Examples of Chinese stay out of the English ones; every Chinese one has Chinese."""
    every = [*descriptions(json_schemas(language)), *descriptions(openai_tools(language))]
    assert len(every) > 60
    for text in every:
        assert bool(CHINESE.search(text)) == (language == "zh"), text


@BOTH
def test_every_field_is_described(language: Language) -> None:
    for name, schema in schemas(language):
        assert (schema["type"], "title" in schema) == ("object", False)
        for part in (schema, *schema.get("$defs", {}).values()):
            for field, shown in part["properties"].items():
                assert shown["description"].strip(), (name, field)
            assert {*part["required"]} <= part["properties"].keys()


@BOTH
def test_no_tool_takes_a_user(language: Language) -> None:
    """Whose memories are meant is settled before a model is asked."""
    for _, schema in schemas(language):
        assert not re.search(r"user_?id|owner|tenant|session_?id", json.dumps(schema), re.I)


TYPES: dict[str, type | tuple[type, ...]] = {
    **{"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)},
    **{"boolean": bool, "null": type(None)},
}
KNOWN = {
    *("type", "properties", "required", "items", "anyOf", "enum", "description", "default"),
    *("minimum", "maximum", "minLength", "maxLength", "maxItems"),
}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Whether a JSON schema admits a value; a word of schemas that is not known here fails."""
    assert schema.keys() <= KNOWN, schema
    if "anyOf" in schema:
        return any(accepts(each, value) for each in schema["anyOf"])
    if isinstance(value, bool) and schema["type"] != "boolean":
        return False
    if not isinstance(value, TYPES[schema["type"]]) or value not in schema.get("enum", [value]):
        return False
    if isinstance(value, dict):
        known = schema["properties"]
        return {*schema.get("required", ())} <= value.keys() and all(
            accepts(known[name], inner) for name, inner in value.items() if name in known
        )
    if isinstance(value, list):
        fits = bool(len(value) <= schema.get("maxItems", len(value)))
        return fits and all(accepts(schema["items"], inner) for inner in value)
    if isinstance(value, str):
        length, longest = len(value), schema.get("maxLength", len(value))
        return bool(schema.get("minLength", 0) <= length <= longest)
    if isinstance(value, int | float):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return True


@BOTH
def test_a_schema_accepts_what_its_model_accepts(language: Language) -> None:
    """No more and no less: a model that keeps to the schema is never refused."""
    schemas = json_schemas(language)
    for name, given in SAMPLES:
        try:
            MEMRECALL_TOOLS[name]["input_model"].model_validate(given)
            accepted = True
        except ValidationError:
            accepted = False
        assert accepts(schemas[name]["input"], given) == accepted, (name, given)
