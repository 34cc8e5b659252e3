/* SPDX-License-Identifier: Apache-2.0 */
/* What frameworks make of their environment: their own limits, and memory that they take at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train.h"

#define JAX_SHARE 0.75 /* JAX's default, docs.jax.dev "GPU memory allocation" */

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && *value != '\0' ? value : NULL;
}

/* PyTorch 2.10 looks at the CUDA name first. Its key that limits a process; 1.0 without it. */
static double torch_share(void)
{
    const char *conf = variable("PYTORCH_CUDA_ALLOC_CONF");
    const char *at;

    if (conf == NULL)
        conf = variable("PYTORCH_ALLOC_CONF");
    at = conf != NULL ? strstr(conf, "per_process_memory_fraction") : NULL;
    at = at != NULL ? strchr(at, ':') : NULL;
    return at != NULL ? strtod(at + 1, NULL) : 1.0;
}

static const char *jax_share(void)
{
    const char *share = variable("XLA_CLIENT_MEM_FRACTION");

    return share != NULL ? share : variable("XLA_PYTHON_CLIENT_MEM_FRACTION");
}

uint64_t framework_cap(int fw, uint64_t total_mib)
{
    double share = 1.0;

    if (fw == FW_PYTORCH)
        share = torch_share();
    else if (fw == FW_JAX && jax_share() != NULL)
        share = strtod(jax_share(), NULL);
    return share > 0.0 && share < 1.0 ? (uint64_t)((double)total_mib * share) : 0;
}

uint64_t framework_takes(int fw, uint64_t total_mib)
{
    const char *word;

    if (fw == FW_JAX) {
        word = variable("XLA_PYTHON_CLIENT_PREALLOCATE");
        if (word != NULL && (strcmp(word, "false") == 0 || strcmp(word, "0") == 0))
            return 0;
        return (uint64_t)((double)total_mib *
                          (jax_share() ? strtod(jax_share(), NULL) : JAX_SHARE));
    }
    if (fw == FW_TENSORFLOW) {
        word = variable("TF_FORCE_GPU_ALLOW_GROWTH");
        return word != NULL && strcmp(word, "true") == 0 ? 0 : total_mib;
    }
    return 0;
}

int framework_refuses(int fw)
{
    if (fw != FW_JAX || variable("XLA_CLIENT_MEM_FRACTION") == NULL ||
        variable("XLA_PYTHON_CLIENT_MEM_FRACTION") == NULL)
        return 0;
    fputs("ValueError: XLA_CLIENT_MEM_FRACTION is specified together with "
          "XLA_PYTHON_CLIENT_MEM_FRACTION. Remove the latter one, it is deprecated.\n",
          stderr);
    return 1;
}
