# SPDX-License-Identifier: Apache-2.0
"""coloc agent: run a GPU node's agent in the foreground."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def agent(
        node: str | None = typer.Option(
            None, help="Slurm's name of this node; default $COLOC_NODE, else the host's short name."
        ),
        config: Path | None = typer.Option(None, help="Configuration file; default $COLOC_CONFIG."),
    ) -> None:
        """Keep a GPU node linked to colocd: reports that an Epilog had to keep, and a heartbeat.

        Runs as SlurmUser or root. Without it a report waits in the node's spool until the next
        Epilog there reaches colocd.
        """
        from slurm_coloc.agent import serve
        from slurm_coloc.logs import set_up_log

        set_up_log("logfmt")
        serve(config, node)
