# SPDX-License-Identifier: Apache-2.0
"""`make bench`: what slurm-coloc costs. Figures are measured here and never asserted by a test."""
