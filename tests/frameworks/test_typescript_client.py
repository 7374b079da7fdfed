"""The TypeScript client: its own tests run against real servers, and its types are current.

The tests are in clients/typescript/test. They need npm, which brings what they build with.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import kemem
from kemem.testing import calling
from kemem.testing.openai_server import Answer, Streamed, running_openai_server
from tests.conftest import NOT_RUN
from tests.routes import APP, KEY, SECRET, token
from tests.server import running_server
from tests.test_docs import PAGES, blocks

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients/typescript"
EXAMPLES = CLIENT / "build/examples"
RECORD = "KEMEM_TEST_RECORD"
SECONDS = 300
REPLY = "你好，世界 hello"
# For operators, for people, or with clients of their own.
NOT_OFFERED = {"/rpc", "/metrics", "/openapi.json", "/docs", "/healthz", "/v1/chat/completions"}
NOT_OFFERED |= {
    "/v1/models",
    "/v1/keys",
    "/v1/keys/{key_id}",
    "/v1/audit",
    "/v1/ontology",
    "/v1/users/{user_id}/export",
}
NOT_OFFERED |= {"/v1/webhooks", "/v1/webhooks/{webhook_id}", "/v1/webhooks/{webhook_id}/test"}
ROUTE = re.compile(r'"((?:GET|POST|PATCH|DELETE) /[^"]*)"')


Variables = Mapping[str, str]


def run(
    *command: str, cwd: Path = CLIENT, given: Variables | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command, without what `make` and other tests have left in the environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "KEMEM_"))}
    environment = {**kept, **(given or {})}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS
    )


def checked(*command: str, cwd: Path = CLIENT, given: Variables | None = None) -> str:
    """The output of a command that must succeed."""
    done = run(*command, cwd=cwd, given=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def npm() -> None:
    """npm, and what it brings for the client, which is kept until package.json changes."""
    refuse = pytest.fail if os.environ.get("KEMEM_TEST_BROWSER") == "required" else pytest.skip
    if not (shutil.which("npm") and shutil.which("node")):
        refuse(f"TypeScript {NOT_RUN}: there is no npm")
    with (CLIENT / "package.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # tests in another process wait for it
        brought = run("make", "-s", "clients/typescript/node_modules/stamp", cwd=ROOT)
    if brought.returncode:
        refuse(f"TypeScript {NOT_RUN}: npm failed: {brought.stderr[-500:]}")


@pytest.fixture(scope="module")
def built(npm: None) -> None:
    """The client, compiled."""
    with (CLIENT / "package.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        checked("make", "-s", "clients/typescript/dist/index.js", cwd=ROOT)


def reply(request: Mapping[str, Any]) -> Answer:
    """What the model says: a user's message asks for a call, a break or a pause."""
    messages = request["messages"]
    said = str([it["content"] for it in messages if it["role"] == "user"][-1])
    if "call a tool" in said and "猫 cat" not in str(messages):
        return calling("recall_memory", query="猫 cat")
    if "break" in said:
        return Streamed(REPLY, breaks_after=1)
    return Streamed(REPLY * 50, pause=0.1) if "slowly" in said else REPLY


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two servers, one of them with a model, as variables of the environment."""
    folder = tmp_path_factory.mktemp("typescript")
    nothing: dict[str, list[str]] = {"facts": [], "entities": []}
    with (
        running_openai_server(reply, formatted=nothing) as model,
        running_server(folder / "plain", api_key=KEY, jwt_secret=SECRET) as plain,
        running_server(
            folder / "chat",
            api_key=KEY,
            llm_base_url=model.base_url,
            llm_api_key="any",
            chat_recall="call",
        ) as chat,
    ):
        yield {
            "KEMEM_TEST_URL": plain.url,
            "KEMEM_TEST_CHAT_URL": chat.url,
            "KEMEM_TEST_KEY": KEY,
            "KEMEM_TEST_TOKEN": token("ann"),
        }


def write_examples(url: str) -> list[str]:
    """The TypeScript of each page as a module, to be compiled with the tests."""
    shutil.rmtree(EXAMPLES, ignore_errors=True)
    EXAMPLES.mkdir(parents=True)
    names = []
    for page in (*PAGES, CLIENT / "README.md"):
        found = [it.code for it in blocks(page.read_text("utf-8")) if it.language == "typescript"]
        if found:
            names.append("-".join(page.relative_to(ROOT).with_suffix("").parts))
            code = "\n".join(found).replace("http://127.0.0.1:8420", url)
            (EXAMPLES / f"{names[-1]}.ts").write_text(code, "utf-8")
    return names


def test_the_types_are_those_of_the_server(npm: None, tmp_path: Path) -> None:
    """src/schema.ts is what scripts/generate.mjs makes of the server's OpenAPI document."""
    document, schema = tmp_path / "openapi.json", CLIENT / "src/schema.ts"
    document.write_text(json.dumps(APP.openapi()), "utf-8")
    made = schema if os.environ.get(RECORD) else tmp_path / "schema.ts"
    checked("node", "scripts/generate.mjs", str(document), str(made))
    how = f"record the change: {RECORD}=1 pytest tests/frameworks/test_typescript_client.py"
    assert made.read_text("utf-8") == schema.read_text("utf-8"), how


