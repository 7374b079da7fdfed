"""Serves a model on loopback until it is stopped: `serve.py FILE THREADS`.

It runs in an interpreter of its own, which has `xllamacpp` and nothing of KeMem.
"""

import signal
import sys

import xllamacpp

CONTEXT = 8192  # tokens


def main() -> None:
    """Print the address, then serve."""
    threads, options = int(sys.argv[2]), xllamacpp.CommonParams()
    options.model.path = sys.argv[1]
    options.n_ctx, options.n_parallel = CONTEXT, 1
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
    options.port, options.use_jinja = 0, True
    server = xllamacpp.Server(options)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
