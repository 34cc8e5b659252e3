# SPDX-License-Identifier: Apache-2.0
"""What a lab is made of: its specification, and the machines whose GPUs can be emulated."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from slurm_coloc.errors import UsageFault
from slurm_coloc.lab import parts

BASE = Path("/run/slurm-coloc-lab")

# A Unix socket path holds 107 characters; slurmstepd's own sockets hang below the lab's folder as
# nodes/<node>/spool/<node>_<job>.<step>.
MAX_DIR_CHARS = 60


@dataclass(frozen=True)
class MigSlice:
    """A MIG device of an emulated machine: its gres type, and the device file of its compute
    instance by number (adapters/nvml/mig.cap_minor)."""

    gpu_type: str
    cap: int


@dataclass(frozen=True)
class Machine:
    """One emulated machine: ``gpus`` equal whole cards of Slurm type ``gpu_type``, at the first
    minor numbers; behind them cards that are cut into ``slices``.

    ``usable_mib`` of one card is NVML's total less what the driver reserves (the emulator's own
    figure, `coloc-emu show`); the shards of a GPU follow from it.
    """

    gpu_type: str
    gpus: int
    usable_mib: int
    slices: tuple[MigSlice, ...] = ()

    @property
    def gres(self) -> str:
        """The gpu gres of a node in slurm.conf; equal types are counted together, whole ones first.

        slurmd counts its devices in this order, and CUDA has whole GPUs before MIG devices."""
        types = dict.fromkeys(one.gpu_type for one in self.slices)
        counts = {kind: sum(one.gpu_type == kind for one in self.slices) for kind in types}
        return ",".join(
            f"gpu:{kind}:{count}" for kind, count in {self.gpu_type: self.gpus, **counts}.items()
        )

    def shards_per_gpu(self, shard_mib: int, margin_mib: int = 512) -> int:
        """Whole shards of one card after the margin that is never handed out (config [pool])."""
        return max(1, (self.usable_mib - margin_mib) // shard_mib)


# The names are the emulator's own (slurm_coloc/lab/emulator). mig-mixed: of two cards the second is
# cut; its 3g.20gb has two compute instances, which share its memory.
MACHINES: dict[str, Machine] = {
    "1xa100-40gb": Machine("a100", 1, 40536),
    "2xa100-40gb": Machine("a100", 2, 40536),
    "dgx-station-a100": Machine("a100", 4, 40536),
    "2xh100-80gb": Machine("h100", 2, 81009),
    "8xh100-80gb": Machine("h100", 8, 81009),
    "1xh200": Machine("h200", 1, 143155),
    "mig-mixed": Machine(
        "a100",
        1,
        40536,
        (
            MigSlice("1c.3g.20gb", 148),
            MigSlice("2c.3g.20gb", 149),
            MigSlice("2g.10gb", 166),
            MigSlice("1g.5gb", 220),
            MigSlice("1g.5gb", 229),
        ),
    ),
}

_NAME = re.compile(r"[a-z][a-z0-9]{0,19}")


@dataclass(frozen=True)
class LabSpec:
    """The specification of a lab. ``check()`` raises UsageFault for what cannot be made."""

    name: str = "lab"
    nodes: int = 1
    machine: str = "2xa100-40gb"
    users: int = 3
    mode: str = "on"
    dir: Path | None = None
    shard_mib: int = 1024
    least_loaded: bool = False
    #: MULTIPLE_SHARING_GRES_PJ (24.11 and later): a job may hold shards of several GPUs. Not the
    #: default, because Slurm then also splits the shards of jobs that are not ours
    multi_gpu: bool = False
    #: a Type of its own for each GPU (a100-0, a100-1, ...), so that colocd can steer jobs; the
    #: model becomes a feature of the nodes
    steered: bool = False
    #: ExclusiveUser=YES: Slurm keeps the users apart. Without it, and without pins, a lab's users
    #: share GPUs by an explicit sharing.with = "anyone" (unless ``settings`` say otherwise)
    exclusive_user: bool = False
    #: what job_submit.lua waits for colocd; sbatch waits 5 times as long for a ticket before
    deadline_ms: int = 200
    #: the optional etc/cli_filter.lua, which every sbatch and srun loads
    cli_filter: bool = True
    coloc: bool = True
    #: nodes and login reach colocd over TCP with MUNGE, as on other hosts; an agent on each node
    network: bool = False
    #: slurmdbd and a MariaDB of its own, with limits in force; one account for all users
    accounting: bool = False
    #: build the emulated GPUs (tests of Slurm alone save the seconds)
    emulator: bool = True
    cpus: int = 32
    memory_mib: int = 128_000
    #: the folder of another Slurm than the system's (configure's --prefix): daemons, commands and
    #: headers; several nodes need one that was built with --enable-multiple-slurmd
    slurm: str = field(default_factory=lambda: os.environ.get(parts.SLURM, ""))
    #: appended to slurm.conf as it stands (partitions, reservations of a test)
    slurm_conf_extra: str = ""
    #: coloc.toml tables laid over the lab's own, e.g. {"recovery": {"max_per_job": 2}}
    settings: dict[str, dict[str, object]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The one folder that everything of the lab lies below."""
        return self.dir or BASE / self.name

    @property
    def cards(self) -> Machine:
        """The machine that every node emulates."""
        return MACHINES[self.machine]

    @property
    def node_names(self) -> list[str]:
        """n1, n2, ..."""
        return [f"n{i}" for i in range(1, self.nodes + 1)]

    @property
    def user_names(self) -> list[str]:
        """The lab's accounts: coloc-<name>-1, ..."""
        return [f"coloc-{self.name}-{i}" for i in range(1, self.users + 1)]

    def check(self) -> None:
        """Raise UsageFault for a specification that no lab can have."""
        if not _NAME.fullmatch(self.name):
            raise UsageFault(
                f"lab name {self.name!r}: a small letter, then at most 19 small letters or digits"
            )
        if self.machine not in MACHINES:
            raise UsageFault(f"machine {self.machine!r}: choose one of {', '.join(MACHINES)}")
        if self.mode not in ("on", "observe", "off"):
            raise UsageFault(f"mode {self.mode!r}: choose on, observe or off")
        if not 1 <= self.nodes <= 32 or not 0 <= self.users <= 32:
            raise UsageFault("a lab has 1 to 32 nodes and 0 to 32 users")
        if self.steered and self.cards.slices:
            raise UsageFault(f"machine {self.machine!r}: MIG devices cannot be steered")
        if not 64 <= self.shard_mib <= self.cards.usable_mib:
            raise UsageFault(f"shard size {self.shard_mib} MiB: 64 to the card's memory")
        text = str(self.folder)
        if not self.folder.is_absolute() or len(text) > MAX_DIR_CHARS or re.search(r"\s", text):
            raise UsageFault(
                f"lab folder {text}: an absolute path without blanks of at most {MAX_DIR_CHARS}"
                " characters (Unix socket paths are short)"
            )
