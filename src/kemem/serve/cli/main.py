"""The entry point of `kemem`, which imports nothing by itself: Ctrl-C is quiet from the start."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command that the arguments name."""
    try:
        from kemem.serve.cli.app import run
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
