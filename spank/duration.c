/* SPDX-License-Identifier: Apache-2.0
 * A duration as sbatch's --time takes it (sbatch(1)): minutes, minutes:seconds,
 * hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
 */
#include <stdlib.h>
#include <string.h>

#include "coloc.h"

#define LONGEST_S (365L * 86400L)
#define DIGITS 9 /* of one number: no product below overflows 64 bits */

/* Up to three numbers between colons; how many, 0 where the text is not such a list. */
static int numbers(const char *text, long out[3])
{
	int count = 0;

	while (count < 3) {
		size_t len = strspn(text, "0123456789");

		if (len == 0 || len > DIGITS)
			return 0;
		out[count++] = strtol(text, NULL, 10);
		text += len;
		if (*text == '\0')
			return count;
		if (*text++ != ':')
			return 0;
	}
	return 0;
}

long coloc_seconds(const char *text)
{
	const char *dash = strchr(text, '-');
	long part[3] = { 0, 0, 0 };
	long long sum;
	int count;

	if (dash) {
		long days[3];
		char head[DIGITS + 1];
		size_t len = (size_t) (dash - text);

		if (len > DIGITS)
			return -1;
		memcpy(head, text, len);
		head[len] = '\0';
		if (numbers(head, days) != 1 || numbers(dash + 1, part) == 0)
			return -1;
		sum = days[0] * 86400LL + part[0] * 3600LL + part[1] * 60LL + part[2];
	} else {
		count = numbers(text, part);
		if (count == 0)
			return -1;
		if (count == 3)
			sum = part[0] * 3600LL + part[1] * 60LL + part[2];
		else
			sum = part[0] * 60LL + part[1];
	}
	return sum <= LONGEST_S ? (long) sum : -1;
}
