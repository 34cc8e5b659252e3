# SPDX-License-Identifier: Apache-2.0
"""`coloc prolog`, `coloc epilog`, `coloc fence`: choose the stage, map failures to exit codes.

The scripts of prolog/ and epilog/ always exit 0 towards slurmd; this code is for their log line.
The last is called by the SPANK plugin in slurmstepd; see limit.
"""

import os
import sys
from collections.abc import Sequence

from slurm_coloc.errors import ColocError, UsageFault


def run(name: str, argv: Sequence[str]) -> int:
    """Run the hook ``name`` ("prolog", "epilog", "fence") on this process' environment.

    ``--dry-run`` prints what would be written and changes nothing. Returns the documented exit
    code; one line on stderr says what was done or why not. Never raises.
    """
    try:
        if name == "fence":
            from slurm_coloc.flow.launch import memory_limit

            print(f"coloc fence: {memory_limit.run(os.environ, argv)}", file=sys.stderr)
            return 0
        unknown = [word for word in argv if word not in ("--dry-run", "--json")]
        if unknown:
            raise UsageFault(f"unknown argument {unknown[0]!r}: only --dry-run is known")
        dry_run = "--dry-run" in argv
        if name == "prolog":
            from slurm_coloc.flow.launch import prolog as stage
        else:
            from slurm_coloc.flow.finish import epilog as stage  # type: ignore[no-redef]
        line = stage.run(os.environ, dry_run=dry_run)
    except ColocError as err:
        print(f"coloc {name}: error={err.code} {err.message}", file=sys.stderr)
        return err.exit_code
    except Exception as err:  # a hook's log has room for a line, not for a traceback
        print(f"coloc {name}: error={type(err).__name__} {err}", file=sys.stderr)
        return 1
    print(f"coloc {name}: {line}", file=sys.stderr)
    return 0
