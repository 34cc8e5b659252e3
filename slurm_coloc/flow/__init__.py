# SPDX-License-Identifier: Apache-2.0
"""The job's life in order, one file a stage; the only place that joins core and adapters."""
