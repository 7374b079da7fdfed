"""LangGraph's own tests of stores, run on KeMemStore.

They are in the source distribution of langgraph-checkpoint, which pip fetches: of the version that
is installed, from wherever pip is configured to look. It stays in the cache of pytest.
"""

from pathlib import Path

import pytest

from tests.frameworks.test_sdk_sessions import fetch, unpack
from tests.frameworks.with_frameworks import FRAMEWORKS, HERE, ROOT, outcomes

PACKAGE = "langgraph-checkpoint"
LEAST_PASSED = 112

# What cannot pass, by the reason.
EXPECTED = {
    "looks at the attribute index_config of InMemoryStore": {"test_vector_store_initialization"},
    "wants a vector for each field: a note has one for all": {"test_embed_with_path[asyncio]"},
}


def test_langgraphs_own_tests_of_stores_pass(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A test that fails and is not listed is a fault; one that is listed and passes is news."""
    (installed,) = FRAMEWORKS.glob("langgraph_checkpoint-*.dist-info")
    version = installed.name.removesuffix(".dist-info").rpartition("-")[2]
    cache = getattr(pytestconfig, "cache", None)  # without its plugin there is none
    archive = fetch(cache.mkdir(PACKAGE) if cache else tmp_path, PACKAGE, version)
    source = unpack(archive, tmp_path)
    (source / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\n")
    plugins = ("anyio", "pytest_mock", "langgraph_stores")
    folders = (HERE, ROOT / "src")
    files = ["-c", "pytest.ini", "tests/test_store.py"]
    found = outcomes(files, tmp_path / "report.xml", source, plugins, *folders)
    failed = {name for name, problem in found.items() if problem}
    assert failed == set().union(*EXPECTED.values())
    assert len(found) - len(failed) >= LEAST_PASSED
