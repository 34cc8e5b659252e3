# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration file; default $COLOC_CONFIG.")
]
JobId = Annotated[int, typer.Argument(metavar="JOBID", min=1, help="Slurm's job id.")]
