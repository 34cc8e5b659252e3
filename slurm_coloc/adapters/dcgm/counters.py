# SPDX-License-Identifier: Apache-2.0
"""DCGM's profiling counters, by ``dcgmi dmon`` as a child that is read line by line.

One child for all GPUs, started again with growing pauses where it ends. Of a GPU that is cut by MIG
dcgmi tells "N/A": its GPU instances are asked for as entities of their own (``i:N``), and what is
told is of the instance's own SMs. Compute instances that share one are not told apart.
"""

import asyncio
import contextlib
import re
import time

import structlog

from slurm_coloc.adapters.dcgm import Dcgmi, first
from slurm_coloc.core.gpu.telemetry.reading import Profile

log = structlog.get_logger()

#: field of Profile: DCGM's field, factor
FIELDS = {
    "smact": (1002, 1.0),
    "smocc": (1003, 1.0),
    "dram": (1005, 1.0),
    "pcie_tx_mib_s": (1009, 1 / 2**20),
    "pcie_rx_mib_s": (1010, 1 / 2**20),
}
MOST = 1e13  # bytes a second: a hundred times PCIe 6
STALE_S = 3.5  # a line comes each second
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
_ID = re.compile(r"^\|\s*(\d+)\s*\|")
_INSTANCE = re.compile(r"\b(\d+)/(\d+)(?:/(\d+))?\s*\|.*\(EntityID:\s*(\d+)\)")
_UUID = re.compile(r"(GPU-[0-9A-Za-z-]{8,80})")


def read_discovery(text: str) -> dict[int, str]:
    """UUID by DCGM's number of the GPU, from `dcgmi discovery -l`."""
    found: dict[int, str] = {}
    number: int | None = None
    for line in text.splitlines():
        if hit := _ID.match(line):
            number = int(hit[1])
        if number is not None and (uuid := _UUID.search(line)):
            found[number] = uuid[1]
    return found


def read_instances(text: str) -> dict[int, tuple[int, int]]:
    """GPU's number and GPU instance by entity number, from `dcgmi discovery -c`; of the GPU
    instances that are one compute instance."""
    found: dict[int, tuple[int, int]] = {}
    parts: dict[tuple[int, int], int] = {}
    for line in text.splitlines():
        if hit := _INSTANCE.search(line):
            at = (int(hit[1]), int(hit[2]))
            if hit[3] is None:
                found[int(hit[4])] = at
            else:
                parts[at] = parts.get(at, 0) + 1
    return {entity: at for entity, at in found.items() if parts.get(at) == 1}


def read_line(line: str, kind: str = "GPU") -> tuple[int, Profile | None] | None:
    """The number and figures of one line of dmon of a GPU (GPU-I: a GPU instance), None for those
    where dcgmi says N/A in every column; None for a heading and for other kinds."""
    words = line.split()
    if len(words) != 2 + len(FIELDS) or words[0] != kind or not words[1].isdigit():
        return None
    values: dict[str, float] = {}
    for word, (name, (_, factor)) in zip(words[2:], FIELDS.items(), strict=True):
        with contextlib.suppress(ValueError):
            value = float(word)
            if 0.0 <= value <= MOST:  # DCGM's blanks are near 2^63; nan is none of these
                values[name] = min(value, 1.0) if factor == 1.0 else value * factor
    return int(words[1]), Profile(**values) if values else None


#: a GPU by its UUID, a GPU instance by NVML's numbers of GPU and instance
Device = str | tuple[int, int]


class Dcgm:
    """The last figures of each GPU. ``why``: the reason where there are none."""

    def __init__(self, dcgmi: Dcgmi) -> None:
        self._dcgmi = dcgmi
        self._latest: dict[Device, tuple[float, Profile | None]] = {}
        self.numbers: dict[str, int] = {}
        self.why = "DCGM has not answered yet"
        self.there = False

    def read(self, device: Device) -> Profile | None:
        """The figures of a GPU or GPU instance, where they are fresh."""
        at_s, profile = self._latest.get(device, (0.0, None))
        return profile if time.monotonic() - at_s < STALE_S else None

    async def run(self) -> None:
        """Read for ever; a node without dcgmi is checked again every five minutes."""
        pause_s = FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            try:
                why = await self._stream()
            except OSError as err:
                why = f"DCGM: {err.strerror or err}"
            if why != self.why or self.there:
                log.info("dcgm", available=False, reason=why)
            self.why, self.there = why, False
            if time.monotonic() - began_s > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _stream(self) -> str:
        """Start dmon and read it to its end; why it ended."""
        if missing := self._dcgmi.missing:
            return missing
        done, text = await self._dcgmi.run("discovery", "-l")
        gpus = read_discovery(text) if done else {}
        if not gpus:
            return f"DCGM: {first(text) or 'no GPUs'}"
        self.numbers = {uuid: number for number, uuid in gpus.items()}
        fields = ",".join(str(field) for field, _ in FIELDS.values())
        done, text = await self._dcgmi.run("discovery", "-c")
        cut = read_instances(text) if done else {}
        entities = ",".join([*map(str, gpus), *(f"i:{entity}" for entity in cut)])
        only = ("-i", entities) if cut else ()
        try:
            child = await self._dcgmi.start("dmon", "-e", fields, "-d", "1000", *only)
        except OSError as err:
            return f"DCGM: {self._dcgmi.path}: {err.strerror}"
        try:
            return await self._lines(child, gpus, cut)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _lines(
        self,
        child: asyncio.subprocess.Process,
        gpus: dict[int, str],
        cut: dict[int, tuple[int, int]],
    ) -> str:
        assert child.stdout is not None
        last = ""
        while True:
            try:
                async with asyncio.timeout(30.0):
                    line = await child.stdout.readline()
            except TimeoutError:
                return "DCGM: dcgmi dmon prints nothing"
            except ValueError:
                return "DCGM: a line without end"
            if not line:
                return f"DCGM: dcgmi dmon ended: {last}"
            last = line.decode("utf-8", "replace").strip()[:120] or last
            found = read_line(last, "GPU-I")
            if found is not None and found[0] in cut:
                self._latest[cut[found[0]]] = (time.monotonic(), found[1])
            found = read_line(last)
            if found is None or found[0] not in gpus:
                continue
            self._latest[gpus[found[0]]] = (time.monotonic(), found[1])
            if not self.there and found[1] is not None:
                self.there, self.why = True, "DCGM says N/A"
                log.info("dcgm", available=True)

    async def pause(self) -> bool:
        """Free the profiling counters for a job's own profiler; whether DCGM did."""
        return (await self._dcgmi.run("profile", "--pause"))[0]

    async def resume(self) -> bool:
        """Take them again."""
        return (await self._dcgmi.run("profile", "--resume"))[0]
