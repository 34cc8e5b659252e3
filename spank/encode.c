/* SPDX-License-Identifier: Apache-2.0
 * Text to what is forwarded: zlib (RFC 1950), then base64, never more than 64 KiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "coloc.h"

char *coloc_encode(const struct coloc_text *text, char error[COLOC_ERROR_MAX])
{
	uLong bound = compressBound((uLong) text->len);
	uLongf size = bound;
	Bytef *deflated = malloc(bound);
	char *out = NULL;
	int rc;

	if (!deflated) {
		snprintf(error, COLOC_ERROR_MAX, "Cannot allocate memory");
		goto cleanup;
	}
	rc = compress2(deflated, &size, (const Bytef *) text->text, (uLong) text->len,
	               Z_BEST_COMPRESSION);
	if (rc != Z_OK) {
		snprintf(error, COLOC_ERROR_MAX, "compression failed: %s", zError(rc));
		goto cleanup;
	}
	if (size > COLOC_DEFLATED_MAX) {
		snprintf(error, COLOC_ERROR_MAX,
		         "%lu KiB after compression, and at most %d KiB can be forwarded",
		         (unsigned long) (size + 1023) / 1024, COLOC_DEFLATED_MAX / 1024);
		goto cleanup;
	}
	out = malloc(coloc_base64_size(size));
	if (out)
		coloc_base64(deflated, size, out);
	else
		snprintf(error, COLOC_ERROR_MAX, "Cannot allocate memory");
cleanup:
	free(deflated);
	return out;
}
