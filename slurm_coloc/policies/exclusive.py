# SPDX-License-Identifier: Apache-2.0
"""A whole GPU, always: what the user gets with --coloc-policy=exclusive."""

from slurm_coloc.core.cluster import SharedGpu
from slurm_coloc.core.decide import History, Question, Rules
from slurm_coloc.core.decision import Action, Decision, Reason


class Exclusive:
    """Never shares."""

    name = "exclusive"

    def reserve(
        self, question: Question, kinds: tuple[SharedGpu, ...], history: History, rules: Rules
    ) -> Decision:
        """A whole GPU whatever the estimate says."""
        return Decision(Action.EXCLUSIVE, Reason.USER_EXCLUSIVE)


POLICY = Exclusive()
