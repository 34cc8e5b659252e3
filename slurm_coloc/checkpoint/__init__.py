# SPDX-License-Identifier: Apache-2.0
"""Checkpoints for trainings that run in time slots: save before the end, go on in the next one.

For users' own programs. Importing it needs the standard library alone; torch, numpy, Lightning and
transformers are looked at only where the program itself has loaded them.

    from slurm_coloc.checkpoint import Checkpointer

    with Checkpointer("run.ckpt", model=model, optimizer=optimizer) as run:
        for epoch in run.epochs(90):
            for batch in run.batches(loader):
                train(batch)
                run.step()
"""

from slurm_coloc.checkpoint.files import CheckpointError
from slurm_coloc.checkpoint.loop import Checkpointer
from slurm_coloc.checkpoint.next_slot import GO_ON, SAVED, leave
from slurm_coloc.checkpoint.slot import Slot

__all__ = ["GO_ON", "SAVED", "CheckpointError", "Checkpointer", "Slot", "leave"]
