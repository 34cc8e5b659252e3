# SPDX-License-Identifier: Apache-2.0
"""What Prometheus may read of agents and colocd. Off by default."""

from pathlib import Path

from pydantic import Field, model_validator

from slurm_coloc.config.base import Section
from slurm_coloc.core.metrics.access import check
from slurm_coloc.core.metrics.catalog import Names


class MetricsConfig(Section):
    """[metrics] for Prometheus: GET /metrics over HTTP, of each agent and of colocd."""

    agent_port: int = Field(
        0, ge=0, le=65535, description="Port of each agent; 0: none (9836 is free for it)."
    )
    colocd_port: int = Field(
        0, ge=0, le=65535, description="Port of colocd; 0: none (9837 is free for it)."
    )
    address: str = Field(
        "127.0.0.1",
        description="IP address that both listen on. Where other hosts reach it, allow or"
        " token_file must say who may read.",
    )
    allow: tuple[str, ...] = Field(
        (),
        description='Addresses and networks that may read, such as "10.1.0.0/16"; empty: all that'
        " reach the port.",
    )
    token_file: Path | None = Field(
        None,
        description="File with a token that requests must bring (Authorization: Bearer); no other"
        " user may read it. None: no token.",
    )
    names: tuple[Names, ...] = Field(
        ("coloc",),
        description="What agents tell: coloc, our own; slurm_job, as slurm-job-exporter;"
        " nvidia_gpu, as jobstats reads it. Leave out what an exporter on the nodes tells already.",
    )
    job_summaries: bool = Field(
        False,
        description="Write what each --coloc job used into its AdminComment in slurmdbd when it has"
        " ended, as jobstats does: jobstats -j, reportseff and job_defense_shield read it.",
    )

    @model_validator(mode="after")
    def _guarded(self) -> "MetricsConfig":
        check(self.address, self.allow, with_token=self.token_file is not None)
        return self
