"""The model that both systems ask: it answers at once, in the form that each expects."""

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

from bench.measure import measure, percentile
from bench.remember.figures import FULL, INFER, WARM_UP, Asked, Plan
from bench.remember.talk import Told
from kemem.text.language import count_tokens

Request = Mapping[str, Any]


class Reader:
    """Notes of each message what the made-up talk says it should, message by message."""

    def __init__(self, told: Sequence[Told], plan: Plan) -> None:
        middle = WARM_UP + plan.inferred_adds
        self._turns: dict[str, Iterator[Told]] = {
            INFER: cycle(told[:middle]),
            FULL: cycle(told[middle:]),
        }

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        if asks_for_summary(request):
            return {"summary": "The user told of meals, parcels, journeys and projects."}
        read = next(self._turns[request["model"]])
        return for_mem0(read) if schema_of(request) is None else for_kemem(read)


def schema_of(request: Request) -> Mapping[str, Any] | None:
    """The JSON schema that an answer must fit; mem0 describes the form in its prompt instead."""
    wanted: Mapping[str, Any] = request.get("response_format") or {}
    found: Mapping[str, Any] | None = wanted.get("json_schema", {}).get("schema")
    return found


def asks_for_summary(request: Request) -> bool:
    return "summary" in (schema_of(request) or {}).get("properties", {})


def for_kemem(read: Told) -> dict[str, Any]:
    source, relationship, destination = read.relation
    relation = {"source": source, "relationship": relationship, "destination": destination}
    return {
        "facts": [
            {
                "text": fact,
                "type": "experience",
                "keywords": [name for name, _ in read.entities],
                "importance": 0.5,
                "date": None,
                "sources": [1],
                "replaces": [],
                "relations": [] if number else [relation],
            }
            for number, fact in enumerate(read.facts)
        ],
        "entities": [{"name": name, "type": kind} for name, kind in read.entities],
    }


def for_mem0(read: Told) -> dict[str, Any]:
    return {
        "memory": [
            {"id": str(number), "text": fact, "attributed_to": "user"}
            for number, fact in enumerate(read.facts)
        ]
    }


def prompt_of(request: Request) -> str:
    """All that a model has to read: the messages, and the form that the answer must have."""
    said = [str(message["content"]) for message in request["messages"]]
    return "\n".join([*said, json.dumps(request.get("response_format"), ensure_ascii=False)])


def asked(requests: Sequence[Request], base_url: str) -> Asked:
    """What some requests cost; they are sent again, so the server must still run."""
    prompts = [prompt_of(request) for request in requests]
    bare = bare_ms(requests, base_url) or (0.0,)
    return Asked(
        calls=len(requests),
        summaries=sum(asks_for_summary(request) for request in requests),
        characters=sum(len(prompt) for prompt in prompts),
        tokens=sum(count_tokens(prompt) for prompt in prompts),
        bare_p50_ms=percentile(bare, 50),
        bare_mean_ms=sum(bare) / len(bare),
    )


def bare_ms(requests: Sequence[Request], base_url: str) -> tuple[float, ...]:
    """Milliseconds of each request when nothing but HTTP is done: connect, send, receive."""
    address = urlsplit(base_url)
    bodies = [json.dumps(request).encode() for request in requests]

    def send(number: int) -> None:
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        connection.request("POST", f"{address.path}/chat/completions", bodies[number])
        connection.getresponse().read()
        connection.close()

    return measure(send, len(bodies)).wall_ms
