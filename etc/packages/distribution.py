#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which Python packages the .deb takes from the distribution, and which it brings along.

distribution.py depends        the Depends of package slurm-coloc
distribution.py lock           etc/requirements.lock without what the distribution has

pyproject.toml has the lower bounds. Where the distribution of this machine has every package new
enough, all of them are its own; else all are brought along, because two halves of one package's
dependencies rarely fit. nvidia-ml-py is always brought along: Debian has it in contrib, with a
dependency on a driver of its own packages.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = "nvidia-ml-py"
PACKAGES = {
    "pydantic": "python3-pydantic",
    "sqlite-utils": "sqlite-utils",
    "typer": "python3-typer",
    "rich": "python3-rich",
    "structlog": "python3-structlog",
}


def bounds() -> dict[str, str]:
    """Each dependency of the program with its lower bound."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = {}
    for text in data["project"]["dependencies"]:
        name, _, bound = text.partition(">=")
        found[name] = bound
    return found


def candidate(package: str) -> str:
    """The version that apt would install; "" for none."""
    words = ["apt-cache", "policy", package]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    hit = re.search(r"Candidate: (\S+)", done.stdout)
    return "" if hit is None or hit[1] == "(none)" else hit[1]


def new_enough() -> bool:
    """Whether the distribution has all of them."""
    return all(
        (has := candidate(PACKAGES[name]))
        and subprocess.run(["dpkg", "--compare-versions", has, "ge", bound], check=False).returncode
        == 0
        for name, bound in bounds().items()
        if name != ALWAYS
    )


def depends() -> str:
    """The interpreter that the compiled parts are for, and the distribution's packages."""
    major, minor = sys.version_info[:2]
    found = [f"python3 (>= {major}.{minor})", f"python3 (<< {major}.{minor + 1})"]
    if new_enough():
        found += [
            f"{PACKAGES[name]} (>= {low})" for name, low in bounds().items() if name != ALWAYS
        ]
    return ", ".join(found)


def locked() -> str:
    """The part of the lock that is brought along, hashes included."""
    text = (ROOT / "etc" / "requirements.lock").read_text(encoding="utf-8")
    entries = re.findall(r"^[a-z0-9].*(?:\n    .*)*", text, re.MULTILINE)
    kept = [one for one in entries if not new_enough() or one.startswith(f"{ALWAYS}==")]
    return "\n".join(kept) + "\n"


def main() -> None:
    """Print what the one argument names."""
    print({"depends": depends, "lock": locked}[sys.argv[1]](), end="")


if __name__ == "__main__":
    main()
