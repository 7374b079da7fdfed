"""The Agents SDK's own tests of sessions, run on MemorySession.

They are in the SDK's source distribution, which pip fetches: of the version that is installed, from
wherever pip is configured to look. It stays in the cache of pytest.
"""

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.frameworks.with_frameworks import HERE, ROOT

FILES = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py")
LEAST_PASSED = 53
FAILED = {"failure", "error", "skipped"}

# What cannot pass, by the reason: each test is about how SQLiteSession is built.
EXPECTED = {
    "looks at the SQLite connections that the session keeps for threads": {
        "test_sqlite_session_close_closes_worker_thread_connections",
        "test_sqlite_session_reaps_connections_from_exited_worker_threads",
        "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
        "test_sqlite_session_keeps_connections_of_live_worker_threads",
        "test_sqlite_session_rollback_failure_evicts_connection",
        "test_sqlite_session_close_retries_quarantined_connection",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[add]",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[pop]",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[clear]",
    },
    "writes a broken row into the table of SQLiteSession": {
        "test_sqlite_session_pop_item_skips_corrupt_most_recent",
        "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
        "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
        "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
    },
    "opens the database file of SQLiteSession beside it": {
        "test_sqlite_session_failed_add_items_releases_write_lock",
        "test_sqlite_session_failed_clear_session_rolls_back",
        "test_sqlite_session_failed_pop_item_releases_write_lock",
    },
    "counts the locks of SQLiteSession": {
        "test_sqlite_session_file_lock_is_shared_across_instances",
    },
    "demands the words 'SQLiteSession is closed'; a MemorySession is not closed, its memory is": {
        "test_sqlite_session_closed_rejects_empty_add_items",
    },
}


def fetch(directory: Path, package: str, wanted: str) -> Path:
    """The archive of a package's source, of a version."""
    if archives := [*directory.glob(f"*-{wanted}.tar.gz")]:
        return archives[0]
    pinned = ["--build-constraint", str(ROOT / "constraints.txt")]
    command = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
    done = subprocess.run(
        [sys.executable, *command, *pinned, "--dest", str(directory), f"{package}=={wanted}"],
        capture_output=True,
        text=True,
        timeout=180,
    )
    if done.returncode:
        pytest.fail(f"pip cannot fetch the source of {package} {wanted}:\n{done.stderr[-2000:]}")
    (archive,) = directory.glob(f"*-{wanted}.tar.gz")
    return archive


def unpack(archive: Path, directory: Path) -> Path:
    """The folder of a source in a directory."""
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / archive.name.removesuffix(".tar.gz")


def outcomes(source: Path, directory: Path) -> dict[str, bool]:
    """Which of the SDK's tests pass with the plugin that puts MemorySession in."""
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = asyncio\n")
    report = directory / "report.xml"
    inherited = {name: it for name, it in os.environ.items() if not name.startswith("PYTEST_")}
    command = ["-m", "pytest", "-q", "-p", "sdk_sessions", "-p", "no:cacheprovider", "--tb=short"]
    chosen = ["-c", str(directory / "pytest.ini"), "--rootdir", ".", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, *command, *chosen, *FILES],
        cwd=source,
        env={**inherited, "PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    return {case.attrib["name"]: not FAILED.intersection(it.tag for it in case) for case in cases}


def test_the_sdks_own_tests_pass_but_for_those_about_its_sqlite(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A test that fails and is not listed is a fault; one that is listed and passes is news."""
    cache = getattr(pytestconfig, "cache", None)  # without its plugin there is none
    directory = cache.mkdir("openai-agents") if cache else tmp_path
    archive = fetch(directory, "openai-agents", version("openai-agents"))
    found = outcomes(unpack(archive, tmp_path), tmp_path)
    assert {name for name, passed in found.items() if not passed} == set().union(*EXPECTED.values())
    assert sum(found.values()) >= LEAST_PASSED
