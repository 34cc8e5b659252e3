# SPDX-License-Identifier: Apache-2.0
"""Random models in the thesis' ranges, one family a file. Each has ``draw(random) -> Drawn``."""
