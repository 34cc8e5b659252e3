# SPDX-License-Identifier: Apache-2.0
"""Finds out from the end of a program's log whether it ran out of GPU memory.

The texts are those that the frameworks print (examples with verdicts: tests/contract/oom). A rule
requires the form of an error message, not just its words. Host memory does not count: oom_kill,
std::bad_alloc, MemoryError and CPU allocators.

The last evidence counts. It is void when the program went on and then ended in an ordinary error of
its own (a new traceback that ends in, say, KeyError): the GPU did not stop that run.

Every line is cut at MAX_LINE characters and no pattern nests a repetition, so the work is linear in
the length of the text. Patterns are compiled on first use: the Epilog of every job imports this
module, and hardly any log needs them.
"""

import math
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["cuda_oom", "cublas", "cudnn", "nccl", "tf", "jax", "cupy"]

MAX_LINE = 4096
MAX_EVIDENCE = 512
MAX_MIB = 64 * 1024 * 1024  # 64 TiB: larger figures are overflows that PyTorch is known to print


class OomEvidence(NamedTuple):
    """The line that shows a GPU out-of-memory, and the figures in it (MiB, rounded up).

    ``others_mib``: what other processes held, of which PyTorch names each.
    ``superseded_by`` names the ordinary error in which the program ended later, if it did; then
    ``oom`` is false.
    """

    kind: Kind
    pattern: str
    line: str
    requested_mib: int | None = None
    capacity_mib: int | None = None
    in_use_mib: int | None = None
    free_mib: int | None = None
    superseded_by: str | None = None
    others_mib: int | None = None

    @property
    def oom(self) -> bool:
        """Whether this evidence still holds at the end of the log."""
        return self.superseded_by is None


class _Rule(NamedTuple):
    """``needle`` (lower case) must stand in the line before ``shape`` is tried."""

    kind: Kind
    name: str
    needle: str
    shape: str


_SIZE = r"[0-9][0-9.,]{0,20} ?(?:[KMGTkmgt]i?)?(?:B|bytes)"
# The first rule that fits a line names it: the framework before the library below it.
_RULES = (
    _Rule("cupy", "cupy", "out of memory", r"\bout of memory to allocate [0-9]+ bytes \(total "),
    _Rule("cupy", "cupy", "out of memory", r"Out of memory allocating [0-9,]+ bytes \(allocated "),
    _Rule("jax", "xla", "out of memory",
          r"(?:RESOURCE_EXHAUSTED|Resource exhausted): (?:[^:]{0,80}: )?Out of memory "
          r"(?:while trying to allocate|allocating) "),
    _Rule("jax", "xla-request", "failed to allocate request",
          r"RESOURCE_EXHAUSTED: .{0,80}?Failed to allocate request for "),
    _Rule("tf", "tf-tensor", "oom when allocating",
          r"OOM when allocating tensor with shape ?\["
          r"(?!.*(?:device:CPU|/cpu:|by allocator (?:mkl_?)?cpu))"),
    _Rule("tf", "tf-exhausted", "failed to allocate memory",
          r"(?:ResourceExhaustedError|RESOURCE_EXHAUSTED).{0,300}?\bfailed to allocate memory"),
    _Rule("tf", "tf-device", "cuda_error_out_of_memory",
          r"failed to allocate .{0,120}? from device: CUDA_ERROR_OUT_OF_MEMORY"),
    _Rule("nccl", "nccl", "cuda failure", r"Cuda failure (?:[0-9]+ )?'out of memory'"),
    _Rule("nccl", "nccl-calloc", "failed to cuda calloc", r"NCCL WARN Failed to CUDA calloc "),
    _Rule("cudnn", "cudnn", "cudnn_status_",
          r"(?:[Ee]rror|handle|[Ff]ail\w*|what\(\)).{0,200}?CUDNN_STATUS_(?:ALLOC_FAILED|"
          r"INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)"),
    _Rule("cublas", "cublas", "cublas_status_alloc_failed",
          r"(?:[Ee]rror|handle|[Ff]ail\w*|what\(\)).{0,200}?CUBLAS_STATUS_ALLOC_FAILED"),
    _Rule("cuda_oom", "torch", "out of memory. tried to allocate",
          rf"\bCUDA out of memory\. Tried to allocate {_SIZE}"),
    _Rule("cuda_oom", "torch-async", "would exceed allowed memory",
          r"OutOfMemoryError: Allocation on device .{0,40}?would exceed allowed memory"),
    _Rule("cuda_oom", "torch-error", "cuda ",
          r"(?:Error|what\(\)): {1,2}CUDA (?:driver )?(?:error: )?out of memory"
          r"(?!\. Tried to allocate more than)"),
    _Rule("cuda_oom", "paddle", "out of memory error on gpu", r"Out of memory error on GPU [0-9]"),
    _Rule("cuda_oom", "cuda-enum", "cuda_error_out_of_memory",
          r"(?:[Ee]rror|ERROR|[Ff]ail\w*|results in|what\(\)).{0,200}?CUDA_ERROR_OUT_OF_MEMORY"),
    _Rule("cuda_oom", "cuda-enum", "cudaerrormemoryallocation",
          r"(?:[Ee]rror|ERROR|[Ff]ail\w*|what\(\)|code=2 ?\().{0,200}?cudaErrorMemoryAllocation"),
    _Rule("cuda_oom", "cuda-library", "_alloc_failed",
          r"(?:[Ee]rror|[Ff]ail\w*).{0,200}?(?:CUSOLVER_STATUS|CUSPARSE_STATUS|CUFFT)_ALLOC_FAILED"),
    _Rule("cuda_oom", "cuda-text", "out of memory",
          r"(?:(?:CUDA|Cuda|cuda) (?:[Rr]untime )?(?:[Ee]rror|ERROR|[Ff]ailure)"
          r"(?: (?:code )?[0-9]+)?[:=(]? ?|cudaMalloc\w{0,20} (?:retry )?failed: |GPUassert: "
          r"|Cuda Runtime \()\(?out of memory\b"),
    _Rule("cuda_oom", "cuda-code", "out of memory (2)",
          r"(?:[Cc][Uu][Dd][Aa]|GPU|device|[Ee]rror).{0,200}?\bout of memory \(2\)"),
)  # fmt: skip

