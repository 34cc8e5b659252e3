# SPDX-License-Identifier: Apache-2.0
"""``coloc leave``: the way back to plain Slurm, step by step, without losing a job.

It reads what Slurm and the files show, does what can be done from here (the switch, and the
requests of waiting jobs), looks again, and says what is left for an admin.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from slurm_coloc.adapters import probe, sitefile
from slurm_coloc.adapters.slurm import SlurmClient, connect
from slurm_coloc.admin import limits_applied
from slurm_coloc.admin.doctor.colocd import Answer, read_status
from slurm_coloc.admin.leave.conf_edits import node_edits, slurm_conf_edits
from slurm_coloc.admin.leave.plan import (
    Facts,
    Shares,
    State,
    pinned,
    shares_of,
    steps,
    whole_request,
)
from slurm_coloc.admin.rules import slurm_conf
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import PER_TASK, update_fields
from slurm_coloc.core.slurm.job import JobView, by_record
from slurm_coloc.errors import ColocError, SlurmError
from slurm_coloc.flow.client.request import call

Say = Callable[[str], None]

WORD = "leave"  # what the off file says; etc/coloc.lua then refuses shards that users ask for
ANSWER_S = 10.0
ROUNDS = 3  # a job may have come back into the queue while others were changed


async def read(config: Config, slurm: SlurmClient | None = None) -> Facts:
    """What there is now. Raises SlurmError."""
    slurm = slurm or connect(config.daemon, briefly=True)
    conf, shape = await slurm.config(), await slurm.shape()
    views = await slurm.all_jobs()
    place = Path(slurm_conf.value(conf, "SLURM_CONF") or "/etc/slurm/slurm.conf")
    stack = Path(slurm_conf.value(conf, "PlugStackConfig") or place.parent / "plugstack.conf")
    status = read_status(config)
    links = [] if isinstance(status, ColocError) else status.get("links", [])
    linked = [row for row in links if row["linked"]]
    return Facts(
        off=(probe.text_of(config.daemon.off_file) or "").startswith(WORD),
        off_file=str(config.daemon.off_file),
        work=_work(status),
        shares=shares_of(views),
        shape=shape,
        limits_set=_limits(config, shape),
        in_force=_in_force(conf, shape),
        edits=tuple(slurm_conf_edits(probe.plugstack(place))),
        node_edits=tuple(
            node_edits(probe.plugstack(place.parent / "gres.conf"), probe.plugstack(stack))
        ),
        linked=tuple(row["node"] for row in linked),
        offering=tuple(row["node"] for row in linked if _offers(row)),
        controllers=len(slurm_conf.values(conf, "SlurmctldHost")),
        hook_in_force="lua" in slurm_conf.words(conf, "JobSubmitPlugins"),
        script_is_ours=_made_by_init(place.parent / "job_submit.lua"),
    )


def _made_by_init(script: Path) -> bool:
    try:
        change = sitefile.changes().get(str(script))
    except ColocError:
        return True
    return change is not None and change.new


def _work(status: Answer) -> int | None:
    if isinstance(status, ColocError):
        return None
    work = status.get("open_work")
    return work if isinstance(work, int) else 0


def _limits(config: Config, shape: ClusterShape) -> bool:
    try:
        return bool(limits_applied.read(config, shape.name))
    except ColocError:
        return False


def _in_force(conf: dict[str, str], shape: ClusterShape) -> tuple[str, ...]:
    found = []
    if "shard" in slurm_conf.words(conf, "GresTypes"):
        found.append("GresTypes=shard")
    if shards := sum(node.shards for node in shape.nodes):
        found.append(f"{shards} shards")
    return tuple(found)


def _offers(row: dict[str, object]) -> bool:
    setup = row.get("setup")
    gres = setup.get("gres", {}) if isinstance(setup, dict) else {}
    return any(str(name).split(":")[0] == "shard" and count for name, count in gres.items())


async def act(config: Config, say: Say, slurm: SlurmClient | None = None) -> Facts:
    """Do what can be done now; what there is then. Raises SlurmError, ColocError (``not-off``)
    where the off file cannot be written."""
    slurm = slurm or connect(config.daemon, briefly=True)
    facts = await read(config, slurm)
    if not facts.off:
        _switch(config.daemon.off_file)
        say(f"switched off: {config.daemon.off_file}")
        facts = await read(config, slurm)
    for _ in range(ROUNDS):
        due = {step.name: step.state for step in steps(facts)}
        if due["waiting shares"] is not State.NEXT:
            break
        await _convert(config, slurm, facts, say)
        facts = await read(config, slurm)
    return facts


def _switch(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.write_text(f"{WORD}\n")
        path.chmod(0o644)
    except OSError as err:
        text = f"{path} cannot be written ({err.strerror}): run this as root on slurmctld's host"
        raise ColocError(text, "not-off") from err


async def _convert(config: Config, slurm: SlurmClient, facts: Facts, say: Say) -> None:
    """Give each waiting share a whole GPU. A job that has started meanwhile is refused by Slurm and
    counts as running at the next look; so does one that ended."""
    waiting = facts.shares.waiting
    by_handle = {view.handle: view for view in waiting}
    for target in by_record(waiting):
        view = by_handle.get(target.handle) or next(
            one for one in waiting if str(one.array_job_id) == target.handle.split("_")[0]
        )
        tres = whole_request(view, facts.shape)
        try:
            await _order(config, slurm, facts.shape, target.handle, view, tres)
        except SlurmError as err:
            if err.away:
                raise
            say(f"job {target.handle}: {err.message}")
        else:
            say(f"job {target.handle}: {tres.removeprefix(PER_TASK)} instead of {view.tres}")


async def _order(
    config: Config, slurm: SlurmClient, shape: ClusterShape, handle: str, view: JobView, tres: str
) -> None:
    """One update, so that the job can never start with a part of it."""
    if pinned(view, shape) and _free(config, view):
        await slurm.update(handle, **update_fields(tres), ReqNodeList="")
    else:
        await slurm.set_gres(handle, tres)


def _free(config: Config, view: JobView) -> bool:
    """Whether the job's node was chosen by colocd alone, which knows what its owner asked for."""
    try:
        told = call(config, "explain", {"job_id": view.job_id}, ANSWER_S)
        return not told["decision"]["request"]["req_nodes"]
    except (ColocError, KeyError, TypeError):
        return False


__all__ = ["Facts", "Shares", "State", "act", "read", "steps"]


def run(config: Config, say: Say, *, yes: bool) -> Facts:
    """Read, and with ``yes`` act."""
    return asyncio.run(act(config, say) if yes else read(config))
