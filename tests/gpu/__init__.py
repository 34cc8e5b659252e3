# SPDX-License-Identifier: Apache-2.0
"""What no emulator can answer, asked of the GPU that is here: make test-gpu."""
