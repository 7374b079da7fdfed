"""The log of a server: one JSON object a line on the error stream."""

import logging
import sys

import structlog

_DETAILS = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
)
_JSON = structlog.processors.JSONRenderer(ensure_ascii=False)


def configure_logs(level: str) -> None:
    """Log from `level` on, libraries included; standard output stays free for answers."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_DETAILS, _JSON],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    others = logging.StreamHandler(sys.stderr)
    others.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _JSON],
            foreign_pre_chain=_DETAILS,
        )
    )
    logging.basicConfig(level=number, handlers=[others], force=True)
    logging.getLogger("mcp").setLevel(logging.WARNING)  # below, it shows what is sent