@pytest.mark.parametrize("odd", [{"type": "snowflake"}, {"allOf": [{"type": "string"}]}])
def test_the_generator_stops_at_what_it_does_not_know(
    npm: None, tmp_path: Path, odd: dict[str, Any]
) -> None:
    """A type that is wrong would be worse than none."""
    document = tmp_path / "openapi.json"
    schema = {"type": "object", "properties": {"id": odd}}
    described = {"components": {"schemas": {"Odd": schema}}, "paths": {}}
    document.write_text(json.dumps(described), "utf-8")
    done = run("node", "scripts/generate.mjs", str(document), str(tmp_path / "schema.ts"))
    assert done.returncode and "no type is known for" in done.stderr


def test_the_tests_of_the_client_pass_and_its_examples_run(
    built: None, addresses: dict[str, str]
) -> None:
    """Both are compiled by `tsc --strict`; the examples of a page are one program."""
    names = write_examples(addresses["KEMEM_TEST_CHAT_URL"])
    assert {"docs-typescript", "clients-typescript-README"} <= {*names}
    told = checked("npm", "test", "--silent", given=addresses)
    assert re.search(r"pass [1-9]\d*$", told, re.MULTILINE), told
    for name in names:
        checked("node", f"build/js/build/examples/{name}.js", given={"KEMEM_API_KEY": KEY})


def test_every_route_for_applications_has_a_method() -> None:
    """A route that is added is offered, or named among those that are not."""
    offered = set(ROUTE.findall((CLIENT / "src/client.ts").read_text("utf-8")))
    described = {
        f"{method.upper()} {path}"
        for path, methods in APP.openapi()["paths"].items()
        if path not in NOT_OFFERED
        for method in methods
    }
    assert offered == described


def test_the_package_holds_what_is_used_and_nothing_else(built: None) -> None:
    """The compiled client, and what npm always takes."""
    (package,) = json.loads(checked("npm", "pack", "--dry-run", "--json", "--ignore-scripts"))
    files = {Path(it["path"]) for it in package["files"]}
    outside = {str(it) for it in files if it.parts[0] != "dist"}
    assert outside == {"LICENSE", "README.md", "package.json"}
    modules = {it.stem for it in (CLIENT / "src").glob("*.ts")}
    assert {it.name for it in files if it.parts[0] == "dist"} == {
        f"{name}{suffix}" for name in modules for suffix in (".js", ".d.ts")
    }


def test_the_package_is_a_sibling_of_the_library() -> None:
    """The same version and licence, and no dependency at run time."""
    package = json.loads((CLIENT / "package.json").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (package["version"], package["license"]) == (kemem.__version__, project["license"])
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "dependencies" not in package
    optional = {name for name, it in package["peerDependenciesMeta"].items() if it["optional"]}
    assert optional == package["peerDependencies"].keys()
