# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads: the port, and the text that prometheus_client makes of series."""
