# SPDX-License-Identifier: Apache-2.0
"""From a summary's rows to what one training step allocates: the model rebuilt, without torch."""
