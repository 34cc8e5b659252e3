# SPDX-License-Identifier: Apache-2.0
"""What the pages name is there: links, anchors, files, commands, options, make targets, keys."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from slurm_coloc.cli import app
from slurm_coloc.cli.texts import manual
from slurm_coloc.config import Config

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
#: README is for the first five minutes; everything else has a page.
MOST_LINES, MOST_WORDS = 180, 1600

#: Decisions are of their day, and the changelog is of the past: names in them may be gone.
DATED = ("docs/adr/", "CHANGELOG.md")
PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "e*/*/README.md", "tests/*/*.md")
    for path in sorted(ROOT.glob(pattern))
]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
LIVING = [name for name in NAMES if not name.startswith(DATED)]

FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# A folder of the tree, or of the package as in "core/decide/decide.py", then more; no pattern in
# it.
PATH = re.compile(r"(\.?[\w-]+)/[\w./-]*")
#: Folders that a build makes, and files that only a site or a job has.
MADE = {"build", ".venv", ".venv-torch"}


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def spans(text: str) -> list[str]:
    """Inline code of a page."""
    return SPAN.findall(FENCE.sub("", text))


def blocks(text: str) -> Iterator[str]:
    """Lines of code blocks, fenced or indented, without a prompt."""
    lines = [line for found in FENCE.finditer(text) for line in found[0].splitlines()[1:-1]]
    lines += [line for line in FENCE.sub("", text).splitlines() if line.startswith("    ")]
    for line in lines:
        yield re.sub(r"^[$#] ", "", line.strip())


def commands(text: str, program: str) -> Iterator[list[str]]:
    """Words after ``program`` of each call in code, in pipes and lists of commands too."""
    for line in [*spans(text), *blocks(text)]:
        for part in re.split(r"&&|\|\||[;|]", re.sub(r"'[^']*'", "''", line)):
            words = part.split(" #")[0].split()
            if words and words[0].rpartition("/")[2] == program:
                yield words[1:]


@cache
def anchors(path: Path) -> frozenset[str]:
    """Anchors of a page's headings, as code hosts and mkdocs both make them."""
    titles = re.findall(r"^#+ (.+?)\s*$", FENCE.sub("", path.read_text("utf-8")), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return frozenset(re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain)


def wrong_links(path: Path) -> list[str]:
    """Relative links of a page whose file or anchor is not there."""
    wrong = []
    for target in LINK.findall(FENCE.sub("", path.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        where, _, anchor = target.partition("#")
        file = (path.parent / where).resolve() if where else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    return wrong


def missing_files(text: str, home: Path = ROOT) -> list[str]:
    """Paths in inline code that begin like the tree's and are not there. ``home``: the page's."""
    wrong = []
    for word in spans(text):
        found = PATH.fullmatch(word.partition("::")[0])
        if found is None or found[1] in MADE:
            continue
        bases = [base for base in (ROOT, ROOT / "slurm_coloc", home) if (base / found[1]).is_dir()]
        if bases and not any((base / found[0]).exists() for base in bases):
            wrong.append(word)
    return wrong


@cache
def program() -> dict[tuple[str, ...], frozenset[str]]:
    """Each command of coloc with its options."""
    found = {}
    for path, command in manual.leaves(get_command(app.build())):
        options = {
            name for param in command.params for name in (*param.opts, *param.secondary_opts)
        }
        found[path] = frozenset(options | {"--help"})
    return found


def wrong_calls(text: str) -> list[str]:
    """Calls of coloc with a command or an option that it does not have."""
    wrong = []
    known = program() | {("prolog",): {"--dry-run"}, ("epilog",): {"--dry-run"}, ("fence",): set()}
    groups = {path[0] for path in known if len(path) > 1}
    for words in commands(text, "coloc"):
        names = [word for word in words if re.fullmatch(r"[a-z]+", word)][:2]
        shown = f"coloc {' '.join(words)}"
        if not names or words[0] not in {path[0] for path in known}:
            wrong += [shown] if names else []
            continue
        path = tuple(names[: 1 + (names[0] in groups)])
        if path not in known and path not in {(group,) for group in groups}:
            wrong.append(shown)
            continue
        mine: Any = known.get(
            path, frozenset().union(*(known[p] for p in known if p[0] == path[0]))
        )
        before = words[: words.index("--")] if "--" in words else words
        given = {word.partition("=")[0] for word in before if word.startswith("--")}
        wrong += [shown] if given - mine else []
    return wrong


@cache
def sbatch_options() -> frozenset[str]:
    """Options of the SPANK plugin."""
    return frozenset(re.findall(r'\{ "(coloc[a-z-]*)",', source("spank/options.c")))


def wrong_options(text: str) -> list[str]:
    """--coloc... in code that the plugin does not have."""
    named = [word for line in [*spans(text), *blocks(text)] for word in
             re.findall(r"(?<![\w-])--(coloc[a-z-]*)", line)]  # fmt: skip
    return [f"--{name}" for name in named if name not in sbatch_options()]


def targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*|\.venv):", source(makefile), re.MULTILINE))


def wrong_targets(text: str) -> list[str]:
    """make TARGET in code, where the Makefile has none of that name."""
    wrong = []
    for words in commands(text, "make"):
        folder = words[words.index("-C") + 1] if "-C" in words else "."
        rest = [w for w in words if w not in ("-C", folder) and "=" not in w]
        asked = [w for w in rest if re.fullmatch(r"[a-z][a-z-]+", w)]
        known = targets(f"{folder}/Makefile") if (ROOT / folder / "Makefile").exists() else set()
        wrong += [f"make {' '.join(words)}" for name in asked if name not in known]
    return wrong


def wrong_keys(text: str) -> list[str]:
    """`section.key` of coloc.toml in inline code that the configuration does not have."""
    wrong = []
    for word in spans(text):
        found = re.match(r"([a-z]+)\.([a-z_]+)(?= = |$)", word)
        section = Config.model_fields.get(found[1]) if found else None
        fields = getattr(section and section.annotation, "model_fields", None)
        names = {field.alias or name for name, field in (fields or {}).items()}
        if found and fields is not None and found[2] not in {*names, "json", "c"}:
            wrong.append(word)
    return wrong


@pytest.fixture(autouse=True)
def all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """build() imports only the command that sys.argv names."""
    monkeypatch.setattr("sys.argv", ["coloc"])


def test_readme_is_short() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert len(text.split()) <= MOST_WORDS


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    assert wrong_links(ROOT / name) == []


@pytest.mark.parametrize("name", LIVING)
def test_what_is_named_is_there(name: str) -> None:
    text = source(name)
    assert missing_files(text, (ROOT / name).parent) == []
    assert wrong_calls(text) == []
    assert wrong_options(text) == []
    assert wrong_targets(text) == []
    assert wrong_keys(text) == []


def test_every_option_of_sbatch_has_its_line() -> None:
    named = set(re.findall(r"^\| `--(coloc[a-z-]*)", source("docs/user/options.md"), re.MULTILINE))
    assert named == sbatch_options()


def test_every_check_of_doctor_that_a_page_names_is_there() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "slurm_coloc").rglob("*.py"))
    text = "".join(source(name) for name in LIVING)
    named = {word.strip() for found in re.findall(r"doctor: ([a-z`, -]+?)[;|)\n]", text)
             for word in found.replace("`", "").split(",")}  # fmt: skip
    assert named
    assert [word for word in sorted(named) if f'"{word}"' not in code] == []


