# SPDX-License-Identifier: Apache-2.0
"""coloc serve: run colocd in the foreground, as SlurmUser."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def serve(
        config: Path | None = typer.Option(None, help="Configuration file; default $COLOC_CONFIG."),
    ) -> None:
        """Run colocd, the daemon that decides, follows and recovers jobs."""
        from slurm_coloc.daemon import serve as run

        run(config)
