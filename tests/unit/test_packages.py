# SPDX-License-Identifier: Apache-2.0
"""The packages agree with the tree, and the .deb with the .rpm; they are built by make packages."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEB = ROOT / "etc" / "packages" / "deb"
SPEC = (ROOT / "etc" / "packages" / "rpm" / "slurm-coloc.spec").read_text()
CONTROL = (DEB / "control.in").read_text()
#: folders that are called otherwise by the two, and what debhelper puts there by itself
SAME = {
    "usr/lib/*/slurm-wlm/": "usr/lib64/slurm/",
    "usr/share/zsh/vendor-completions/": "usr/share/zsh/site-functions/",
}


def test_every_dependency_of_the_program_has_its_package() -> None:
    path = ROOT / "etc" / "packages" / "distribution.py"
    spec = importlib.util.spec_from_file_location("distribution", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(module.bounds()) == {*module.PACKAGES, module.ALWAYS}


def test_the_same_packages() -> None:
    debs = set(re.findall(r"^Package: (\S+)", CONTROL, re.MULTILINE))
    rpms = {"slurm-coloc"}
    for name in re.findall(r"^%package (\S+)", SPEC, re.MULTILINE):
        rpms.add("slurm-coloc-" + name.replace("%{slurm}", "@SLURM@"))
    assert debs == rpms


def test_the_same_files() -> None:
    for part in ("controller", "node", "spank"):
        name = f"slurm-coloc-{part}.install" if part != "spank" else "spank.install"
        listed = (DEB / name).read_text().split()
        files = re.search(
            rf"^%files {part}[^\n]*\n(.*?)(?:\n\n|\Z)", SPEC, re.DOTALL | re.MULTILINE
        )
        assert files is not None
        found = {line.strip().lstrip("/").removesuffix("*") for line in files[1].splitlines()}
        found = {line.replace("%{_libdir}", "usr/lib64").replace("/.", "/") for line in found}
        for one in listed:
            for here, there in SAME.items():
                one = one.replace(here, there)
            assert one.removesuffix("*") in {line.removesuffix("*") for line in found}, (part, one)


def test_the_units_are_in_both() -> None:
    built = (ROOT / "etc" / "packages" / "build-deb").read_text()
    for unit in (ROOT / "etc" / "systemd").glob("*.service"):
        assert f"etc/systemd/{unit.name}" in built
        assert f"/usr/lib/systemd/system/{unit.name}" in SPEC


def test_removal_leaves_what_slurm_conf_names_in_both() -> None:
    for text in ((DEB / "slurm-coloc-node.postrm").read_text(), SPEC):
        assert "coloc-prolog" in text and "coloc-epilog" in text and "exit 0" in text
        assert "/run/slurm/conf/*.conf" in text


def test_the_page_has_every_package() -> None:
    page = (ROOT / "docs" / "admin" / "install.md").read_text()
    for name in re.findall(r"^Package: (\S+)", CONTROL, re.MULTILINE):
        assert f"`{name.replace('@SLURM@', '24.11')}`" in page
