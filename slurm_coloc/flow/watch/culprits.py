# SPDX-License-Identifier: Apache-2.0
"""Stage record: the neighbour that ended a run by holding more than it was promised, by name."""

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.culprits import NamedCulprit
from slurm_coloc.core.records.runs import EndedRun
from slurm_coloc.core.recover.outcome import Culprit


def name(store: Store, victim: EndedRun, found: Culprit, now_s: float) -> None:
    """Keep who ended ``victim``, and tell its owner; within the transaction that closes the run.
    Counted once, however often it is called."""
    run = store.runs.begun(found.job_id, victim.end_s)
    decision = store.decisions.of(run.decision) if run else None
    if run is None or decision is None:
        return
    named = NamedCulprit(
        *run.key,
        uid=run.uid,
        fingerprint=decision.fingerprint or "",
        victim_decision=victim.decision,
        victim_job=victim.job_id,
        victim_restart=victim.restart,
        held_mib=found.held_mib,
        promised_mib=found.promised_mib,
        at_s=now_s,
    )
    if store.culprits.add_once(named):
        whose = f"job {victim.job_id}" if victim.uid == run.uid else "another user's job"
        text = (
            f"held {found.held_mib / 1024:.1f} GiB of {found.promised_mib / 1024:.1f} promised;"
            f" {whose} on the same GPU ran out of memory by it"
        )
        store.note(run.decision, run.job_id, "culprit", text)
