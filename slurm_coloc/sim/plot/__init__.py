# SPDX-License-Identifier: Apache-2.0
"""Pictures of a simulation: one run (`run`), several side by side (`compare`); `canvas` draws."""