def missing_tests(text: str) -> list[str]:
    """Tests that a page names, by file, by name or by the beginning of one and dots."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    files = {path.name for path in paths}
    code = "\n".join(path.read_text("utf-8") for path in paths)
    wrong = []
    for word in spans(text):
        form = r"(?:[\w/]+/)?(test_\w+\.py)?(?:::)?(test_\w+?)?(_?\.\.\.)?"
        found = re.fullmatch(form, word) if "test_" in word else None
        if found is None:
            continue
        name = f"def {found[2]}" + ("" if found[3] else "(") if found[2] else ""
        if (found[1] and found[1] not in files) or name not in code:
            wrong.append(word)
    return wrong


def test_the_tests_of_the_rules_are_there() -> None:
    assert missing_tests(source("docs/rules.md")) == []
    assert missing_tests("`test_no.py::test_x`, `test_never_written...`, `test_docs.py`") == [
        "test_no.py::test_x",
        "test_never_written...",
    ]


def test_the_site_has_every_page() -> None:
    site = source(".mkdocs.yml")
    pages = [name.removeprefix("docs/") for name in NAMES if name.startswith("docs/")]
    assert [page for page in pages if f": {page}\n" not in site] == []


# Each check sees what is wrong.


def test_a_wrong_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One thing: two\n[a](page.md#one-thing-two) [b](no.md) [c](#three) [d](https://x.y)\n"
    )
    assert wrong_links(page) == ["no.md", "#three"]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (missing_files, "see `docs/no-such-page.md`"),
        (missing_files, "see `core/no_such_file.py`"),
        (wrong_calls, "`coloc expplain 3`"),
        (wrong_calls, "```\n$ ls && coloc jobs --evrybody\n```\n"),
        (wrong_calls, "    coloc mig layout\n"),
        (wrong_options, "`sbatch --coloc-batchsize=3`"),
        (wrong_targets, "    make cluster-upp SLURM=sid\n"),
        (wrong_targets, "`make -C spank no-such`"),
        (wrong_keys, "`placement.modus`"),
    ],
)
def test_what_is_not_there_is_seen(check: Any, text: str) -> None:
    assert len(check(text)) == 1


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (
            missing_files,
            "`docs/rules.md`, `core/decide/decide.py`, `/etc/slurm-coloc/coloc.toml`, `build/docs`",
        ),
        (
            wrong_calls,
            "`coloc: to be continued`, `coloc lab up --name x`, `coloc summarize -- python a --b`",
        ),
        (wrong_options, "`sbatch --coloc=auto --coloc-slot=4:00:00`"),
        (wrong_targets, "`make test ARGS='-k x'`, `make -C spank clean all`, `make`"),
        (wrong_keys, "`recovery.steps`, `estimate.history = false`, `daemon.json`"),
    ],
)
def test_what_is_there_is_left_alone(check: Any, text: str) -> None:
    assert check(text) == []
