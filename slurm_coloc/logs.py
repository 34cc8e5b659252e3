# SPDX-License-Identifier: Apache-2.0
"""The log of colocd and of the agent: one line an event on stderr; the journal adds the time."""

import logging
import sys

import structlog

from slurm_coloc.core.text import printable


def escaped(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Nothing that a user has named acts on the terminal of whoever reads the log."""
    return {
        name: value if isinstance(value, int | float | None) else printable(str(value))
        for name, value in event.items()
    }


def set_up_log(form: str, level: int = logging.INFO) -> None:
    """``form``: "logfmt" (key=value) or "json"."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.LogfmtRenderer(key_order=["level", "event"])
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.processors.format_exc_info,
            escaped,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
