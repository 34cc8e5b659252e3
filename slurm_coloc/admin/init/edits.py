# SPDX-License-Identifier: Apache-2.0
"""Edits of Slurm's own files: which lines change, and the text after it; pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_coloc.admin.rules.conf_file import parse_conf
from slurm_coloc.core.slurm.gres import count_of
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.errors import ConfigError

BEGIN = "-- slurm-coloc, by `coloc init`: what the site's rules left goes to colocd."
END = "-- slurm-coloc, end."
_GRES = re.compile(r'(\sGres=)("?)([^\s"]+)("?)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Edit:
    """A line ``old`` becomes ``new``, which may be several lines. None for ``old``: lines that are
    added, before the line ``before`` if it is given, else at the end."""

    old: str | None
    new: str
    before: str | None = None


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits; raises ConfigError where a line is not there."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    for edit in edits:
        if edit.old is not None:
            lines[_last(lines, edit.old)] = edit.new
        elif edit.before is not None:
            lines.insert(_last(lines, edit.before), edit.new)
        else:
            lines.append(edit.new)
        lines = "\n".join(lines).split("\n")
    return "\n".join(lines) + "\n"


def undo(text: str, edits: Sequence[Edit]) -> tuple[str, list[Edit]]:
    """The text without the edits, and those whose lines are no longer there as they were made."""
    left = []
    for edit in reversed(edits):
        block = f"{edit.new}\n"
        at = f"\n{text}".rfind(f"\n{block}")
        if at < 0:
            left.append(edit)
            continue
        old = "" if edit.old is None else f"{edit.old}\n"
        text = text[:at] + old + text[at + len(block) :]
    return text, left


def _last(lines: list[str], line: str) -> int:
    for number in reversed(range(len(lines))):
        if lines[number] == line:
            return number
    raise ConfigError(f"no line {line!r} any more", "changed")


def slurm_conf(
    text: str, whole: Iterable[str], words: Mapping[str, Sequence[str]], shards: Mapping[str, str]
) -> Iterator[Edit]:
    """What slurm.conf needs.

    ``text``: the file itself; ``whole``: its lines with those of included files; ``words``: what
    each list has to contain, in order; ``shards``: for each node its shard gres, e.g.
    ``{"n1": "shard:a100:78"}``. Raises ConfigError for a line that only a person can change.
    """
    conf = parse_conf(whole)
    for key, wanted in words.items():
        lacking = [word for word in wanted if word not in conf.words(key)]
        if lacking:
            yield _listed(text, key, lacking, there=bool(conf.value(key)))
    yield from _nodes(text, shards)


def _listed(text: str, key: str, lacking: Sequence[str], *, there: bool) -> Edit:
    """A list parameter with more words; of several lines Slurm takes the last."""
    pattern = re.compile(rf'^(\s*{key}\s*=\s*)("?)([^\s"#]*)("?)(.*)$', re.IGNORECASE)
    for line in reversed(text.splitlines()):
        if hit := pattern.match(line):
            if hit[5].rstrip().endswith("\\"):
                raise ConfigError(f"{key} goes on over several lines: add {','.join(lacking)}")
            value = ",".join(filter(None, [hit[3], *lacking]))
            return Edit(line, f"{hit[1]}{hit[2]}{value}{hit[4]}{hit[5]}")
    if there:
        raise ConfigError(f"{key} stands in an included file: add {','.join(lacking)} there")
    return Edit(None, f"{key}={','.join(lacking)}")


def _nodes(text: str, shards: Mapping[str, str]) -> Iterator[Edit]:
    """NodeName lines with shards beside their GPUs."""
    done: set[str] = set()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        hit = re.match(r"\s*NodeName\s*=\s*(\S+)", line, re.IGNORECASE)
        if hit is None:
            continue
        items = {shards[node] for node in shards if in_nodes(hit[1], node)}
        done |= {node for node in shards if in_nodes(hit[1], node)}
        if not items:
            continue
        if len(items) > 1:
            raise ConfigError(f"NodeName={hit[1]}: its nodes have different GPUs ({sorted(items)})")
        part, gres = _gres_of(lines, number)
        if gres is None:
            raise ConfigError(f"NodeName={hit[1]}: no Gres on this line: add {items.pop()} there")
        if not count_of(gres[3], "shard"):
            new = part[: gres.end(3)] + "," + items.pop() + part[gres.end(3) :]
            yield Edit(part, new)
    if lost := sorted(set(shards) - done):
        raise ConfigError(f"no NodeName line for {', '.join(lost)} in this file")


def _gres_of(lines: Sequence[str], number: int) -> tuple[str, re.Match[str] | None]:
    """Where a NodeName line has its Gres; it may go on over several lines."""
    while True:
        line = lines[number]
        if (hit := _GRES.search(line)) or not line.rstrip().endswith("\\"):
            return line, hit
        if number + 1 == len(lines):
            return line, None
        number += 1


def gres_conf(lines: Sequence[str], node: str, shards: Sequence[int]) -> Iterator[Edit]:
    """Lines for the shards of this node's GPUs, by the order of their minor numbers; one count for
    all where they have the same, which Slurm spreads evenly. ``lines``: gres.conf with its
    includes, without comments."""
    ours = [line for line in lines if _concerns(line, node)]
    if any(re.search(r"\bName\s*=\s*shard\b", line, re.IGNORECASE) for line in ours):
        return
    named = any(re.search(r"\bNodeName\s*=", line, re.IGNORECASE) for line in lines)
    head = f"NodeName={node} " if named else ""
    if len(set(shards)) == 1:
        yield Edit(None, f"{head}Name=shard Count={sum(shards)}")
        return
    for minor, count in enumerate(shards):
        yield Edit(None, f"{head}Name=shard Count={count} File=/dev/nvidia{minor}")


def _concerns(line: str, node: str) -> bool:
    hit = re.search(r"\bNodeName\s*=\s*(\S+)", line, re.IGNORECASE)
    return hit is None or in_nodes(hit[1], node)


def plugstack(
    lines: Sequence[str], controllers: Sequence[str], *, away: bool = False, user: str = "slurm"
) -> Iterator[Edit]:
    """The plugin's line; ``controllers``: host:port of each colocd, which runs as ``user``;
    ``away``: none is on this host.
    ``lines``: plugstack.conf with its includes, without comments. Raises ConfigError for a line by
    which this host finds no colocd."""
    named = f" controllers={','.join(controllers)}" if controllers else ""
    if controllers and user != "slurm":
        named += f" slurm_user={user}"
    for words in map(str.split, lines):
        if len(words) > 1 and words[1].rpartition("/")[2] == "coloc.so":
            if away and named and not any(one.startswith("controllers=") for one in words):
                raise ConfigError(f"the line of coloc.so names no colocd: add{named}")
            return
    yield Edit(None, f"optional coloc.so{named}")


def job_submit(text: str, sample: str) -> Iterator[Edit]:
    """A site's job_submit.lua with colocd's part around its own functions; ``sample``: ours, whose
    lines marked (*) load it. Raises ConfigError where the functions are not global ones."""
    if "coloc.lua" in text:
        return
    for name in ("slurm_job_submit", "slurm_job_modify"):
        if not re.search(rf"^(function\s+{name}\b|{name}\s*=)", text, re.MULTILINE):
            raise ConfigError(f"no global function {name}: add the lines marked (*) by hand")
    loads = sample.split("function slurm_job_submit", 1)[0].split("]]\n", 1)[1].strip("\n")
    lines = [BEGIN, "do", *(f"  {line}".rstrip() for line in loads.split("\n"))]
    for name, args, ours in (
        ("slurm_job_submit", "job_desc, part_list, submit_uid", "submit"),
        ("slurm_job_modify", "job_desc, job_rec, part_list, modify_uid", "modify"),
    ):
        lines += [
            f"  local site_{ours} = {name}",
            f"  function {name}({args})",
            f"    local code = site_{ours}({args})",
            # What is no number, also nothing at all, is success to Slurm.
            "    local refused = (tonumber(code) or slurm.SUCCESS) ~= slurm.SUCCESS",
            "    if refused or not loaded then return code end",
            f"    return coloc.{ours}({args})",
            "  end",
        ]
    # A chunk's own `return` must stay its last statement.
    code = [line for line in text.splitlines() if line.strip() and not line.startswith("--")]
    last = code[-1] if code and code[-1].startswith("return") else None
    yield Edit(None, "\n".join([*lines, "end", END]), last)
