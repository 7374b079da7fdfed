"""The tools of a chat, with exactly these names: what the model is told, and what answers it."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kemem.chat.recalls import Recalls
from kemem.ports import Tool
from kemem.text.fence import neutralise

RECALL = "recall_memory"
OTHERS = "get_other_members_messages"
MENTIONED = "is_mentioned"

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_DESCRIPTIONS = {
    "zh": {
        RECALL: '回忆：按查询检索关于这位用户的记忆。返回 {"events": [...]}。',
        OTHERS: "查看本轮中其他成员已经说了什么。",
        MENTIONED: "查看本轮中自己是否被提及（@）。",
        "query": "要回忆的内容，用完整的词句描述",
    },
    "en": {
        RECALL: 'Recall what is known of this user that fits a query. Returns {"events": [...]}.',
        OTHERS: "See what the other members have said in this round.",
        MENTIONED: "See whether you are mentioned (@) in this round.",
        "query": "What to recall, in full words",
    },
}

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class ChatTool:
    """A tool that a chat model can call."""

    tool: Tool
    run: Callable[[Mapping[str, Any]], Awaitable[str]]

    async def answer(self, arguments: str) -> str:
        """The result of a call; arguments that do not fit are told to the model, not raised."""
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return refused(f"the arguments of {self.tool.name} must be a JSON object")
        if not isinstance(given, dict):
            return refused(f"the arguments of {self.tool.name} must be a JSON object")
        return await self.run(given)


def recall_tool(language: str) -> Tool:
    """What a model is told of recall_memory."""
    words = _DESCRIPTIONS[language]
    query = {"type": "string", "minLength": 1, "description": words["query"]}
    schema = {"type": "object", "properties": {"query": query}, "required": ["query"]}
    return Tool(RECALL, words[RECALL], {**schema, "additionalProperties": False})


def recalling(recalls: Recalls, language: str) -> ChatTool:
    """recall_memory, on the memories that are bound to it: no argument tells whose."""

    async def run(given: Mapping[str, Any]) -> str:
        query = given.get("query")
        if not isinstance(query, str) or not query.strip():
            return refused(f"query must be a text that is not blank, not {query!r:.80}")
        return to_json(await recalls.asked(query))

    return ChatTool(recall_tool(language), run)


def telling(name: str, answer: str, language: str) -> ChatTool:
    """A tool of a group that takes nothing and answers the same all round."""

    async def run(given: Mapping[str, Any]) -> str:
        log.info("%s: answered", name)
        return answer

    return ChatTool(Tool(name, _DESCRIPTIONS[language][name], _NOTHING), run)


def others_content(lines: list[tuple[str, str]], language: str) -> str:
    """What other members said in a round, a line each.  [("林", "吃火锅")] -> "林：吃火锅" """
    if not lines:
        return "本轮其他成员还没有发言" if language == "zh" else "No other member has spoken yet"
    colon = "：" if language == "zh" else ": "
    return "\n".join(f"{name}{colon}{_line(neutralise(text))}" for name, text in lines)


def mentioned_text(mentioned: bool, language: str) -> str:
    """What is_mentioned answers."""
    if language == "zh":
        return "被提及，需要发言" if mentioned else "未被提及，可自行判断"
    if mentioned:
        return "You are mentioned and need to speak"
    return "You are not mentioned; judge by yourself whether to speak"


def refused(reason: str) -> str:
    """A call that cannot be carried out, as the model is told."""
    return to_json({"error": {"code": "INVALID_ARGUMENT", "message": reason}})


def to_json(value: object) -> str:
    """JSON as models read it best: nothing is escaped that need not be."""
    return json.dumps(value, ensure_ascii=False)


def _line(text: str) -> str:
    """One line, so that a text cannot pose as another member's."""
    return " ".join(text.split())
