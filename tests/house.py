# SPDX-License-Identifier: Apache-2.0
"""What is counted of the package's layout: ``python -m tests.house`` prints it.

tests/unit/test_house.py holds the bounds. Imports are read from the source with ast; lazy and
type-only ones count like the others.
"""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "slurm_coloc"
#: The module that each program begins with. Its closure is what the program can load.
PROGRAMS = {
    "colocd": ("slurm_coloc.daemon",),
    "colocd's front": ("slurm_coloc.front.__main__", "slurm_coloc.flow.prepare.warm"),
    "agent": ("slurm_coloc.agent",),
    "hooks": ("slurm_coloc.flow.launch.hooks",),
}
#: The command line is everything below cli/ but what only starts a program of the above.
STARTERS = {"slurm_coloc.cli.serve", "slurm_coloc.cli.agent", "slurm_coloc.cli.app"}
#: Words that docs/glossary.md retires. A word of a file's or class' name, or all of it (WHOLE).
RETIRED_WORDS = """
scene scenes seat seats ask asks asked asking look looks story stories told tell tells rung
rungs ladder kept bearing bears around lately opened closing seen crowd prefer elsewhere parking
parked sibling siblings people holder holders giveup
"""
RETIRED = frozenset(RETIRED_WORDS.split())
WHOLE = RETIRED | {"line", "lines", "comment", "comments", "retries"}
#: What a signature of the store may not have: a row of the database, or a mapping of anything.
UNTYPED = re.compile(r"\b(Row|(dict|\w*Mapping)\[str, (Any|object)\])")
#: Texts and answers that were recorded elsewhere keep their names.
RECORDED = ("tests/contract/slurm/", "tests/contract/oom/", "etc/examples/")


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = sorted(PACKAGE.rglob("*.py"))
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in found)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, found, strict=True)}


@cache
def graph() -> dict[str, frozenset[str]]:
    """The modules of the package that each module imports."""
    return {name: frozenset(_imports(name, path)) for name, path in modules().items()}


def _imports(name: str, path: Path) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                if full in modules() or base in modules():
                    yield full if full in modules() else base


def closure(*starts: str) -> set[str]:
    """All modules that these can load, themselves included."""
    found: set[str] = set()
    todo = list(starts)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(graph()[name])
    return found


def programs_of_flow() -> dict[str, set[str]]:
    """The programs that can load each file of flow/."""
    lines = [name for name in modules() if name.startswith("slurm_coloc.cli.")]
    starts = {**PROGRAMS, "command line": tuple(set(lines) - STARTERS)}
    flow = [
        name
        for name, path in modules().items()
        if name.startswith("slurm_coloc.flow.") and path.name != "__init__.py"
    ]
    reached = {program: closure(*names) for program, names in starts.items()}
    return {name: {p for p, found in reached.items() if name in found} for name in flow}


def circles() -> list[list[str]]:
    """Groups of modules that import each other: the strongly connected components (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph()[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph():
        if name not in index:
            visit(name)
    return found


def folders() -> Counter[str]:
    """Modules directly in each folder, without ``__init__``."""
    return Counter(
        path.parent.relative_to(ROOT).as_posix()
        for path in modules().values()
        if path.name != "__init__.py"
    )


def lengths() -> dict[str, int]:
    """Lines of each module, as ``wc -l`` counts."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_bytes().count(b"\n")
        for path in modules().values()
    }


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def untyped_store() -> list[str]:
    """Public functions of adapters/store whose signature has a mapping or a row."""
    found = []
    for name, path in modules().items():
        if not name.startswith("slurm_coloc.adapters.store"):
            continue
        for node in _functions(path):
            args = node.args
            given = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
            notes = [one.annotation for one in given if one] + [node.returns]
            texts = [ast.unparse(note) for note in notes if note]
            if not node.name.startswith("_") and any(map(UNTYPED.search, texts)):
                found.append(f"{name}.{node.name}")
    return found


def words(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name, in small letters."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def retired() -> list[str]:
    """Files and classes, tests included, whose names have retired words."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    files = [
        name
        for name in listed.stdout.splitlines()
        if not name.startswith(RECORDED) and (ROOT / name).exists()  # removed, not yet committed
    ]
    if not files:  # no checkout
        files = [str(path.relative_to(ROOT)) for path in modules().values()]
    found = []
    for name in files:
        stem = Path(name).stem
        if words(stem) & RETIRED or stem.removeprefix("test_") in WHOLE:
            found.append(name)
        if name.endswith(".py"):
            tree = ast.parse((ROOT / name).read_text("utf-8"))
            classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            found += [
                f"{name}: {one}"
                for one in classes
                if words(one) & RETIRED or one.strip("_").lower() in WHOLE
            ]
    return found


def retired_functions() -> list[str]:
    """Functions and methods of the package, public and private, whose names have retired words."""
    return [
        f"{name}.{node.name}"
        for name, path in modules().items()
        for node in _functions(path)
        if words(node.name) & RETIRED
    ]


def simulator_in_colocd() -> list[str]:
    """Modules of sim/ that `coloc serve` can load."""
    starts = ("slurm_coloc.daemon", "slurm_coloc.front.__main__", "slurm_coloc.cli.serve")
    return [name for name in closure(*starts) if ".sim" in name]


def main() -> None:
    """Print every figure."""
    shared = {name: who for name, who in programs_of_flow().items() if len(who) != 1}
    long = {name: lines for name, lines in lengths().items() if lines > 300}
    rows: list[tuple[str, object]] = [
        ("lines of Python", sum(lengths().values())),
        ("largest folders", folders().most_common(6)),
        ("files of flow of several programs", {k: sorted(v) for k, v in shared.items()}),
        ("import circles", circles()),
        ("modules over 300 lines", long),
        ("sim in colocd", simulator_in_colocd()),
        ("untyped signatures of the store", untyped_store()),
        ("retired words in files and classes", retired()),
        ("retired words in functions", retired_functions()),
    ]
    for title, value in rows:
        count = f" {len(value)}" if isinstance(value, list | dict) else ""
        print(f"{title}:{count} {value}")


if __name__ == "__main__":
    main()
