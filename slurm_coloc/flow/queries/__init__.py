# SPDX-License-Identifier: Apache-2.0
"""colocd: answers what people ask with the coloc command."""
