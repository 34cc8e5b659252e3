# SPDX-License-Identifier: Apache-2.0
"""Series as the text that Prometheus reads, by prometheus_client: OpenMetrics or the older format,
as the reader asks."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from slurm_coloc.core.metrics.series import Histogram, Series
from slurm_coloc.errors import ConfigError

MISSING = (
    "metrics need prometheus_client: apt install python3-prometheus-client,"
    " or pip install prometheus-client"
)


class Writer:
    """Writes series. Raises ConfigError where prometheus_client is missing."""

    def __init__(self) -> None:
        if sys.modules.get("ssl", self) is None:
            del sys.modules["ssl"]  # a daemon leaves it out (lean.py); prometheus_client wants it
        try:
            from prometheus_client import exposition
            from prometheus_client.core import (
                CounterMetricFamily,
                GaugeMetricFamily,
                HistogramMetricFamily,
                InfoMetricFamily,
            )
        except ImportError:
            raise ConfigError(MISSING) from None
        self._encoder: Any = exposition.choose_encoder
        self._families: dict[str, Any] = {
            "gauge": GaugeMetricFamily,
            "counter": CounterMetricFamily,
            "histogram": HistogramMetricFamily,
            "info": InfoMetricFamily,
        }

    def text(self, series: Iterable[Series], accept: str) -> tuple[bytes, str]:
        """The text and its content type, by a request's Accept header. One without a series is
        left out."""
        encode, content_type = self._encoder(accept)
        return encode(_Once([self._family(one) for one in series if one.rows])), content_type

    def _family(self, series: Series) -> Any:
        name, kind, labels, text, _ = series.metric
        family = self._families[kind](name, text, labels=() if kind == "info" else labels)
        for values, value in series.rows:
            if isinstance(value, Histogram):
                family.add_metric(values, buckets=value.buckets(), sum_value=value.total)
            elif kind == "info":
                family.add_metric((), dict(zip(labels, values, strict=True)))
            else:
                family.add_metric(values, value)
        return family


class _Once:
    """A registry of these families."""

    def __init__(self, families: Sequence[Any]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        return iter(self._families)
