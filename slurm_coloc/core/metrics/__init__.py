# SPDX-License-Identifier: Apache-2.0
"""What agent and colocd tell Prometheus: the names (catalog), the figures, who may read them."""
