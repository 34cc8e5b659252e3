# SPDX-License-Identifier: Apache-2.0
"""Runs that held more GPU memory than they were promised and ended a neighbour by it."""

from dataclasses import dataclass

from slurm_coloc.core.records.runs import OfRun


@dataclass(slots=True, kw_only=True)
class NamedCulprit(OfRun):
    """A run that ended another one, of a ``fingerprint``'s model ("" for none) and of user ``uid``.
    ``held_mib``, ``promised_mib``: on that GPU when the other ran out of memory, at ``at_s``."""

    uid: int
    fingerprint: str
    victim_decision: str
    victim_job: int
    victim_restart: int
    held_mib: int
    promised_mib: int
    at_s: float
