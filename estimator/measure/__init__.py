# SPDX-License-Identifier: Apache-2.0
"""`make gpu-estimates`: trainings on the GPU of this machine, held against the estimates."""
