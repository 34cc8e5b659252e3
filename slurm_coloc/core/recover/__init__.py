# SPDX-License-Identifier: Apache-2.0
"""Why a run ended, whose fault it was, and what its next try asks for. Pure."""
