# SPDX-License-Identifier: Apache-2.0
"""Reports as pages: one HTML file each, with its pictures inside and nothing from outside."""
