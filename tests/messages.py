# SPDX-License-Identifier: Apache-2.0
"""Collects what people are told: the sentences in the code of the command line, of colocd's answers
and events, of the doctor, the plugin and the hook. A value that is filled in stands as {}."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "slurm_coloc"
#: folders by who is told
EXPLAIN = ("flow/queries", "flow/place", "flow/watch", "flow/recover", "flow/nodes", "flow/time",
           "flow/submit", "flow/cluster", "core/decide", "core/recover", "core/place",
           "core/time", "core/slurm", "cli/explain.py", "cli/report/__init__.py",
           "cli/report/picture.py")  # fmt: skip
DOCTOR = ("admin/rules", "admin/doctor")
SHORTEST = 12


class Message(NamedTuple):
    """A sentence, and where it stands."""

    text: str
    where: str


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(node.left), _text(node.right)]
        return None if parts == [None, None] else "".join(one or "{}" for one in parts)
    return None


def _documents(tree: ast.AST) -> set[int]:
    """Nodes of docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = (one.body[0] for one in ast.walk(tree) if isinstance(one, kinds) and one.body)
    return {id(one.value) for one in first if isinstance(one, ast.Expr)}


def _for_logs(tree: ast.AST) -> Iterator[ast.AST]:
    """What stands in calls of the log and in SQL."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log."):
            yield from ast.walk(node)


def of_python(*places: str) -> list[Message]:
    """Sentences of these files and folders of the package."""
    found = []
    for place in places:
        path = PACKAGE / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            tree = ast.parse(file.read_text())
            skipped = _documents(tree) | {id(node) for node in _for_logs(tree)}
            for node in ast.walk(tree):
                if id(node) in skipped:
                    continue
                text = _text(node)
                if text is None:
                    continue
                skipped |= {id(part) for part in ast.walk(node)}
                if _is_sentence(text):
                    line = getattr(node, "lineno", 0)
                    found.append(Message(text, f"{file.relative_to(ROOT)}:{line}"))
    return found


def _is_sentence(text: str) -> bool:
    if len(text) < SHORTEST or len(text.split()) < 3:
        return False
    # SQL, patterns, types, and what programs of ours say to each other ("job_id: a number ...").
    return not re.search(r"\b(SELECT|WHERE)\b|\(\?:| \| |^[a-z]+_[a-z]+:", text)


_LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*(?:\.\.)?\s*"(?:[^"\\\n]|\\.)*")*')


def of_others(*files: Path) -> list[Message]:
    """Sentences of C or Lua; literals that stand side by side are one."""
    found = []
    for file in files:
        text = file.read_text()
        comment = r"--[^\n]*" if file.suffix == ".lua" else r"/\*.*?\*/"
        # A string may hold what begins a comment: sbatch --coloc.
        either = re.compile(rf'("(?:[^"\\\n]|\\.)*")|{comment}', re.DOTALL)
        plain = either.sub(lambda m: m[1] or " " * len(m[0]), text)
        for one in _LITERALS.finditer(plain):
            sentence = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', one[0]))
            sentence = re.sub(r"%[-.0-9]*l?[a-z]", "{}", sentence.replace('\\"', '"'))
            if _is_sentence(sentence):
                line = text.count("\n", 0, one.start()) + 1
                found.append(Message(sentence, f"{file.relative_to(ROOT)}:{line}"))
    return found


def of_sbatch() -> list[Message]:
    """What the plugin and slurmctld's hook say."""
    plugin = [one for one in sorted((ROOT / "spank").glob("*.c")) if one.name != "options.c"]
    return of_others(*plugin, *sorted((ROOT / "etc").glob("coloc*.lua")))
