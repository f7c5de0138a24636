/* Kernels of your own, in a shared library that exports anneal_kernel_library(). The command takes
 * it as --library FILE; C++, C and Python as option `libraries`. docs/custom_kernels.md has an
 * example. Conventions are those of c_api.h: every struct begins with its size, fields that a
 * library's struct lacks count as 0, and callbacks return ANNEAL_OK or a code and fill
 * error->message. Callbacks must not throw. Several threads may call them at once. */
#ifndef ANNEAL_ENGINE_RUN_LIBRARY_C_KERNELS_H_
#define ANNEAL_ENGINE_RUN_LIBRARY_C_KERNELS_H_

#include <stdint.h>
#include <string.h>

#include "anneal/engine/run/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ANNEAL_KERNELS_VERSION = 1 }; /* of this interface */

typedef enum {
  ANNEAL_INTS = 1,
  ANNEAL_FLOATS = 2,
  ANNEAL_STRINGS = 3, /* each ends in 0 */
  ANNEAL_TENSOR = 4,
} anneal_attribute_kind; /* which field of anneal_attribute is set */

typedef struct {
  uint64_t size; /* sizeof(anneal_attribute) */
  const char* name;
  anneal_attribute_kind kind;
  int32_t count; /* of the list; a single value is a list of one */
  const int64_t* ints;
  const float* floats;
  const char* const* strings;
  const anneal_tensor* tensor;
} anneal_attribute; /* of a node */

/* A node of the model. Tensors are dense and row-major, in host memory. An absent input has the
 * dtype 0. In infer() and create() a size may be open: it is a negative number then, and equal
 * numbers are equal sizes. Data is null but for constant inputs in create(), whose memory lives for
 * the call, and in run(). */
typedef struct {
  uint64_t size; /* sizeof(anneal_node) */
  const anneal_attribute* attributes;
  const anneal_tensor* inputs;
  anneal_tensor* outputs;
  int32_t attribute_count, input_count, output_count;
  int32_t threads; /* in prepare() and run(): the most that run() has */
} anneal_node;

/* A size of an output that is known only once all sizes of the inputs are. */
#define ANNEAL_OPEN_SIZE INT64_MIN

typedef struct anneal_team anneal_team; /* the threads of a run */
typedef struct {
  uint64_t size;   /* sizeof(anneal_run) */
  void* workspace; /* what prepare() asked for, aligned to 64 bytes */
  anneal_team* team;
  /* Calls body for ranges that cover [0, items), each at least `grain` long if items are, on the
   * threads of the engine, and returns when all have returned. thread counts from 0: bodies that
   * run at one time have different ones. */
  void (*parallel_for)(anneal_team* team, int64_t items, int64_t grain,
                       void (*body)(void* argument, int64_t begin, int64_t end, int32_t thread),
                       void* argument);
} anneal_run;

/* The grid of one launch. The function's parameters are In<T> for each input, Out<T> for each
 * output, then value_count values of type i64. With ANNEAL_KERNEL_LAUNCHES, Out<T> of the workspace
 * follows the outputs, T being what the function likes, and cuda_launch() is called for each index
 * below the count of its first call (0: 1); launches run one after the other. */
typedef struct {
  uint64_t size; /* sizeof(anneal_launch) */
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  int32_t value_count;
  int64_t values[16];
  uint64_t workspace_bytes; /* of the first call; aligned to 64 bytes, shared by all launches */
  int32_t index, count;
} anneal_launch;

enum {
  /* The same inputs give the same outputs, and nothing else happens: it may run while building. */
  ANNEAL_KERNEL_PURE = 1,
  ANNEAL_KERNEL_ROUNDED = 2, /* f32 inputs may have been rounded, with fp16, bf16 or int8 */
  /* With fp16 or bf16, all inputs that the model has in f32 may be f16, or bf16. infer() then gives
   * that type for outputs, or f32. Else a build never changes the types of the model. */
  ANNEAL_KERNEL_F16 = 4,
  ANNEAL_KERNEL_BF16 = 8,
  ANNEAL_KERNEL_LAUNCHES = 16, /* several launches on a GPU, or a workspace: see anneal_launch */
};

/* infer and run must be set; so must destroy with create, and cuda_launch with cuda_source. */
typedef struct {
  uint64_t size;           /* sizeof(anneal_kernel) */
  const char *domain, *op; /* domain null: "ai.onnx"; op must be set */
  int32_t since;           /* the first opset of the domain whose nodes it takes; 0: 1 */
  int32_t version;         /* an engine loads only with the version that it was built with */
  uint64_t flags;
  /* Bit i: axis 0 of input i is the batch. If any is set, index r of axis 0 of all outputs follows
   * from index r of these inputs and from all of the others: a batch may run in parts. */
  uint64_t row_inputs;
  /* Sets dtype, rank and dims of each output, from types, sizes and attributes alone. A size is a
   * number, the number of an input's open size (but nothing computed from it), or
   * ANNEAL_OPEN_SIZE. It runs again with the sizes of each run, which must agree. Sizes cannot
   * follow from data; a node has at most 1024 outputs; strings and sequences are refused. */
  anneal_code (*infer)(const anneal_node* node, anneal_error* error);
  /* Once for each node and engine, or more often. *state is null before, and not read after a
   * failure. ANNEAL_UNSUPPORTED: the kernel cannot run this node. */
  anneal_code (*create)(const anneal_node* node, void** state, anneal_error* error);
  void (*destroy)(void* state);
  /* For new sizes. */
  anneal_code (*prepare)(void* state, const anneal_node* node, uint64_t* workspace_bytes,
                         anneal_error* error);
  anneal_code (*run)(void* state, const anneal_node* node, const anneal_run* run,
                     anneal_error* error);
  /* For GPUs: the text of one function in the language of docs/custom_kernels.md, without open
   * sizes. The library keeps the text until destroy(). null: the node runs on the CPU. */
  const char* (*cuda_source)(void* state, const anneal_node* node);
  anneal_code (*cuda_launch)(void* state, const anneal_node* node, anneal_launch* launch,
                             anneal_error* error);
} anneal_kernel;

typedef struct {
  uint64_t size; /* sizeof(anneal_kernels) */
  const char* name;
  const anneal_kernel* kernels; /* the first one's size is that of all */
  int32_t count;
  int32_t reserved;
} anneal_kernels; /* of a library */

/* What the library exports. version: ANNEAL_KERNELS_VERSION of the engine. The table must stay;
 * null: the library needs another version. */
const anneal_kernels* anneal_kernel_library(int32_t version);

/* An attribute by name, of any kind, or null; the others: a single value, or `otherwise`. */
static inline const anneal_attribute* anneal_attribute_named(const anneal_node* node,
                                                             const char* name) {
  const char* at = (const char*)node->attributes;
  for (int32_t i = 0; i < node->attribute_count; ++i, at += node->attributes->size)
    if (strcmp(((const anneal_attribute*)at)->name, name) == 0) return (const anneal_attribute*)at;
  return 0;
}
static inline int64_t anneal_int_named(const anneal_node* node, const char* name,
                                       int64_t otherwise) {
  const anneal_attribute* found = anneal_attribute_named(node, name);
  return found && found->kind == ANNEAL_INTS && found->count == 1 ? found->ints[0] : otherwise;
}
static inline float anneal_float_named(const anneal_node* node, const char* name, float otherwise) {
  const anneal_attribute* found = anneal_attribute_named(node, name);
  return found && found->kind == ANNEAL_FLOATS && found->count == 1 ? found->floats[0] : otherwise;
}

#ifdef __cplusplus
}
#endif

#endif
