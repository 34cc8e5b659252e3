# SPDX-License-Identifier: Apache-2.0
"""coloc serve: run colocd in the foreground, as SlurmUser."""

import typer

from slurm_coloc import lean
from slurm_coloc.cli.options import ConfigFile


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def serve(
        config: ConfigFile = None,
    ) -> None:
        """Run colocd, the daemon that decides, follows and recovers jobs."""
        lean.leave_out()
        from slurm_coloc.daemon import serve as run

        run(config)
