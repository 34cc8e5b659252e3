/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104). For the plugin, which links nothing but zlib, and
 * for coloc-ticket, which speaks coloc/1.
 */
#ifndef COLOC_SHA256_H
#define COLOC_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define COLOC_SHA256_BYTES 32
#define COLOC_SHA256_HEX (2 * COLOC_SHA256_BYTES) /* digits; one more byte for the NUL */

struct coloc_sha256 {
	uint32_t state[8];
	uint64_t bytes;
	unsigned char block[64];
};

void coloc_sha256_begin(struct coloc_sha256 *sum);
void coloc_sha256_add(struct coloc_sha256 *sum, const void *data, size_t len);
void coloc_sha256_end(struct coloc_sha256 *sum, unsigned char out[COLOC_SHA256_BYTES]);

struct coloc_hmac {
	struct coloc_sha256 inner;
	struct coloc_sha256 outer;
};

void coloc_hmac_begin(struct coloc_hmac *mac, const unsigned char *key, size_t len);
void coloc_hmac_add(struct coloc_hmac *mac, const void *data, size_t len);
void coloc_hmac_end(struct coloc_hmac *mac, unsigned char out[COLOC_SHA256_BYTES]);

/* Lower-case digits and a NUL; out has 2 * len + 1 bytes. */
void coloc_hex(const unsigned char *data, size_t len, char *out);

#endif
