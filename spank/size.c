/* SPDX-License-Identifier: Apache-2.0
 * An amount of memory as sbatch's --mem takes it (sbatch(1)): a whole number with K, M, G or T
 * behind it, M where there is none; "B" or "iB" may follow the letter.
 */
#include <stdlib.h>
#include <string.h>

#include "coloc.h"

#define MOST_KIB (1ULL << 34) /* 16 TiB */
#define DIGITS 12

/* MiB, what is left of one counts as one; -1 where the text is no such size. */
long coloc_mib(const char *text)
{
	static const char letters[] = "KMGTkmgt";
	size_t digits = strspn(text, "0123456789");
	const char *rest = text + digits;
	unsigned long long kib = 1024, number;
	const char *letter = *rest ? strchr(letters, *rest) : NULL;

	if (letter) {
		kib = 1ULL << (10 * ((letter - letters) % 4));
		rest++;
		if (strcmp(rest, "B") == 0 || strcmp(rest, "iB") == 0)
			rest = "";
	}
	if (digits < 1 || digits > DIGITS || *rest != '\0')
		return -1;
	number = strtoull(text, NULL, 10);
	if (number < 1 || number > MOST_KIB / kib)
		return -1;
	return (long) ((number * kib + 1023) / 1024);
}
