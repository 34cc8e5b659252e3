# SPDX-License-Identifier: Apache-2.0
"""Finds a batch job's log from the patterns of sbatch -o and -e.

Prolog and Epilog get SLURM_JOB_STDOUT and SLURM_JOB_STDERR unexpanded on 22.05 and on 24.11
(tried), and neither the array's numbers nor the job's name. slurmstepd expands the pattern when
the job starts; this file follows it (slurmd/slurmstepd/fname.c at 22.05, slurmd/common/fname.c at
24.11; every rule here was tried on both releases, see tests/unit/hooks/logpaths-*.json).

``expand`` returns exact paths in the order in which to try them, and one search (a folder and a
regular expression for names in it) where a part is unknown.
"""

import re
from typing import NamedTuple

MAX_WIDTH = 10  # slurmstepd pads to ten digits at most
NO_ARRAY = 4294967294  # NO_VAL: what %a gives in a job that is no array task
_TOKEN = r"%(?:%|([0-9]*)(.)?)"


class LogFacts(NamedTuple):
    """The facts that a node knows of a job when its Epilog runs.

    ``array`` is (master job id, task id), None for a job that is no array task; it counts only
    where ``array_known``. ``hosts`` are the names that %N may stand for: the short host name
    (22.05, 24.11) and the NodeName (later releases).
    """

    job_id: int
    user: str
    work_dir: str
    hosts: tuple[str, ...]
    array: tuple[int, int] | None = None
    array_known: bool = False
    job_name: str | None = None


class Search(NamedTuple):
    """Names to look for in one folder; ``name`` is matched against the whole name."""

    folder: str
    name: str


class LogPath(NamedTuple):
    """``exact`` paths, best first; ``search`` only where none of them exists."""

    exact: tuple[str, ...]
    search: Search | None = None


class _Reading(NamedTuple):
    """One way to read a pattern: a release's tokens, a host name, the array's numbers."""

    host: str
    array: tuple[int, int] | None
    array_known: bool
    knows_b: bool  # %b came after 22.05


def default_pattern(is_array: bool) -> str:
    """The pattern of a job that named no -o (man sbatch)."""
    return "slurm-%A_%a.out" if is_array else "slurm-%j.out"


def expand(pattern: str | None, facts: LogFacts) -> LogPath:
    """The possible paths of the log of ``pattern``; None: the job named no -o."""
    if pattern is None:
        return _expand_default(facts)
    if "\\" in pattern:
        return LogPath((_absolute(_unescape(pattern), facts.work_dir),))
    exact: list[str] = []
    search: Search | None = None
    for reading in _readings(pattern, facts):
        parts = _parts(pattern, facts, reading)
        if all(isinstance(part, str) for part in parts):
            path = _absolute("".join(str(part) for part in parts), facts.work_dir)
            if path not in exact:
                exact.append(path)
        elif search is None:
            search = _search(parts, facts.work_dir)
    return LogPath(tuple(exact), search)


def _expand_default(facts: LogFacts) -> LogPath:
    if facts.array_known:
        return expand(default_pattern(facts.array is not None), facts)
    single = expand(default_pattern(False), facts)
    folder = facts.work_dir
    return LogPath(single.exact, Search(folder, r"slurm-[0-9]{1,10}_[0-9]{1,10}\.out"))


def _readings(pattern: str, facts: LogFacts) -> list[_Reading]:
    """Every way in which a release may read the pattern, the likeliest first."""
    hosts = facts.hosts if "N" in pattern and facts.hosts else facts.hosts[:1] or ("",)
    arrays: list[tuple[tuple[int, int] | None, bool]] = [(facts.array, True)]
    if not facts.array_known:
        arrays = [(None, True), (None, False)]
    with_b = (True, False) if "b" in pattern else (True,)
    return [
        _Reading(host, array, known, knows_b)
        for array, known in arrays
        for knows_b in with_b
        for host in hosts
    ]


def _parts(pattern: str, facts: LogFacts, reading: _Reading) -> list[str | re.Pattern[str]]:
    """The pattern cut into literal text and, where a value is unknown, regular expressions."""
    parts: list[str | re.Pattern[str]] = []
    at = 0
    for token in re.finditer(_TOKEN, pattern, re.DOTALL):
        parts.append(pattern[at : token.start()])
        at = token.end()
        if token.group(0) == "%%":
            parts.append("%")
            continue
        digits, letter = token.group(1) or "", token.group(2) or ""
        value = _value(letter, min(int(digits or "0"), MAX_WIDTH), facts, reading)
        # A width before an unknown letter loses the % and all but the last digit (tried: %5z
        # gives 5z); without a width the text stays as it is.
        unknown = digits[-1] + letter if digits else "%" + letter
        parts.append(unknown if value is None else value)
    parts.append(pattern[at:])
    return parts


def _value(
    letter: str, width: int, facts: LogFacts, reading: _Reading
) -> str | re.Pattern[str] | None:
    """What one token stands for; None for a letter that sbatch does not know."""
    numbers: dict[str, int] = {"j": facts.job_id, "J": facts.job_id, "n": 0, "t": 0}
    if letter in numbers:
        return f"{numbers[letter]:0{width}d}" if width else str(numbers[letter])
    if letter in ("a", "A", "b"):
        return _array_value(letter, width, facts, reading)
    if letter == "x":
        return facts.job_name if facts.job_name is not None else re.compile(r"[^/]{0,255}")
    texts = {"u": facts.user, "N": reading.host, "s": "batch"}
    return texts.get(letter)


def _array_value(
    letter: str, width: int, facts: LogFacts, reading: _Reading
) -> str | re.Pattern[str] | None:
    if letter == "b" and not reading.knows_b:
        return None
    if not reading.array_known:
        return re.compile(r"[0-9]{1,10}")
    master, task = reading.array or (facts.job_id, NO_ARRAY)
    number = {"a": task, "A": master, "b": task % 10}[letter]
    return f"{number:0{width}d}" if width else str(number)


def _search(parts: list[str | re.Pattern[str]], work_dir: str) -> Search | None:
    """A search for the open parts, or None where one of them stands in a folder's name."""
    first = next(i for i, part in enumerate(parts) if not isinstance(part, str))
    before = "".join(str(part) for part in parts[:first])
    folder, slash, stem = before.rpartition("/")
    rest = parts[first:]
    if any(isinstance(part, str) and "/" in part for part in rest):
        return None
    name = re.escape(stem) + "".join(
        re.escape(part) if isinstance(part, str) else part.pattern for part in rest
    )
    return Search(_absolute(folder or slash, work_dir) if slash else work_dir, name)


def _absolute(path: str, work_dir: str) -> str:
    return path if path.startswith("/") else f"{work_dir.rstrip('/')}/{path}"


def _unescape(path: str) -> str:
    """Strip one level of backslashes; a path with any is not expanded at all (man sbatch)."""
    return re.sub(r"\\(\\?)", r"\1", path)
