"""The scripted server as a command: python -m kemem.testing.openai_server SCRIPT.json"""

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path

from kemem.testing.openai_server.script import parse_script
from kemem.testing.openai_server.server import ScriptedServer


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
    with ScriptedServer(options.port, player) as server, suppress(KeyboardInterrupt):
        print(server.info.base_url, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
