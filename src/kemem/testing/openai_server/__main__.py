"""The scripted server as a command: python -m kemem.testing.openai_server SCRIPT.json"""

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kemem.ports import ToolCall
from kemem.testing import openai_server
from kemem.testing.openai_server import Answer, Fault, ScriptPlayer, Streamed

_FAULT = {"status", "message", "body", "delay", "reset", "retry_after"}


def parse_script(value: Any) -> ScriptPlayer:
    """A script in JSON: a list of answers, or an object with `answers` and rules.

    {"answers": ["你好", {"text": "hi", "piece": 1}, {"status": 429}], "repeat_last": true}
    """
    rules: dict[str, Any] = {"answers": value} if isinstance(value, list) else value
    if not isinstance(rules, dict) or not isinstance(rules.get("answers"), list):
        raise ValueError(f"a script is a list of answers or has one in answers, not {value!r}")
    rules = dict(rules)
    script = [_parse_answer(it) for it in rules.pop("answers")]
    try:
        rules["formatted"] = _parse_answer(rules.get("formatted"))
        rules["faults"] = [_parse_answer(it) for it in rules.get("faults", ())]
        return ScriptPlayer(script, **rules)
    except TypeError as error:
        raise ValueError(f"rules of a script are invalid: {rules!r} ({error})") from error


def _parse_answer(value: Any) -> Answer:
    if value is None or isinstance(value, str):
        return value
    try:
        if value.keys() & _FAULT:
            return _parse_fault(**value)
        calls = tuple(_parse_call(**call) for call in value.get("calls", ()))
        return Streamed(**{**value, "calls": calls})
    except (AttributeError, TypeError) as error:
        raise ValueError(f"answer is invalid: {value!r} ({error})") from error


def _parse_fault(
    status: int = 200, message: str = openai_server.REASON, body: str | None = None, **timing: Any
) -> Fault:
    if body is None and status >= 400:
        return replace(openai_server.status(status, message), **timing)
    return Fault((body or "").encode("utf-8", "surrogateescape"), status, **timing)


def _parse_call(name: str, arguments: Mapping[str, Any] | str = "{}", id: str = "") -> ToolCall:
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id, name, arguments)


def main() -> None:
    """Serve until the process is ended; one line says where."""
    parser = argparse.ArgumentParser("python -m kemem.testing.openai_server", description=__doc__)
    parser.add_argument("script", help="a JSON file of answers, or - for standard input")
    parser.add_argument("--port", type=int, default=0, help="a free one if it is left out")
    options = parser.parse_args()
    script = sys.stdin.read() if options.script == "-" else Path(options.script).read_text("utf-8")
    try:
        player = parse_script(json.loads(script))
    except ValueError as error:
        parser.error(f"{options.script} is not a script: {error}")
    http = openai_server.ScriptedServer(options.port, player)
    with http, suppress(KeyboardInterrupt):
        print(http.info.base_url, flush=True)
        http.serve_forever()


if __name__ == "__main__":
    main()
