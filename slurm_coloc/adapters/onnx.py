# SPDX-License-Identifier: Apache-2.0
"""Runs the networks of slurm_coloc/estimate/baselines/nets with onnxruntime, on one CPU thread."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

NETS = Path(__file__).resolve().parents[1] / "estimate" / "baselines" / "nets"


def installed() -> bool:
    """Whether onnxruntime, the extra ``networks``, can be imported; it is not loaded for that."""
    try:
        return find_spec("onnxruntime") is not None
    except ImportError:
        return False


class Onnx:
    """A runner for slurm_coloc.estimate.baselines.nets.runner: loads a network when it is first
    asked.

    Threads may call it: sessions of onnxruntime run in any. Raises LookupError where onnxruntime is
    not installed or a file cannot be loaded.
    """

    def __init__(self, folder: Path = NETS) -> None:
        self._folder = folder
        self._sessions: dict[str, Any] = {}
        self._lock = Lock()

    def __call__(self, name: str, inputs: dict[str, Sequence[object]]) -> list[float]:
        """Probabilities of the classes. ``inputs``: one model's, without the leading dimension."""
        session = self._session(name)
        import numpy  # comes with onnxruntime

        given = {key: numpy.asarray([value], numpy.float32) for key, value in inputs.items()}
        try:
            found = session.run(None, given)[0]
        except Exception as err:  # onnxruntime raises classes of its own, all of Exception
            raise LookupError(f"{name}: {str(err).splitlines()[0][:120]}") from err
        return [float(value) for value in found[0]]

    def _session(self, name: str) -> Any:
        with self._lock:
            if name not in self._sessions:
                self._sessions[name] = self._load(name)
            return self._sessions[name]

    def _load(self, name: str) -> Any:
        try:
            import onnxruntime
        except ImportError as err:
            raise LookupError("onnxruntime is not installed") from err
        options = onnxruntime.SessionOptions()
        # A daemon's estimate is one small graph: threads of its own would only wait for work.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            return onnxruntime.InferenceSession(
                str(self._folder / name), options, providers=["CPUExecutionProvider"]
            )
        except Exception as err:  # missing file, damaged file, operators that are too new
            raise LookupError(f"{name}: {str(err).splitlines()[0][:120]}") from err
