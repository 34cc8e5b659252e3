# SPDX-License-Identifier: Apache-2.0
"""GPM, NVML's profiling counters on Hopper and later: means between two samples that we take.

Nothing of it needs DCGM or root; the metrics' numbers and units are those of nvml.h.
"""

from typing import Any

from slurm_coloc.adapters.nvml import Missing, Nvml
from slurm_coloc.core.gpu.telemetry.reading import Profile
from slurm_coloc.errors import GpuError

_PCT = 0.01
#: field of Profile: NVML_GPM_METRIC_*, factor
METRICS = {
    "smact": ("NVML_GPM_METRIC_SM_UTIL", _PCT),
    "smocc": ("NVML_GPM_METRIC_SM_OCCUPANCY", _PCT),
    "dram": ("NVML_GPM_METRIC_DRAM_BW_UTIL", _PCT),
    "pcie_tx_mib_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", 1.0),
    "pcie_rx_mib_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", 1.0),
}


class Gpm:
    """Keeps the last sample of each device."""

    def __init__(self, lib: Nvml) -> None:
        self._lib = lib
        self._last: dict[str, Any] = {}  # samples of NVML's, one of each device
        self._spare: Any = None
        self._question: Any = None
        self._without: dict[str, Missing] = {}

    def forget(self) -> None:
        """Ask devices again whether they have counters."""
        self._without.clear()

    def read(self, uuid: str, handle: Any, parent: Any, instance: int | None) -> Profile | Missing:
        """The counters since the last call; ``parent`` and ``instance``: of a MIG device."""
        if uuid in self._without:
            return self._without[uuid]
        try:
            return self._read(uuid, handle, parent, instance)
        except GpuError as err:
            self._drop(uuid)
            self._without[uuid] = Missing(err.message)
            return self._without[uuid]

    def _read(self, uuid: str, handle: Any, parent: Any, instance: int | None) -> Profile | Missing:
        call = self._lib.call
        if uuid not in self._last:
            support = call("nvmlGpmQueryDeviceSupport", handle if parent is None else parent)
            if not support.isSupportedDevice:
                self._without[uuid] = Missing("GPM: Hopper and later only")
                return self._without[uuid]
        new = call("nvmlGpmSampleAlloc") if self._spare is None else self._spare
        self._spare = None
        try:
            if parent is None:
                call("nvmlGpmSampleGet", handle, new)
            else:
                call("nvmlGpmMigSampleGet", parent, instance, new)
        except GpuError:
            self._spare = new
            raise
        old, self._last[uuid] = self._last.get(uuid), new
        if old is None:
            return Missing("GPM: the first sample")
        self._spare = old
        return self._between(old, new)

    def _between(self, old: Any, new: Any) -> Profile:
        import pynvml

        if self._question is None:
            self._question = pynvml.c_nvmlGpmMetricsGet_t()
        asked = self._question
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(METRICS)
        asked.sample1, asked.sample2 = old, new
        for number, (name, _) in enumerate(METRICS.values()):
            asked.metrics[number].metricId = getattr(pynvml, name)
        self._lib.call("nvmlGpmMetricsGet", asked)
        values: dict[str, float] = {}
        for number, (name, (_, factor)) in enumerate(METRICS.items()):
            metric = asked.metrics[number]
            if metric.nvmlReturn == pynvml.NVML_SUCCESS and metric.value >= 0:
                value = metric.value * factor
                values[name] = min(value, 1.0) if factor == _PCT else value
        return Profile(**values)

    def _drop(self, uuid: str) -> None:
        sample = self._last.pop(uuid, None)
        if sample is not None:
            self._lib.maybe(self._lib.call, "nvmlGpmSampleFree", sample)
