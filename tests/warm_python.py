"""What stands for `python` and `kemem` on a command line: asks tests.warm to run the program.

    python -IS warm_python.py ADDRESS -W error -c "import kemem" ARGUMENTS
    python -IS warm_python.py ADDRESS kemem search tea

Signals reach the program, it ends as the program does, and the program is killed if this is.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ask(
    address: str,
    arguments: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str],
    cwd: str,
) -> int:
    """Ask for a process; returns the descriptor that tells its id, and how it ended."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    request = json.dumps([[*arguments], dict(environment), cwd]).encode()
    socket.send_fds(connection, [len(request).to_bytes(4, "big")], streams)
    connection.sendall(request)
    return connection.detach()


def main() -> None:
    """Be the program that the arguments name."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until it is known to whom
    address, *arguments = sys.argv[1:]
    asked = ask(address, arguments, [0, 1, 2], os.environ, os.getcwd())
    with os.fdopen(asked, "rb", buffering=0) as status:
        pid = int(status.readline())
        for number in FORWARDED:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        end = os.waitstatus_to_exitcode(int(status.read()))
    if end < 0:
        if -end != signal.SIGKILL:
            signal.signal(-end, signal.SIG_DFL)
        os.kill(os.getpid(), -end)
    os._exit(end)


if __name__ == "__main__":
    main()
