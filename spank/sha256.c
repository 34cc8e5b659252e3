/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 and HMAC-SHA256: see sha256.h.
 */
#include <string.h>

#include "sha256.h"

#define BLOCK 64

/* FIPS 180-4, 4.2.2: of the cube roots of the first 64 primes. */
static const uint32_t rounds[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

static uint32_t turn(uint32_t word, int bits)
{
	return word >> bits | word << (32 - bits);
}

static void take_block(uint32_t state[8], const unsigned char *block)
{
	uint32_t word[64];
	uint32_t s[8];

	for (int i = 0; i < 16; i++, block += 4)
		word[i] = (uint32_t) block[0] << 24 | (uint32_t) block[1] << 16 |
		          (uint32_t) block[2] << 8 | block[3];
	for (int i = 16; i < 64; i++) {
		uint32_t a = word[i - 15];
		uint32_t b = word[i - 2];

		word[i] = word[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + word[i - 7] +
		          (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
	}
	memcpy(s, state, sizeof(s));
	for (int i = 0; i < 64; i++) {
		uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
		               ((s[4] & s[5]) ^ (~s[4] & s[6])) + rounds[i] + word[i];
		uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
		               ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

		memmove(s + 1, s, 7 * sizeof(s[0]));
		s[4] += one;
		s[0] = one + two;
	}
	for (int i = 0; i < 8; i++)
		state[i] += s[i];
}

void coloc_sha256_begin(struct coloc_sha256 *sum)
{
	/* FIPS 180-4, 5.3.3: of the square roots of the first 8 primes. */
	static const uint32_t first[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	memcpy(sum->state, first, sizeof(first));
	sum->bytes = 0;
}

void coloc_sha256_add(struct coloc_sha256 *sum, const void *data, size_t len)
{
	const unsigned char *in = data;

	while (len > 0) {
		size_t have = sum->bytes % BLOCK;
		size_t part = len < BLOCK - have ? len : BLOCK - have;

		memcpy(sum->block + have, in, part);
		sum->bytes += part;
		in += part;
		len -= part;
		if (have + part == BLOCK)
			take_block(sum->state, sum->block);
	}
}

void coloc_sha256_end(struct coloc_sha256 *sum, unsigned char out[COLOC_SHA256_BYTES])
{
	static const unsigned char padding[BLOCK] = { 0x80 };
	uint64_t bits = sum->bytes * 8;
	size_t have = sum->bytes % BLOCK;
	unsigned char length[8];

	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char) (bits >> (56 - 8 * i));
	coloc_sha256_add(sum, padding, have < BLOCK - 8 ? BLOCK - 8 - have : 2 * BLOCK - 8 - have);
	coloc_sha256_add(sum, length, sizeof(length));
	for (int i = 0; i < COLOC_SHA256_BYTES; i++)
		out[i] = (unsigned char) (sum->state[i / 4] >> (24 - 8 * (i % 4)));
}

void coloc_hmac_begin(struct coloc_hmac *mac, const unsigned char *key, size_t len)
{
	unsigned char block[BLOCK] = { 0 };
	unsigned char pad[BLOCK];

	if (len > BLOCK) {
		coloc_sha256_begin(&mac->inner);
		coloc_sha256_add(&mac->inner, key, len);
		coloc_sha256_end(&mac->inner, block);
	} else {
		memcpy(block, key, len);
	}
	for (int i = 0; i < BLOCK; i++)
		pad[i] = block[i] ^ 0x36;
	coloc_sha256_begin(&mac->inner);
	coloc_sha256_add(&mac->inner, pad, BLOCK);
	for (int i = 0; i < BLOCK; i++)
		pad[i] = block[i] ^ 0x5c;
	coloc_sha256_begin(&mac->outer);
	coloc_sha256_add(&mac->outer, pad, BLOCK);
}

void coloc_hmac_add(struct coloc_hmac *mac, const void *data, size_t len)
{
	coloc_sha256_add(&mac->inner, data, len);
}

void coloc_hmac_end(struct coloc_hmac *mac, unsigned char out[COLOC_SHA256_BYTES])
{
	coloc_sha256_end(&mac->inner, out);
	coloc_sha256_add(&mac->outer, out, COLOC_SHA256_BYTES);
	coloc_sha256_end(&mac->outer, out);
}

void coloc_hex(const unsigned char *data, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*out++ = digits[data[i] >> 4];
		*out++ = digits[data[i] & 15];
	}
	*out = '\0';
}
