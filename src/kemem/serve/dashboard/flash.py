"""Messages after an action: the page that a form leads to says once what was done."""

import json
from typing import NamedTuple
from urllib.parse import quote, unquote

from kemem.serve.dashboard.labels import error_text

COOKIE = "kemem_flash"
SECONDS = 60  # a browser that does not follow the redirect forgets the message
_LONGEST = 100  # characters of a value

MESSAGES = {
    "memory_saved": ("The memory is saved.", "记忆已保存。"),
    "memory_deleted": ("The memory is deleted.", "记忆已删除。"),
    "memory_deleted_withdrawn": (
        "The memory is deleted. Messages withdrawn: {count}",
        "记忆已删除。撤下的消息数：{count}",
    ),
    "memory_deleted_erased": (
        "The memory is deleted. Messages erased: {count}",
        "记忆已删除。删除的消息数：{count}",
    ),
    "configured": ("The changes to {id} are saved.", "{id} 的修改已保存。"),
    "disabled": (
        "{id} is disabled: nothing is added or served until you enable it again.",
        "{id} 已停用：重新启用之前不再写入，也不再提供内容。",
    ),
    "enabled": ("{id} is enabled.", "{id} 已启用。"),
    "import_started": ("The import of {name} has started.", "已开始导入 {name}。"),
    "jobs_retried": ("Jobs scheduled to run again: {count}", "已安排重新执行的任务数：{count}"),
    "backup_written": ("The backup {name} is written.", "备份 {name} 已完成。"),
    "backup_restored": ("The backup {name} is restored.", "已从备份 {name} 恢复。"),
    "backup_deleted": ("The backup {name} is deleted.", "备份 {name} 已删除。"),
    "voted_up": ("Noted as a good hit.", "已记为切题。"),
    "voted_down": ("Noted as not what was asked for.", "已记为不切题。"),
    "key_revoked": ("The key {name} is revoked.", "密钥 {name} 已撤销。"),
    "type_saved": ("The type {name} is saved.", "类型 {name} 已保存。"),
    "type_removed": ("The type {name} is removed.", "类型 {name} 已移除。"),
    "webhook_tested": (
        "Delivered: the receiver answered {status}.",
        "已送达：接收方返回 {status}。",
    ),
    "webhook_failed": ("The test failed: the receiver {error}.", "测试失败：接收方{error}。"),
    "webhook_deleted": ("The webhook {name} is deleted.", "Webhook {name} 已删除。"),
    "signed_out": ("You are signed out.", "已退出登录。"),
}
_FAILURES = {"webhook_failed"}


class Message(NamedTuple):
    """What a page says about the action that led to it."""

    text: str
    is_failure: bool


def encode(message: str, **values: object) -> str:
    """A message as the value of a cookie; long values are cut, so that it fits."""
    short = {name: str(value)[:_LONGEST] for name, value in values.items()}
    return quote(json.dumps([message, short]))


def decode(cookie: str | None, language: str) -> Message | None:
    """A message in a language; None for a cookie that is missing or not ours."""
    try:
        message, values = json.loads(unquote(cookie or ""))
        if "error" in values:
            values["error"] = error_text(values["error"], language)
        text = MESSAGES[message][language == "zh"].format_map(values)
        return Message(text, message in _FAILURES)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None
