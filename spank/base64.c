/* SPDX-License-Identifier: Apache-2.0
 * Base64 of RFC 4648 section 4: the value travels as an environment variable.
 */
#include "coloc.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t coloc_base64_size(size_t len)
{
	return (len + 2) / 3 * 4 + 1;
}

void coloc_base64(const unsigned char *in, size_t len, char *out)
{
	for (; len >= 3; len -= 3, in += 3) {
		*out++ = alphabet[in[0] >> 2];
		*out++ = alphabet[(in[0] & 3) << 4 | in[1] >> 4];
		*out++ = alphabet[(in[1] & 15) << 2 | in[2] >> 6];
		*out++ = alphabet[in[2] & 63];
	}
	if (len) {
		unsigned char second = len == 2 ? in[1] : 0;

		*out++ = alphabet[in[0] >> 2];
		*out++ = alphabet[(in[0] & 3) << 4 | second >> 4];
		*out++ = len == 2 ? alphabet[(second & 15) << 2] : '=';
		*out++ = '=';
	}
	*out = '\0';
}