# Errors that do not follow from a lack of GPU memory.
_ORDINARY = (
    r"^(?:[A-Za-z_][\w.]{0,80}\.)?((?:Key|Value|Type|Attribute|Name|Index"
    r"|FileNotFound|ModuleNotFound|Import|Assertion|ZeroDivision|Permission|NotImplemented"
    r"|IsADirectory|UnicodeDecode|JSONDecode|Indentation|Syntax|UnboundLocal)Error)(?::|$)"
)
_TRACEBACK = "Traceback (most recent call last):"
#: behind which a traceback tells no new failure of the program: one that follows from the first,
#: and what Python prints while it ends, of a DataLoader's workers, of threads and exit handlers
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_AT_EXIT = ("Exception ignored ", "Exception in thread ", "Error in atexit", "Error in sys.except")
#: PyTorch puts it before each line of a traceback, in a training of several processes
_RANK = re.compile(r"^\[rank[0-9]{1,6}\]: ?")


def find_oom(text: bytes | str) -> OomEvidence | None:
    """The last evidence of a GPU out-of-memory in ``text``, or None.

    Bytes are read as UTF-8 with anything else replaced.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    whole = text.lower()
    if not any(rule.needle in whole for rule in _RULES):
        return None  # nearly every log: the Epilog of every job waits for this
    found: OomEvidence | None = None
    fresh_traceback = chained = False
    superseded: str | None = None
    for line in _lines(text):
        evidence = _judge(line)
        if evidence is not None:
            # A later line of the same failure often has no figures: keep the one that has them.
            poorer = found is not None and found.requested_mib is not None and superseded is None
            if not poorer or evidence.requested_mib is not None:
                found = evidence
            fresh_traceback, superseded = False, None
        elif found is not None and (line := _unranked(line)):
            if _TRACEBACK in line:
                fresh_traceback = not chained
            elif fresh_traceback and (ordinary := re.match(_ORDINARY, line)):
                superseded, fresh_traceback = ordinary.group(1), False
            chained = line.startswith(_CHAINED + _AT_EXIT)
    if found is None or superseded is None:
        return found
    return OomEvidence(found.kind, found.pattern, found.line, superseded_by=superseded)


def ordinary_end(text: bytes) -> str | None:
    """The ordinary error, such as KeyError, in which the last traceback of a log ends; None where
    it ends in another one, or the log has none."""
    if _TRACEBACK.encode() not in text:
        return None
    found, fresh, at_exit = None, False, False
    for line in map(_unranked, _lines(text.decode("utf-8", "replace"))):
        if _TRACEBACK in line:
            found, fresh = (found, False) if at_exit else (None, True)
        elif fresh and (ordinary := re.match(_ORDINARY, line)):
            found, fresh = ordinary.group(1), False
        at_exit = line.startswith(_AT_EXIT) or (at_exit and not line)
    return found


def _unranked(line: str) -> str:
    return _RANK.sub("", line)


def sanitise(line: str) -> str:
    """One printable line: no control, format, surrogate or line-separator characters."""
    line = re.sub(r"\x1b\[[0-9;?]{0,16}[A-Za-z]", "", line)
    return "".join(ch if ch.isprintable() else " " for ch in line).strip()


def _lines(text: str) -> Iterator[str]:
    """Lines, also those that a progress bar ends with a carriage return."""
    for line in re.split(r"[\r\n]+", text):
        yield line[:MAX_LINE].rstrip()


def _judge(line: str) -> OomEvidence | None:
    low = line.lower()
    for rule in _RULES:
        if rule.needle in low and (hit := re.search(rule.shape, line)) is not None:
            start = max(0, hit.start() - 120)
            shown = sanitise(line[start : start + 2 * MAX_EVIDENCE])[:MAX_EVIDENCE]
            figures = {name: _figure(line, name) for name in _FIGURES}
            if rule.kind == "tf" and figures["requested_mib"] is None:
                figures["requested_mib"] = _tensor_mib(line)
            return OomEvidence(
                rule.kind,
                rule.name,
                shown,
                figures["requested_mib"],
                figures["capacity_mib"],
                figures["in_use_mib"],
                figures["free_mib"],
                others_mib=_others_mib(line),
            )
    return None


_NUMBER = r"([0-9][0-9.,]{0,20}) ?([KMGTkmgt]i?)?(?:B\b|bytes|b\b|(?=[ .]|$))"
_FIGURES: dict[str, tuple[str, ...]] = {
    "requested_mib": (
        r"(?:[Tt]ried|trying) to allocate " + _NUMBER,
        r"(?:memory allocating|memory to allocate|calloc|request for) " + _NUMBER,
        r"(?:[Cc]annot allocate|failed to allocate|allocating) " + _NUMBER,
    ),
    "capacity_mib": (r"total capaci?ty of " + _NUMBER, r"; " + _NUMBER + r" total capacity"),
    "free_mib": (
        r"of which " + _NUMBER + r" is free",
        r"; " + _NUMBER + r" free",
        r"available memory is only " + _NUMBER,
    ),
    "in_use_mib": (
        r"this process has " + _NUMBER + r" memory in use",
        r"; " + _NUMBER + r" reserved in total",
        r"; " + _NUMBER + r" cached",
        r"; " + _NUMBER + r" already allocated",
        r"allocated so far: " + _NUMBER,
        r"bytes \(total " + _NUMBER,
        r", " + _NUMBER + r" memory has been allocated",
    ),
}
_OTHER = r"\bProcess [0-9]{1,10} has " + _NUMBER + r" memory in use"
_SCALE = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TENSOR = r"with shape ?\[([0-9,]{1,200})\](?: and type (\w{1,20}))?"
_TF_BYTES = {"double": 8, "int64": 8, "half": 2, "bfloat16": 2, "int16": 2, "int8": 1, "bool": 1}


def _figure(line: str, name: str) -> int | None:
    """The figure called ``name`` in MiB, rounded up; None where absent or absurd."""
    for shape in _FIGURES[name]:
        if hit := re.search(shape, line):
            found = _in_mib(hit)
            if found is not None:
                return found
    return None


def _in_mib(hit: re.Match[str]) -> int | None:
    """The size that _NUMBER found; None where it is no number, or absurd."""
    unit = (hit.group(2) or "")[:1].lower()
    try:
        value = float(hit.group(1).replace(",", "").rstrip(".")) * _SCALE[unit]
    except ValueError:
        return None
    return _mib(value)


def _others_mib(line: str) -> int | None:
    """The sum over the other processes that PyTorch names ("Process 4711 has 30.20 GiB memory in
    use.", from 2.1 on); None where it names none."""
    found = [_in_mib(hit) for hit in re.finditer(_OTHER, line)]
    known = [mib for mib in found if mib is not None]
    return min(sum(known), MAX_MIB) if known else None


def _tensor_mib(line: str) -> int | None:
    """The size of the tensor that TensorFlow could not allocate."""
    hit = re.search(_TENSOR, line)
    if hit is None:
        return None
    sizes = [int(size[:12]) for size in hit.group(1).split(",")[:16] if size]
    return _mib(math.prod(sizes) * _TF_BYTES.get(hit.group(2) or "float", 4))


def _mib(value_bytes: float) -> int | None:
    if not 0 <= value_bytes <= MAX_MIB * 2**20:
        return None
    return math.ceil(value_bytes / 2**20)
