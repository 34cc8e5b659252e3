/* SPDX-License-Identifier: Apache-2.0
 * `sbatch --coloc train.sh`: the summary is forgotten, and the script is taken for it. sbatch then
 * reads a script from standard input, which on a terminal looks as if it hung, before it asks us
 * about our option. So its words are looked at before it does.
 */
#include <stdio.h>
#include <string.h>

#include "coloc.h"

/* sbatch's options of one letter whose value may be the next word */
#define LETTERS "AaBbCcDdeFGiJLMmNnopqStwx"

/* Where the script begins, the words are the script's own; a value of an option that is written
 * apart (`--partition gpu`) cannot be told from a script, so the look ends there. */
static const char *value_of_coloc(char *const words[])
{
	for (char *const *word = words; *word; word++) {
		const char *text = *word;

		if (strcmp(text, "--coloc") == 0)
			return word[1];
		if (strncmp(text, "--coloc=", 8) == 0)
			return text + 8;
		if (text[0] == '-' && text[1] && strchr(LETTERS, text[1]) && !text[2] && word[1])
			word++;
		else if (text[0] != '-' && text[strspn(text, "0123456789:,.-")] != '\0')
			return NULL;
	}
	return NULL;
}

bool coloc_file_check(const char *value, char error[COLOC_ERROR_MAX])
{
	char shown[256];

	if (value && value[0] == '-')
		snprintf(error, COLOC_ERROR_MAX,
		         "--coloc needs the path of a model summary, and %s is an option (a file "
		         "of that name: ./%s)",
		         coloc_printable(value, shown), shown);
	else if (value && coloc_is_script(value))
		snprintf(error, COLOC_ERROR_MAX,
		         "--coloc needs the path of a model summary, and %s is a script: "
		         "--coloc=MODEL.txt %s",
		         coloc_printable(value, shown), shown);
	else
		return true;
	return false;
}

bool coloc_command_line_check(char *const words[], char error[COLOC_ERROR_MAX])
{
	return coloc_file_check(value_of_coloc(words), error);
}
