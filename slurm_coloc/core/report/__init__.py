# SPDX-License-Identifier: Apache-2.0
"""What sharing gained and cost over many runs: for `coloc report --cluster`. Pure: runs in, figures
out."""
