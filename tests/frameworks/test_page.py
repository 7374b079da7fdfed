"""The Python of the page on frameworks runs, where their packages are."""

import sys
from pathlib import Path

from tests.frameworks.with_frameworks import FRAMEWORKS, IGNORED
from tests.test_docs import FRAMEWORKS_PAGE, clean_environment, run_blocks


def test_the_python_of_the_page_on_frameworks_runs(tmp_path: Path) -> None:
    """In a new interpreter, as for its readers."""
    environment = {**clean_environment(tmp_path), "PYTHONPATH": str(FRAMEWORKS)}
    run_blocks(FRAMEWORKS_PAGE, tmp_path, [sys.executable, "-W", "error", *IGNORED], environment)
