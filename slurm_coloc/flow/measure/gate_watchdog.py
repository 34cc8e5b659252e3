# SPDX-License-Identifier: Apache-2.0
"""Stage place, native, on the node: opens the gate of a node whose colocd is gone.

colocd that is killed leaves its last figure in the node's Extra, and nobody keeps it fresh.
"""

import structlog

from slurm_coloc.adapters import nodeextra
from slurm_coloc.core.place.node_gate import present, written
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()


def open_gate(node: str) -> bool:
    """Set the node's figure to 0 where it has one that may shut it; False: to be tried again."""
    try:
        extra = nodeextra.read(node)
        text = written(extra, 0) if present(extra) else None
        if text is not None:
            nodeextra.write(node, text)
            log.info("place", node=node, smact_pct=0, reason="no colocd keeps its figure fresh")
    except SlurmError as err:
        log.warning("place", node=node, error=err.message)
        return False
    return True
