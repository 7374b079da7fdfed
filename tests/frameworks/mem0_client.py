"""mem0's own clients, unmodified, against a server; prints what they got as JSON.

Runs in a process of its own, `python -m tests.frameworks.mem0_client FOLDER URL KEY TOKEN`:
other tests go without the packages of the folder. TOKEN is that of the user bob.
"""

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Callable
from typing import Any

sys.path.append(sys.argv[1])

import httpx
import mem0
from mem0 import AsyncMemoryClient, MemoryClient
from mem0.client.types import AddMemoryOptions, SearchMemoryOptions
from mem0.configs.base import MemoryConfig

from kemem.compat.mem0_values import Config
from tests.mem0_talks import TALKS

url, key, token = sys.argv[2:]


def failure(call: Callable[[], object]) -> list[str]:
    """The name of the error that a call raises, and what it says."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("it did not fail")


def talk(client: MemoryClient, language: str) -> dict[str, Any]:
    """Everything that the client does with one user's memories."""
    words, user = TALKS[language], f"ann-{language}"
    ids = {"user_id": user}
    got: dict[str, Any] = {"added": client.add(words["said"], user_id=user, version="v2")}
    options = AddMemoryOptions(
        filters={**ids, "run_id": "r_1"},
        infer=False,
        metadata={"tag": "travel"},
        expiration_date="2099-01-31",
    )
    got["verbatim"] = client.add(words["verbatim"], options)
    trip = got["verbatim"]["results"][0]["id"]
    got["searched"] = client.search(words["asked"], filters=ids, top_k=3)
    tagged = SearchMemoryOptions(filters={"AND": [ids, {"tag": "travel"}, {"run_id": "*"}]})
    got["tagged"] = client.search(words["verbatim"], tagged)
    got["all"] = client.get_all(filters=ids)
    got["page"] = client.get_all(filters=ids, page=2, page_size=1)
    got["got"] = client.get(trip)
    got["updated"] = client.update(trip, text=words["changed"], metadata={"paid": True})
    got["history"] = client.history(trip)
    got["voted"] = client.feedback(trip, "positive", "useful")
    got["batch"] = client.batch_update([{"memory_id": trip, "text": words["verbatim"]}])
    got["deleted"] = client.delete(trip)
    got["gone"] = failure(lambda: client.get(trip))
    return got


def others(operator: MemoryClient) -> dict[str, Any]:
    """What a client bound to bob sees of ann, and what nobody may ask."""
    (note,) = operator.add("secret", user_id="ann", infer=False)["results"]
    bob = MemoryClient(api_key=token, host=url)
    named = httpx.Client(headers={"X-KeMem-User": "bob"})
    as_bob = MemoryClient(api_key=key, host=url, client=named)
    refused = {
        "get": lambda: bob.get(note["id"]),
        "get, as bob": lambda: as_bob.get(note["id"]),
        "update": lambda: bob.update(note["id"], text="mine"),
        "history": lambda: bob.history(note["id"]),
        "delete": lambda: bob.delete(note["id"]),
        "feedback": lambda: bob.feedback(note["id"], "NEGATIVE"),
        "batch": lambda: bob.batch_delete([{"memory_id": note["id"]}]),
        "search": lambda: bob.search("secret", filters={"user_id": "ann"}),
        "add": lambda: bob.add("mine", user_id="ann"),
        "delete_all": lambda: bob.delete_all(user_id="ann"),
    }
    refused |= {
        "search without a scope": lambda: operator.search("secret", filters={"tag": "x"}),
        "list without a scope": lambda: operator.get_all(filters={}),
        "any user": lambda: operator.get_all(filters={"user_id": "*"}),
        "one user or another": lambda: operator.get_all(
            filters={"OR": [{"user_id": "ann"}, {"user_id": "bob"}]}
        ),
        "delete_all without a scope": lambda: operator.delete_all(),
        "add without a scope": lambda: operator.add("nobody's"),
        "users": lambda: bob.users(),
        "key": lambda: MemoryClient(api_key="wrong", host=url),
        "app_id": lambda: operator.search("x", filters={"user_id": "ann", "app_id": "a"}),
        "categories": lambda: operator.search("x", filters={"user_id": "ann"}, categories=["a"]),
        "delete_linked": lambda: operator.delete(note["id"], delete_linked=True),
        "expiration": lambda: operator.update(note["id"], expiration_date=None),
        "summary": lambda: operator.get_summary({"user_id": "ann"}),
        "webhooks": lambda: operator.get_webhooks("p"),
    }
    return {
        "refused": {name: failure(call) for name, call in refused.items()},
        "own": bob.search("secret")["results"],
        "left": operator.get(note["id"])["memory"],
        "users": operator.users(),
        "deleted": operator.delete_all(filters={"user_id": "ann"}),
        "after": operator.get_all(filters={"user_id": "ann"}),
    }


async def awaited() -> dict[str, Any]:
    """A turn of the client that awaits."""
    client = AsyncMemoryClient(api_key=key, host=url)
    await client.add("喜欢绿茶 likes green tea", user_id="eve", infer=False)
    found = await client.search("绿茶 tea", filters={"user_id": "eve"})
    await client.delete_users(user_id="eve")
    return {"found": found, "after": await client.get_all(filters={"user_id": "eve"})}


def described() -> dict[str, Any]:
    """The parameters of the classes' methods, the routes that the client asks, a config."""
    kinds = {"Memory": mem0.Memory, "AsyncMemory": mem0.AsyncMemory}
    public = {
        name: {
            method: list(inspect.signature(it).parameters)
            for method, it in inspect.getmembers(kind, callable)
            if not method.startswith("_")
        }
        for name, kind in kinds.items()
    }
    source = inspect.getsource(MemoryClient).replace("PROFILE_", '"/v2/profiles/')
    asked = re.findall(r"\.client\.(get|post|put|patch|delete)\(\s*f?\"([^\"\n]+)", source)
    routes = {(method.upper(), re.sub(r"\{[^}]*\}", "x", path)) for method, path in asked}
    config = Config.read(MemoryConfig(custom_instructions="only food"))
    meant = {"settings": dict(config.settings), "instructions": config.instructions}
    return {"methods": public, "routes": sorted(routes), "config": [meant, config.ignored]}


def main() -> None:
    client = MemoryClient(api_key=key, host=url)
    got = {language: talk(client, language) for language in TALKS}
    got |= {"others": others(client), "awaited": asyncio.run(awaited()), "mem0": described()}
    client.reset()
    left = {it: client.get_all(filters={"user_id": f"ann-{it}"})["count"] for it in TALKS}
    print(json.dumps({**got, "reset": left}))


if __name__ == "__main__":
    main()
