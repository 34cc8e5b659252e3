# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: what colocd has heard of the GPU nodes that somebody should look at."""

from collections.abc import Iterator

from slurm_coloc.admin.rules.slurm_conf import Finding, Status
from slurm_coloc.config import Config
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.client.request import ask_socket

ANSWER_S = 3.0
SHOWN = 3  # nodes with what was wrong there


def nodes(config: Config) -> Iterator[Finding]:
    """The check of the gate; none where no colocd of this host answers."""
    try:
        told = ask_socket(config.daemon.socket, "status", deadline_s=ANSWER_S)
    except ColocError:
        return
    unfit = told.get("unfit")
    if not isinstance(unfit, list):
        return  # only root and SlurmUser are told
    check = "unfit-gpus"
    if not unfit:
        yield Finding(check, Status.OK, "no job was put back for its GPU in the last hour")
        return
    shown = "; ".join(f"{one['node']} ({one['runs']}): {one['why']}" for one in unfit[:SHOWN])
    more = f"; and {len(unfit) - SHOWN} nodes more" if len(unfit) > SHOWN else ""
    todo = "see who holds the GPU there (nvidia-smi); processes past Slurm should not be possible"
    yield Finding(check, Status.WARN, f"jobs put back in the last hour: {shown}{more}", todo)
