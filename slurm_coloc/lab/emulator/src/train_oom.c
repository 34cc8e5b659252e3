/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The out-of-memory texts of the frameworks, in the shape in which users post them: PyTorch up to
 * 1.x ("RuntimeError: CUDA out of memory. ... (GPU 0; ...") and 2.x (torch.OutOfMemoryError),
 * TensorFlow 2, jaxlib, CuPy, cuBLAS, cuDNN, the CUDA runtime and NCCL through PyTorch.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train.h"

static const char *const names[FW_COUNT] = {"pytorch", "pytorch-old", "tensorflow", "jax", "cupy",
                                            "cublas",  "cudnn",       "cuda",       "nccl"};

const char *framework_name(int fw) { return names[fw]; }

int framework_by_name(const char *name)
{
    int i;

    for (i = 0; i < FW_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* PyTorch's own format of a size: "512.00 MiB", "36.00 GiB". */
static const char *size(char *buf, size_t len, double mib)
{
    if (mib <= 0.0)
        snprintf(buf, len, "0 bytes");
    else if (mib > 1024.0)
        snprintf(buf, len, "%.2f GiB", mib / 1024.0);
    else
        snprintf(buf, len, "%.2f MiB", mib);
    return buf;
}

#define SIZE(mib) size((char[32]){0}, 32, (double)(mib))

/* What the caching allocator keeps unused: a little, so that the figures do not look made up. */
static uint64_t unallocated(const struct oom *o)
{
    return o->own_mib > 1024 ? 37 + o->own_mib / 128 : o->own_mib / 20;
}

/* The CUDA context is in nvidia-smi's figure and not in the allocator's. */
static uint64_t allocated(const struct oom *o)
{
    uint64_t context = o->own_mib > 1024 ? 512 : o->own_mib / 2;

    return o->own_mib - context - unallocated(o);
}

static const char *const torch_frames =
    "  File \"train.py\", line 118, in <module>\n"
    "    main(args)\n"
    "  File \"train.py\", line 84, in main\n"
    "    loss = criterion(model(images), target)\n"
    "  File \"site-packages/torch/nn/modules/module.py\", line 1739, in _wrapped_call_impl\n"
    "    return self._call_impl(*args, **kwargs)\n";

static const char *const cuda_hint =
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
    "below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n";

/* Each process on the GPU in one sentence; the own one as PyTorch words it. */
static void neighbours(const struct oom *o)
{
    uint32_t i;

    for (i = 0; i < o->st->n_slots; i++) {
        const struct emu_proc *p = &o->st->proc[i];
        if (!emu_proc_on(o->st, p, o->slot->device, o->slot->mig))
            continue;
        if (p->pid == (int32_t)getpid())
            fprintf(stderr, " Including non-PyTorch memory, this process has %s memory in use.",
                    SIZE(p->memory_mib));
        else if (p->memory_mib > 0)
            fprintf(stderr, " Process %d has %s memory in use.", p->pid, SIZE(p->memory_mib));
    }
}

static void pytorch_new(const struct oom *o)
{
    fprintf(stderr,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s. GPU %d has a total "
            "capacity of %s of which %s is free.",
            SIZE(o->asked_mib), o->ordinal, SIZE(o->total_mib), SIZE(o->free_mib));
    neighbours(o);
    if (o->allowed_mib != 0)
        fprintf(stderr, " %s allowed;", SIZE(o->allowed_mib));
    fprintf(stderr,
            " Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch "
            "but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)\n",
            SIZE(allocated(o)), SIZE(unallocated(o)));
}

static void pytorch_old(const struct oom *o)
{
    fprintf(stderr,
            "RuntimeError: CUDA out of memory. Tried to allocate %s (GPU %d; %s total capacity; %s "
            "already allocated; %s free; %s reserved in total by PyTorch) If reserved memory is >> "
            "allocated memory try setting max_split_size_mb to avoid fragmentation.  See "
            "documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF\n",
            SIZE(o->asked_mib), o->ordinal, SIZE(o->total_mib), SIZE(allocated(o)),
            SIZE(o->free_mib), SIZE(allocated(o) + unallocated(o)));
}

static void tensorflow(const struct oom *o)
{
    unsigned long long bytes = (unsigned long long)o->asked_mib * 1048576ull;

    fprintf(stderr,
            "W external/local_tsl/tsl/framework/bfc_allocator.cc:482] Allocator (GPU_%d_bfc) ran "
            "out of memory trying to allocate %.2fGiB (rounded to %llu)requested by op "
            "model/conv2d_5/Conv2D\n"
            "If the cause is memory fragmentation maybe the environment variable "
            "'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation.\n"
            "W tensorflow/core/framework/op_kernel.cc:1839] OP_REQUIRES failed at "
            "conv_ops_impl.h:1204 : RESOURCE_EXHAUSTED: OOM when allocating tensor with "
            "shape[256,64,112,%llu] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:%d by allocator GPU_%d_bfc\n",
            o->ordinal, (double)bytes / 1073741824.0, bytes, bytes / (256ull * 64 * 112 * 4),
            o->ordinal, o->ordinal);
    fprintf(stderr,
            "Traceback (most recent call last):\n"
            "  File \"train.py\", line 61, in <module>\n"
            "    model.fit(train_ds, epochs=args.epochs)\n"
            "  File \"site-packages/keras/src/utils/traceback_utils.py\", line 122, in "
            "error_handler\n"
            "    raise e.with_traceback(filtered_tb) from None\n"
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution "
            "error:\n\n"
            "OOM when allocating tensor with shape[256,64,112,%llu] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:%d by allocator GPU_%d_bfc\n"
            "\t [[{{node model/conv2d_5/Conv2D}}]]\n"
            "Hint: If you want to see a list of allocated tensors when OOM happens, add "
            "report_tensor_allocations_upon_oom to RunOptions for current allocation info. This "
            "isn't available when running in Eager mode.\n"
            " [Op:__inference_train_function_4218]\n",
            bytes / (256ull * 64 * 112 * 4), o->ordinal, o->ordinal);
}

/* CuPy's digits in groups of three: "25,600,000". */
static const char *grouped(char buf[32], unsigned long long n)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%llu", n), i, out = 0;

    for (i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            buf[out++] = ',';
        buf[out++] = digits[i];
    }
    buf[out] = '\0';
    return buf;
}

static void traceback(const char *frames)
{
    fprintf(stderr, "Traceback (most recent call last):\n%s", frames);
}

void oom_print(int fw, const struct oom *o, int caught)
{
    unsigned long long bytes = (unsigned long long)o->asked_mib * 1048576ull;
    unsigned long long own = (unsigned long long)allocated(o) * 1048576ull;

    if (caught) /* a script that logs what it caught: same words, no traceback of its own */
        fputs("WARNING:train:out of memory, halving the batch: ", stderr);
    switch (fw) {
    case FW_PYTORCH:
        if (!caught)
            traceback(torch_frames);
        pytorch_new(o);
        break;
    case FW_PYTORCH_OLD:
        if (!caught)
            traceback(torch_frames);
        pytorch_old(o);
        break;
    case FW_TENSORFLOW: tensorflow(o); break;
    case FW_JAX:
        traceback("  File \"train.py\", line 95, in <module>\n"
                  "    state, metrics = train_step(state, batch)\n");
        fprintf(stderr,
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
                "trying to allocate %llu bytes.\n",
                bytes);
        break;
    case FW_CUPY:
        traceback("  File \"train.py\", line 40, in <module>\n"
                  "    y = x @ w\n"
                  "  File \"cupy/cuda/memory.pyx\", line 1227, in "
                  "cupy.cuda.memory.SingleDeviceMemoryPool._try_malloc\n");
        fprintf(stderr,
                "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating %s bytes "
                "(allocated so far: %s bytes).\n",
                grouped((char[32]){0}, bytes), grouped((char[32]){0}, own));
        break;
    case FW_CUBLAS:
        traceback(torch_frames);
        fputs("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
              "`cublasCreate(handle)`\n",
              stderr);
        break;
    case FW_CUDNN:
        traceback(torch_frames);
        fputs("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED\n", stderr);
        break;
    case FW_CUDA:
        traceback(torch_frames);
        fprintf(stderr, "RuntimeError: CUDA error: out of memory\n%s", cuda_hint);
        break;
    default:
        fprintf(stderr,
                "node:%d:%d [%d] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n",
                (int)getpid(), (int)getpid(), o->ordinal);
        traceback("  File \"train.py\", line 70, in main\n"
                  "    model = torch.nn.parallel.DistributedDataParallel(model)\n");
        fputs("torch.distributed.DistBackendError: NCCL error in: "
              "../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run with "
              "NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
              "ncclUnhandledCudaError: Call to CUDA function failed.\n"
              "Last error:\n"
              "Cuda failure 2 'out of memory'\n",
              stderr);
        break;
    }
}
