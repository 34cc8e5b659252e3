# SPDX-License-Identifier: Apache-2.0
"""torch is no dependency of the tests: without it the tests that need it are skipped."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["models.py"]
