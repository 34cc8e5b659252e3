# SPDX-License-Identifier: Apache-2.0
"""What a wheel of slurm-coloc holds beside its modules; pyproject.toml names this class.

`coloc lab` and `coloc init` need the SPANK plugin's source, the Lua, the hooks and the units. In a
checkout they lie beside the package; a wheel gets copies in slurm_coloc/lab/sources (see
slurm_coloc/lab/parts.py).
"""

from pathlib import Path

from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path("slurm_coloc", "lab", "sources")
PATTERNS = (
    "etc/*.lua",
    "etc/systemd/*.service",
    "epilog/coloc-epilog",
    "prolog/coloc-prolog",
    "spank/Makefile",
    "spank/*.c",
    "spank/*.h",
    "spank/exports.map",
    "spank/spank_coloc.8",
    "spank/ticket/*.[ch]",
)


def sources() -> list[str]:
    """The files to copy, relative to the checkout."""
    found = (path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern)))
    return [path.relative_to(ROOT).as_posix() for path in found]


class WithSources(build_py):
    """build_py that copies them; an editable install finds them where they are."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in sources():
            target = Path(self.build_lib, TARGET, name)
            self.mkpath(str(target.parent))
            self.copy_file(name, str(target))

    def get_source_files(self) -> list[str]:
        """What a source distribution needs, too."""
        return [*super().get_source_files(), *sources(), "etc/setup/wheel.py"]
