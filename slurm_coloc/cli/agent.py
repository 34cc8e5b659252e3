# SPDX-License-Identifier: Apache-2.0
"""coloc agent: run a GPU node's agent in the foreground."""

import typer

from slurm_coloc import lean
from slurm_coloc.cli.options import ConfigFile


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def agent(
        node: str | None = typer.Option(
            None, help="Slurm's name of this node; default $COLOC_NODE, else the host's short name."
        ),
        config: ConfigFile = None,
    ) -> None:
        """Measure what each job of a GPU node uses, and keep the node linked to colocd.

        Each second: memory, SM activity and its like, power, by GPU and by job; the Epilog's report
        takes them along. Reports that an Epilog had to keep go to colocd within seconds. Runs as
        root; as SlurmUser it links and shows figures, and keeps no records of jobs.
        """
        lean.leave_out()
        from slurm_coloc.agent import serve
        from slurm_coloc.logs import set_up_log

        set_up_log("logfmt")
        serve(config, node)
