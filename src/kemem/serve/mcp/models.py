"""What the tools of the MCP server take and give, beside those that the recall agent has too."""

from typing import Annotated, Literal

from pydantic import Field

from kemem.recall.models import English, Model

_KEY = "记忆的唯一标识符"
_KEY_EN = "The memory's unique key"


class AddMemoryInput(Model):
    """添加记忆输入"""

    content: Annotated[
        str,
        English(
            "What to remember: one fact, a whole sentence. Example: 'The user can't eat spicy food'"
        ),
    ] = Field(
        ...,
        min_length=1,
        max_length=100_000,
        description="要记住的内容，最好是一句完整的话、一个事实。例如：'用户不吃辣'",
    )
    infer: Annotated[
        bool,
        English(
            "False: remember it word by word. True: it is something the user said; draw facts "
            "from it and replace what is no longer true"
        ),
    ] = Field(
        default=False,
        description="false-逐字记住；true-内容是用户说的原话，从中提取事实并更新过时的记忆",
    )


class AddedMemory(Model):
    """一条记忆的变化"""

    memory_key: Annotated[str, English(_KEY_EN)] = Field(..., description=_KEY)
    content: Annotated[str, English("What is remembered")] = Field(..., description="记住的内容")
    event: Annotated[
        Literal["ADD", "UPDATE", "DELETE", "NONE"],
        English("ADD: new; UPDATE: replaces another; DELETE: no longer true; NONE: known before"),
    ] = Field(..., description="ADD-新增, UPDATE-更新, DELETE-不再成立, NONE-早已知道")


class AddMemoryOutput(Model):
    """添加记忆输出"""

    memories: Annotated[list[AddedMemory], English("What became of each fact")] = Field(
        default=[], description="每个事实的变化"
    )
    message_keys: Annotated[
        list[str], English("Keys of the messages stored, which can be searched too")
    ] = Field(default=[], description="已保存的消息的 key，同样可以搜索")
    pending: Annotated[
        bool, English("True: stored and searchable; facts are drawn a little later")
    ] = Field(default=False, description="true-已保存、可搜索，事实稍后提取")
    problems: Annotated[list[str], English("What was left for later, or left out")] = Field(
        default=[], description="留待以后或被略去的部分"
    )


class RecallMemoriesInput(Model):
    """召回记忆输入"""

    question: Annotated[
        str, English("What you need to know. Example: 'what food does the user avoid?'")
    ] = Field(
        ..., min_length=1, max_length=10_000, description="需要知道什么。例如：'用户忌口什么？'"
    )


class RecalledEvidence(Model):
    """一条证据"""

    memory_key: Annotated[str, English(_KEY_EN)] = Field(..., description=_KEY)
    memory_type: Annotated[str, English("The memory's type")] = Field(..., description="记忆类型")
    content: Annotated[str, English("What it says; the whole text is in get_memory")] = Field(
        ..., description="内容；全文见 get_memory"
    )
    score: Annotated[float, English("Relevance, 0.0-1.0")] = Field(
        ..., description="相关性分数 0.0-1.0"
    )
    event_time: Annotated[str, English("When it was said or became true, ISO format")] = Field(
        ..., description="发生时间 ISO 格式"
    )


class RecallMemoriesOutput(Model):
    """召回记忆输出"""

    evidence: Annotated[list[RecalledEvidence], English("Memories that answer, best first")] = (
        Field(default=[], description="能回答问题的记忆，最好的在前")
    )
    search_summary: Annotated[str, English("What was found, in short")] = Field(
        ..., description="搜索结果的总结"
    )
    confidence: Annotated[
        float, English("How sure it is that they answer the question, 0.0-1.0")
    ] = Field(..., description="信心度 0.0-1.0")
    completed: Annotated[bool, English("False: a limit ended the search early")] = Field(
        ..., description="false-因达到上限而提前结束"
    )
    follow_up_question: Annotated[
        str | None, English("What to ask the user, if they have to say more")
    ] = Field(default=None, description="如果需要更多信息，向用户提出的问题")
    problems: Annotated[list[str], English("What failed on the way")] = Field(
        default=[], description="途中出现的问题"
    )


