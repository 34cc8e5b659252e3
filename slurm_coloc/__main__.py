# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``coloc``.

The hooks run before and after every collocated job, so they skip the command-line framework and
import only what they need; everything else goes through typer.
"""

import gc
import sys

HOOKS = ("prolog", "epilog", "fence")


def main() -> None:
    """Run the subcommand of sys.argv and exit with the documented code."""
    if len(sys.argv) >= 2 and sys.argv[1] in HOOKS and "--help" not in sys.argv:
        gc.disable()  # a hook ends before there is garbage: 3 of its 48 ms
        from slurm_coloc.flow.launch import hooks
        from slurm_coloc.lean import late_ctypes_util

        late_ctypes_util()
        sys.exit(hooks.run(sys.argv[1], sys.argv[2:]))
    from slurm_coloc.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
