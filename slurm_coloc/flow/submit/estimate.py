# SPDX-License-Identifier: Apache-2.0
"""The estimate for a submission: looked up, never made. slurmctld waits for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.prepared import Estimated, Prepared, wider
from slurm_coloc.core.slurm.script import script_fingerprint
from slurm_coloc.estimate.features import SCHEMA
from slurm_coloc.estimate.request import Given
from slurm_coloc.flow.estimators.calibrations import OTHER_CARD, defaults_of, is_other, load_stacks
from slurm_coloc.flow.submit.message import ColocOptions, Submission
from slurm_coloc.flow.submit.tickets import Key, Texts, hash_of

#: Has a text estimated in the background, so that the next submission of it finds an estimate: for
#: whom, which, and the text itself where it was forwarded.
Prepare = Callable[[int, Key, str | None], None]


class Found(NamedTuple):
    """``by``: ticket, known (by the text's hash), script, or none."""

    estimated: Estimated
    by: str


def given_of(options: ColocOptions) -> Given:
    """What the user says of the training."""
    return Given(
        options.batch_size,
        options.seq_len,
        options.optimizer,
        options.precision,
        options.alloc_conf,
        options.input,
        options.training,
    )


class Lookup:
    """Finds estimates in ``texts`` under one configuration."""

    def __init__(self, config: EstimateConfig, texts: Texts, prepare: Prepare) -> None:
        """Raises ConfigError for a calibration that is wrong, or an estimator that cannot run."""
        if config.estimator != "auto":  # this process loads no estimator but to look at a named one
            from slurm_coloc.flow.estimators.networks import require

            require(config.estimator)
        self._config, self._texts, self._prepare = config, texts, prepare
        self._stacks = load_stacks(config)
        texts.use(defaults_of(config, self._stacks).basis)

    def of(self, job: Submission) -> Found:
        """The estimate for a submission, or why there is none; never raises."""
        options, uid = job.coloc, job.request.uid
        if options.auto and options.summary is None:
            return Found(self._by_script(options, uid), "script")
        text = hash_of(options.summary) if options.summary is not None else options.text_sha256
        if text is None:
            return Found(Estimated(None, Reason.NO_SUMMARY, _forgotten(options)), "none")
        key = Key(text, given_of(options))
        made, by = self._made(options.ticket, uid, key)
        if made is None:
            self._prepare(uid, key, options.summary)
            late = "its ticket is not good any more" if options.ticket else ""
            return Found(Estimated(None, Reason.NOT_PREPARED, late), "none")
        chosen = self._stacks.choose(job.gpu_types)
        # Processes of one job are taken for one training by DDP, which needs more than each alone.
        found = made.of(chosen.stack, chosen.card, job.request.demand.processes)
        if any(map(is_other, filter(None, job.gpu_types))):
            found = wider(found, OTHER_CARD)
        return Found(replace(found, spare_mib=self._stacks.spare_mib(chosen.gpu_type)), by)

    def _made(self, ticket: str | None, uid: int, key: Key) -> tuple[Prepared | None, str]:
        if ticket is not None and (made := self._texts.take(ticket, uid, key)) is not None:
            return made, "ticket"
        return self._texts.known(key), "known"

    def _by_script(self, options: ColocOptions, uid: int) -> Estimated:
        """What a job of --coloc=auto is known by; there is no estimate but that of its history."""
        if options.script is None:
            return Estimated(None, Reason.NO_SCRIPT)
        if not self._config.history:
            return Estimated(None, Reason.NO_ESTIMATE, "--coloc=auto needs estimate.history")
        key = "/".join(
            str(one or "")
            for one in (
                options.seq_len,
                options.optimizer,
                options.precision,
                options.alloc_conf,
                *filter(None, [options.training]),
            )
        )
        batch = options.batch_size or 0
        return Estimated(
            None,
            Reason.FIRST_RUN,
            fingerprint=script_fingerprint(uid, options.script, options.arguments),
            options=f"{batch}/{key}",
            features={"schema": SCHEMA, "format": "script"},
            key=f"auto/{key}",
            batch=batch,
            context_mib=self._stacks.default.context_mib,
            by_script=True,
        )


def _forgotten(options: ColocOptions) -> str:
    """Why there may be no text where the plugin had one: it lets no job share without FILE."""
    if options.policy == "exclusive":
        return ""
    return (
        "it was too long; or slurmctld has an older coloc.lua than the plugin, and reads the new"
        " one at its next start"
    )
