# SPDX-License-Identifier: Apache-2.0
"""One base error, one subclass for each thing that an operator must do.

The exit codes are part of the command line's interface (docs/reference/codes.md). An adapter
converts foreign exceptions to these errors.
"""


class ColocError(Exception):
    """Base of every error that slurm-coloc raises on purpose.

    ``code`` is a short machine word (JSON answers have it), ``message`` one line for people
    that says what failed, on which job or file, and what happens next.
    """

    exit_code = 1
    default_code = "error"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class UsageFault(ColocError):
    """The command line or a request was malformed: correct the call."""

    exit_code = 2
    default_code = "usage"


class ConfigError(ColocError):
    """The configuration is wrong: edit the file that the message names."""

    exit_code = 3
    default_code = "config"


class SlurmError(ColocError):
    """Slurm did not answer or refused: check slurmctld.

    ``code``: slurm-away (no answer: the same may work later), slurm-busy (it was not sent),
    slurm-refused (it answered no), no-accounting (there is no slurmdbd).
    """

    exit_code = 4
    default_code = "slurm"

    @property
    def away(self) -> bool:
        """Whether Slurm has not decided: the request may be sent again later."""
        return self.code in ("slurm-away", "slurm-busy")


class GpuError(ColocError):
    """NVML or the driver failed: check the node's GPU."""

    exit_code = 5
    default_code = "gpu"


class DaemonUnreachable(ColocError):
    """colocd does not answer: start it or read its log."""

    exit_code = 6
    default_code = "daemon"


class SummaryError(ColocError):
    """The model summary cannot be used: give another one, or run on a whole GPU."""

    exit_code = 7
    default_code = "summary"
