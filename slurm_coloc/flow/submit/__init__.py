# SPDX-License-Identifier: Apache-2.0
"""colocd: a submission, from the message of the hook to the decision."""
