# SPDX-License-Identifier: Apache-2.0
"""Completions for bash, zsh and fish, made from the command line:
python -m slurm_coloc.cli.texts.completion etc/completions

They are fixed texts, so that a tab starts no Python; what is no command and no option completes as
a file name.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from slurm_coloc.cli.app import build
from slurm_coloc.cli.texts import manual

MADE_BY = "python -m slurm_coloc.cli.texts.completion etc/completions"
HEAD = f"""\
# SPDX-License-Identifier: Apache-2.0
# Made by {MADE_BY}; edit slurm_coloc/cli instead.
"""
WORD = """\
    case "$command $word" in
@PATHS@
        command=${command:+$command }$word
        ;;
    esac"""
BASH = """\
_coloc() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' word words=''
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
@WORD@
  done
  case $command in
@WORDS@
  esac
  if [[ $current == -* || $words != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}
complete -o default -F _coloc coloc
"""
ZSH = """\
local command='' word
local -a found
for word in "${(@)words[2,CURRENT-1]}"; do
@WORD@
done
  case $command in
@WORDS@
  esac
if [[ $words[CURRENT] == -* || $found[1] != -* ]]; then
  compadd -a found
else
  _files
fi
"""

Tree = dict[tuple[str, ...], list[tuple[str, str]]]


def words() -> Tree:
    """What may follow each command, with its help: subcommands, then options."""
    found: Tree = {(): []}
    for path, command in manual.leaves(get_command(build())):
        for number, name in enumerate(path):
            known = found.setdefault(path[:number], [])
            text = _short(command.help) if number == len(path) - 1 else ""
            if name not in (word for word, _ in known):
                known.append((name, text))
        found[path] = list(_options(command))
    return found


def _options(command: Any) -> Iterator[tuple[str, str]]:
    for param in command.params:
        if param.param_type_name == "option":
            for name in (*param.opts, *param.secondary_opts):
                if name.startswith("--"):
                    yield name, _short(param.help)


def _short(text: str | None) -> str:
    """The first sentence of a help text."""
    return " ".join((text or "").replace("\f", "").split()).split(". ")[0].rstrip(".")


def bash(tree: Tree) -> str:
    """A function for bash."""
    return _filled(BASH, tree, "words='{}'")


def zsh(tree: Tree) -> str:
    """A function for zsh, whose first line names the command."""
    return _filled(ZSH, tree, "found=({})")


def _filled(text: str, tree: Tree, assign: str) -> str:
    paths = [f"{' '.join(path[:-1])} {path[-1]}" for path in tree if path]
    known = " | \\\n".join(f"      '{path}'" for path in paths) + ")"
    cases = "\n".join(
        f"    '{' '.join(path)}') {assign.format(' '.join(word for word, _ in found))} ;;"
        for path, found in tree.items()
    )
    text = text.replace("@WORD@", WORD).replace("@PATHS@", known)
    return text.replace("@WORDS@", cases)


def fish(tree: Tree) -> str:
    """One line for each command and option, with its help."""
    lines = []
    for path, found in tree.items():
        within = f"__fish_seen_subcommand_from {path[-1]}" if path else "__fish_use_subcommand"
        if len(path) > 1:
            within = f"__fish_seen_subcommand_from {path[0]}; and {within}"
        for word, text in found:
            kind = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            about = text.replace("\\", "\\\\").replace("'", "\\'")
            lines.append(f"complete -c coloc -n '{within}' {kind} -d '{about}'")
    return "\n".join(lines) + "\n"


def files() -> dict[str, str]:
    """Every file by its name, complete."""
    tree = words()
    return {
        "coloc.bash": HEAD + bash(tree),
        "coloc.zsh": "#compdef coloc\n" + HEAD + zsh(tree),
        "coloc.fish": HEAD + fish(tree),
    }


def main(folder: Path) -> None:
    """Write the files into ``folder``."""
    sys.argv = ["coloc"]  # all commands, not the one that was asked for
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