class ListMemoriesInput(Model):
    """列出记忆输入"""

    limit: Annotated[int, English("Most memories on a page")] = Field(
        default=20, ge=1, le=50, description="每页的记忆数量"
    )
    cursor: Annotated[str | None, English("next_cursor of the page before")] = Field(
        default=None, max_length=2_000, description="上一页的 next_cursor"
    )


class ListedMemory(Model):
    """列表中的一条记忆"""

    memory_key: Annotated[str, English(_KEY_EN)] = Field(..., description=_KEY)
    memory_type: Annotated[str, English("The memory's type")] = Field(..., description="记忆类型")
    content_preview: Annotated[str, English("How it begins")] = Field(..., description="内容预览")
    created_at: Annotated[str, English("When it was remembered, ISO format")] = Field(
        ..., description="创建时间 ISO 格式"
    )


class ListMemoriesOutput(Model):
    """列出记忆输出"""

    memories: Annotated[list[ListedMemory], English("Newest first")] = Field(
        default=[], description="最新的在前"
    )
    next_cursor: Annotated[str | None, English("Leads to the next page; null on the last")] = Field(
        default=None, description="下一页的 cursor；最后一页为 null"
    )


class ForgetMemoryInput(Model):
    """忘记记忆输入"""

    memory_key: Annotated[
        str, English("The key of the memory, from search_memories or list_memories")
    ] = Field(
        ...,
        min_length=1,
        max_length=64,
        description="记忆的唯一标识符（从 search_memories 或 list_memories 中获取）",
    )


class ForgetMemoryOutput(Model):
    """忘记记忆输出"""

    forgotten: Annotated[str, English("The key of the memory that is gone")] = Field(
        ..., description="已删除的记忆的 key"
    )
    said_in: Annotated[
        list[str],
        English("Messages that it was drawn from; they stay, and can be forgotten by these keys"),
    ] = Field(default=[], description="记忆的来源消息；它们仍然保留，可以用这些 key 删除")


class AddKnowledgeInput(Model):
    """添加知识输入"""

    content: Annotated[str, English("The knowledge in full")] = Field(
        ..., min_length=1, max_length=100_000, description="知识的详细内容"
    )
    summary: Annotated[str | None, English("The content in one line")] = Field(
        default=None, min_length=1, max_length=1_000, description="内容的简短摘要"
    )
    tags: Annotated[list[str], English("Words to find it by")] = Field(
        default=[], max_length=20, description="用于检索的标签"
    )


class AddKnowledgeOutput(Model):
    """添加知识输出"""

    memory_key: Annotated[str, English("The key of the new entry")] = Field(
        ..., description="新知识条目的唯一标识符"
    )
    summary: Annotated[str, English("Its summary")] = Field(..., description="知识条目的摘要")


class SearchKnowledgeInput(Model):
    """搜索知识输入"""

    query: Annotated[str, English("What to search for")] = Field(
        ..., min_length=1, max_length=2_000, description="查询内容"
    )
    limit: Annotated[int, English("Most results to return")] = Field(
        default=3, ge=1, le=10, description="返回结果数量限制"
    )


class KnowledgeEntry(Model):
    """一条知识"""

    memory_key: Annotated[str, English("The key of the entry")] = Field(
        ..., description="知识条目的唯一标识符"
    )
    summary: Annotated[str, English("The entry in short")] = Field(..., description="摘要")
    content: Annotated[str, English("What it says; the whole text is in get_memory")] = Field(
        ..., description="内容；全文见 get_memory"
    )
    score: Annotated[float, English("Relevance, 0.0-1.0")] = Field(
        ..., description="相关性分数 0.0-1.0"
    )


class SearchKnowledgeOutput(Model):
    """搜索知识输出"""

    results: Annotated[list[KnowledgeEntry], English("Best first")] = Field(
        default=[], description="最匹配的在前"
    )
