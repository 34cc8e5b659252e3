/* SPDX-License-Identifier: Apache-2.0
 * sha256.c against the published vectors (FIPS 180-4 examples, RFC 4231), in pieces of every size.
 */
#include <stdlib.h>
#include <string.h>

#include "sha256.h"
#include "unit.h"

static bool sum_is(const char *text, size_t len, size_t piece, const char *wanted)
{
	struct coloc_sha256 sum;
	unsigned char raw[COLOC_SHA256_BYTES];
	char hex[COLOC_SHA256_HEX + 1];

	coloc_sha256_begin(&sum);
	for (size_t at = 0; at < len; at += piece)
		coloc_sha256_add(&sum, text + at, len - at < piece ? len - at : piece);
	coloc_sha256_end(&sum, raw);
	coloc_hex(raw, sizeof(raw), hex);
	return strcmp(hex, wanted) == 0;
}

static bool mac_is(const char *key, size_t key_len, const char *text, const char *wanted)
{
	struct coloc_hmac mac;
	unsigned char raw[COLOC_SHA256_BYTES];
	char hex[COLOC_SHA256_HEX + 1];

	coloc_hmac_begin(&mac, (const unsigned char *) key, key_len);
	for (; *text; text++)
		coloc_hmac_add(&mac, text, 1);
	coloc_hmac_end(&mac, raw);
	coloc_hex(raw, sizeof(raw), hex);
	return strcmp(hex, wanted) == 0;
}

void test_sha256(void)
{
	static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	char *million = malloc(1000000);
	char long_key[131];

	CHECK(sum_is("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
	CHECK(sum_is("abc", 3, 64,
	             "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
	for (size_t piece = 1; piece <= 64; piece++)
		CHECK(sum_is(two_blocks, 56, piece,
		             "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
	memset(million, 'a', 1000000);
	for (size_t piece = 1; piece < 1000000; piece = piece * 7 + 1)
		CHECK(sum_is(million, 1000000, piece,
		             "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
	free(million);

	/* RFC 4231, cases 2 and 6 */
	CHECK(mac_is("Jefe", 4, "what do ya want for nothing?",
	             "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
	memset(long_key, 0xaa, sizeof(long_key));
	CHECK(mac_is(long_key, sizeof(long_key),
	             "Test Using Larger Than Block-Size Key - Hash Key First",
	             "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
}
