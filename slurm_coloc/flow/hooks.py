# SPDX-License-Identifier: Apache-2.0
"""`coloc prolog` and `coloc epilog`: choose the stage, map every failure to an exit code.

The scripts of prolog/ and epilog/ always exit 0 towards slurmd; this code is for their log line.
"""

import os
import sys
from collections.abc import Sequence

from slurm_coloc.errors import ColocError, UsageFault


def run(name: str, argv: Sequence[str]) -> int:
    """Run the hook ``name`` ("prolog" or "epilog") on this process' environment.

    ``--dry-run`` prints what would be written and changes nothing. Returns the documented exit
    code; one line on stderr says what was done or why not. Never raises.
    """
    try:
        unknown = [word for word in argv if word not in ("--dry-run", "--json")]
        if unknown:
            raise UsageFault(f"unknown argument {unknown[0]!r}: only --dry-run is known")
        dry_run = "--dry-run" in argv
        if name == "prolog":
            from slurm_coloc.flow import launch as stage
        else:
            from slurm_coloc.flow import finish as stage  # type: ignore[no-redef]
        line = stage.run(os.environ, dry_run=dry_run)
    except ColocError as err:
        print(f"coloc {name}: error={err.code} {err.message}", file=sys.stderr)
        return err.exit_code
    except Exception as err:  # a hook's log has room for a line, not for a traceback
        print(f"coloc {name}: error={type(err).__name__} {err}", file=sys.stderr)
        return 1
    print(f"coloc {name}: {line}", file=sys.stderr)
    return 0
