# SPDX-License-Identifier: Apache-2.0
"""What an admin runs: doctor, limits, calibrate, MIG plans."""
