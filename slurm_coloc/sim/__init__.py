# SPDX-License-Identifier: Apache-2.0
"""The simulator: what a policy does to a trace of jobs, without a cluster.

It drives the very policies and conditions of `core/` and `policies/`. What it adds is the world
that they act on: time (`engine`), GPUs (`machine`), jobs (`trace` and `readers`), telemetry with
its delay (`telemetry`), power (`power`) and what is reported (`outcome`, `bound`).
"""
