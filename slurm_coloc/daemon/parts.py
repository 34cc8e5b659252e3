# SPDX-License-Identifier: Apache-2.0
"""Makes and joins all objects that colocd keeps while it runs.

A reload makes anew what follows from the configuration; the rest stays.
"""

import os
import pwd

from slurm_coloc.adapters import slurm
from slurm_coloc.adapters.store import Store
from slurm_coloc.adapters.store.after_answers import AfterAnswers
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS
from slurm_coloc.errors import ConfigError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.cluster.role import Part, Role
from slurm_coloc.flow.cluster.shape import ShapeCache
from slurm_coloc.flow.nodes.agents import Nodes
from slurm_coloc.flow.nodes.job_questions import JobQuestions
from slurm_coloc.flow.nodes.unfit_gpu import Gate
from slurm_coloc.flow.place.placement import Placement
from slurm_coloc.flow.recover.array_tasks import Resizer
from slurm_coloc.flow.recover.recover import Recoverer
from slurm_coloc.flow.submit.decide import Decider
from slurm_coloc.flow.submit.estimate import Prepare
from slurm_coloc.flow.submit.tickets import Texts
from slurm_coloc.flow.time.limits import Stretcher
from slurm_coloc.flow.time.slots import Slots
from slurm_coloc.flow.watch.adopt import adopt
from slurm_coloc.flow.watch.idle import IdleJobs
from slurm_coloc.flow.watch.record import Recorder
from slurm_coloc.flow.watch.summaries import Summaries
from slurm_coloc.flow.watch.watch import Watcher


def slurm_uid(config: Config) -> int:
    """uid of SlurmUser; raises ConfigError where there is no such user."""
    try:
        return pwd.getpwnam(config.daemon.slurm_user).pw_uid
    except KeyError:
        raise ConfigError(f"daemon.slurm_user: no user {config.daemon.slurm_user!r}") from None


class Parts:
    """The stages of a job's life and what they share."""

    def __init__(self, config: Config) -> None:
        """Raises ConfigError."""
        self.slurm_uid = slurm_uid(config)
        self.trusted = {0, self.slurm_uid, os.geteuid()}
        self.store = Store.open(config.daemon.state_dir)
        self.slurm = slurm.connect(config.daemon)
        self.questions = JobQuestions(self.slurm)
        self.cluster = ShapeCache(self.slurm)
        self.limits = NO_LIMITS
        self.limits_known = False  # they were read, or there are none
        self.role = Role(self.slurm)
        self.nodes = Nodes(lambda: self.cluster.shape, self.trusted, self.store)
        self.texts = Texts()
        self.afterwards = AfterAnswers()
        self.prepare: Prepare = lambda uid, key, packed: None  # until there is a front
        self.use(config)

    @property
    def standby(self) -> bool:
        """The colocd of another controller is the active one."""
        return self.role.part is Part.STANDBY

    @property
    def switched_off(self) -> bool:
        """The admin's off file exists."""
        return self.config.daemon.off_file.exists()

    def use(self, config: Config) -> None:
        """Use this configuration; the socket and the database stay as they are. Raises ConfigError,
        and then all parts are as before: none may follow what another does not know of."""
        before = dict(vars(self))
        try:
            self._make(config)
        except ConfigError:
            vars(self).update(before)
            raise

    def _make(self, config: Config) -> None:
        self.config = config
        context = Context(
            config,
            self.store,
            self.slurm,
            self.nodes.live,
            lambda: self.switched_off,
            lambda: self.cluster.shape,
            lambda: self.limits if self.limits_known else None,
        )
        self.stretcher = Stretcher(context)
        self.placement = Placement(
            context, lambda: self.stretcher.closed, lambda: self.stretcher.activities
        )
        self.decider = Decider(
            config,
            self.store,
            self.placement.at_submit,
            self.texts,
            lambda uid, key, packed: self.prepare(uid, key, packed),
            self.afterwards.add,
        )
        self.recorder = Recorder(config, self.store, self.cluster.gpu_type)
        self.watcher = Watcher(
            self.store,
            self.slurm,
            self.recorder,
            lambda view: adopt(config, self.store, self.cluster.shape, view),
        )
        self.recoverer = Recoverer(context, self.watcher.see)
        self.gate = Gate(context, self.watcher.see)
        self.slots = Slots(context, self.watcher.poll_once)
        self.idle = IdleJobs(context)
        self.summaries = Summaries(context)
        self.resizer = Resizer(context, self.placement.forget_shares)
