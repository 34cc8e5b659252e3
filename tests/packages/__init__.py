# SPDX-License-Identifier: Apache-2.0
"""The .deb files on hosts with systemd and Debian's own Slurm (docker/install)."""
