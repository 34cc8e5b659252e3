# SPDX-License-Identifier: Apache-2.0
"""colocd's front: answers what people ask with the coloc command."""
