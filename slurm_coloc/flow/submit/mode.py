# SPDX-License-Identifier: Apache-2.0
"""Which mode is in force for a job: the off switch, then the first matching rule, then default."""

import pwd
from collections.abc import Sequence

from slurm_coloc.config import Config, Mode, ModeRule

CAREFUL: tuple[Mode, ...] = ("off", "observe", "on")


class Modes:
    """Modes of one configuration. User names are resolved once, at load: a slow directory service
    must not delay a submission."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._uids = {rule.user: _uid(rule.user) for rule in config.mode.rules if rule.user}

    @property
    def switched_off(self) -> bool:
        """Whether the admin's off file exists."""
        return self._config.daemon.off_file.exists()

    def of(self, uid: int, account: str | None, partitions: Sequence[str]) -> Mode:
        """on, observe or off for such a job; of several partitions the most careful one counts,
        since Slurm may start the job in any of them."""
        if self.switched_off:
            return "off"
        found = {self._one(uid, account, name) for name in partitions or (None,)}
        return next(mode for mode in CAREFUL if mode in found)

    def _one(self, uid: int, account: str | None, partition: str | None) -> Mode:
        for rule in self._config.mode.rules:
            if self._matches(rule, uid, account, partition):
                return rule.mode
        return self._config.mode.default

    def _matches(
        self, rule: ModeRule, uid: int, account: str | None, partition: str | None
    ) -> bool:
        return (
            (rule.partition is None or rule.partition == partition)
            and (rule.account is None or rule.account == account)
            and (rule.user is None or self._uids[rule.user] == uid)
        )


def _uid(user: str) -> int | None:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None  # `coloc doctor` tells; the rule matches nobody
