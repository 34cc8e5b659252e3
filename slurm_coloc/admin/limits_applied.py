# SPDX-License-Identifier: Apache-2.0
"""The file of what `coloc limits --apply` set (admin/rules/limit_record): limits-applied.json in
daemon.state_dir, 0600, SlurmUser's, replaced as a whole."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from slurm_coloc.adapters import probe, spool
from slurm_coloc.admin.rules.limit_plan import REMOVED
from slurm_coloc.admin.rules.limit_record import Applied
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.qos_limits import BY_NAME
from slurm_coloc.errors import ColocError

NAME = "limits-applied.json"
SCHEMA = 1
LARGEST = 64 << 20  # bytes; a limit takes about 200

Record = tuple[Applied, ...]


class _Set(BaseModel):
    model_config = ConfigDict(extra="forbid")

    qos: str
    account: str
    user: str
    partition: str
    limit: str
    before: dict[str, int | None]
    after: dict[str, int | None]


class _File(BaseModel):
    schema_: int
    cluster: str
    set: list[_Set]


def path_of(config: Config) -> str:
    """Where the record is, for people."""
    return str(config.daemon.state_dir / NAME)


def read(config: Config, cluster: str) -> Record | None:
    """What --apply set on this cluster; None where there is no record. Raises ColocError for a file
    that is damaged, of another cluster, or may not be read."""
    if probe.check(config.daemon.state_dir) is None:
        return None
    owner = spool.uid_of(config.daemon.slurm_user)
    with spool.open_dir(config.daemon.state_dir, None, owner) as folder:
        raw = spool.read_file(folder, NAME, {0, owner, os.geteuid()}, LARGEST)
    if raw is None:
        return None
    try:
        told = json.loads(raw)
        found = _File(schema_=told["schema"], cluster=told["cluster"], set=told["set"])
    except (ValueError, KeyError, TypeError, ValidationError) as err:
        raise ColocError(f"{path_of(config)}: damaged: {type(err).__name__}", "bad-file") from err
    if found.schema_ != SCHEMA or any(one.limit not in BY_NAME for one in found.set):
        raise ColocError(f"{path_of(config)}: of another release of slurm-coloc", "bad-file")
    if found.cluster != cluster:
        text = f"{path_of(config)}: of cluster {found.cluster!r}, this is {cluster!r}"
        raise ColocError(text, "bad-file")
    return tuple(
        Applied(one.qos, one.account, one.user, one.partition, one.limit,
                _counts(one.before), _counts(one.after))
        for one in found.set
    )  # fmt: skip


def write(config: Config, cluster: str, record: Iterable[Applied]) -> None:
    """Replace the record. Raises ColocError where it cannot be written: run as root or SlurmUser on
    colocd's host."""
    rows: list[dict[str, Any]] = [
        asdict(one) | {"before": _shown(one.before), "after": _shown(one.after)} for one in record
    ]
    text = json.dumps({"schema": SCHEMA, "cluster": cluster, "set": rows}, indent=1) + "\n"
    owner = spool.uid_of(config.daemon.slurm_user)
    try:
        with spool.open_dir(config.daemon.state_dir, None, owner) as folder:
            spool.write_file(folder, NAME, text.encode(), 0o600, owner)
    except (ColocError, OSError) as err:
        text = f"{path_of(config)} cannot be written ({err}): nothing more is set; run this as root"
        raise ColocError(f"{text} or SlurmUser on colocd's host", "no-record") from err


def _counts(shown: dict[str, int | None]) -> dict[str, int]:
    return {tres: REMOVED if count is None else count for tres, count in shown.items()}


def _shown(counts: dict[str, int]) -> dict[str, int | None]:
    return {tres: None if count == REMOVED else count for tres, count in counts.items()}
