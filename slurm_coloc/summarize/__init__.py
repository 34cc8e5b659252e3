# SPDX-License-Identifier: Apache-2.0
"""`coloc summarize`: what one training step allocates, recorded without a GPU. Needs torch."""
