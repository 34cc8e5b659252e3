/* SPDX-License-Identifier: Apache-2.0
 * A MUNGE credential through libmunge.so.2, loaded only where a controller on another host is asked:
 * so that neither the build nor a host without MUNGE needs it. Values of munge.h 0.5.13 to 0.5.16.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ticket.h"

#define LIBRARY "libmunge.so.2"
#define OPT_CIPHER_TYPE 0
#define OPT_SOCKET 8
#define OPT_UID_RESTRICTION 9
#define CIPHER_AES128 4

typedef struct munge_ctx *context_t;

struct library {
	context_t (*create)(void);
	void (*destroy)(context_t context);
	int (*set)(context_t context, int option, ...);
	int (*encode)(char **credential, context_t context, const void *data, int len);
	const char *(*strerror)(int number);
};

/* dlsym gives an object's address where a function's is wanted; POSIX has them alike. */
static bool find(void *library, const char *name, void *out)
{
	void *found = dlsym(library, name);

	memcpy(out, &found, sizeof(found));
	return found != NULL;
}

static bool load(struct library *lib)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (library && find(library, "munge_ctx_create", &lib->create) &&
	    find(library, "munge_ctx_destroy", &lib->destroy) &&
	    find(library, "munge_ctx_set", &lib->set) &&
	    find(library, "munge_encode", &lib->encode) &&
	    find(library, "munge_strerror", &lib->strerror))
		return true;
	say("%s cannot be loaded: %s", LIBRARY, dlerror());
	return false;
}

char *munge_credential(const char *socket, const char *payload, uid_t for_uid)
{
	struct library lib;
	char *credential = NULL;
	context_t context;
	int failed;

	if (!load(&lib))
		return NULL;
	context = lib.create();
	if (!context)
		return NULL;
	/* The payload holds the session's key: never a build's default cipher, which might be none. */
	failed = lib.set(context, OPT_CIPHER_TYPE, CIPHER_AES128);
	if (!failed && socket[0] != '\0')
		failed = lib.set(context, OPT_SOCKET, socket);
	if (!failed)
		failed = lib.set(context, OPT_UID_RESTRICTION, for_uid);
	if (!failed)
		failed = lib.encode(&credential, context, payload, (int) strlen(payload));
	lib.destroy(context);
	if (!failed)
		return credential;
	say("munge: %s", lib.strerror(failed));
	free(credential);
	return NULL;
}
