# SPDX-License-Identifier: Apache-2.0
"""Why a run ended, what caused it, and what its next try asks for. Pure."""
