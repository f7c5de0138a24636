/* The C interface to loading and running engines. It is what stays stable between versions: a
 * program linked against it runs with every later libengine of the same SONAME.
 *
 * What finds faults is of the C++ interface and of the command `anneal` alone: separate slots,
 * observers, profiles and remarks (EngineOptions, ExecutionContext in engine.h).
 *
 * Functions that can fail return 0 or an anneal_code, and on failure fill *error where error is not
 * null. Strings are UTF-8 and belong to the object they were asked of. An anneal_engine may be used
 * by any number of threads at once; an anneal_context by one. */
#ifndef ANNEAL_ENGINE_RUN_C_API_H_
#define ANNEAL_ENGINE_RUN_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ANNEAL_MAX_RANK = 8, ANNEAL_ERROR_TEXT = 1024 };

typedef enum {
  ANNEAL_OK = 0,
  ANNEAL_INVALID_MODEL = 1,
  ANNEAL_UNSUPPORTED = 2,
  ANNEAL_INVALID_ARGUMENT = 3,
  ANNEAL_INCOMPATIBLE_PLAN = 4,
  ANNEAL_IO = 5,
  ANNEAL_DEVICE = 6,
  ANNEAL_INTERNAL = 7,
} anneal_code;

typedef struct {
  anneal_code code;
  char text[ANNEAL_ERROR_TEXT]; /* one sentence, cut off if longer */
} anneal_error;

typedef enum {
  ANNEAL_F32 = 1,
  ANNEAL_F64 = 2,
  ANNEAL_F16 = 3,
  ANNEAL_BF16 = 4,
  ANNEAL_I8 = 5,
  ANNEAL_I16 = 6,
  ANNEAL_I32 = 7,
  ANNEAL_I64 = 8,
  ANNEAL_U8 = 9,
  ANNEAL_U16 = 10,
  ANNEAL_U32 = 11,
  ANNEAL_U64 = 12,
  ANNEAL_BOOL = 13,
} anneal_dtype;

/* Memory of the caller, or of a context. Strides count elements. */
typedef struct {
  anneal_dtype dtype;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK], strides[ANNEAL_MAX_RANK];
  void* data;
} anneal_tensor;

/* An input or output; a size that is open until shapes are bound is -1. */
typedef struct {
  const char* name;
  anneal_dtype dtype;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];
} anneal_port;

/* The shape of an input, by name. */
typedef struct {
  const char* name;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];
} anneal_input_shape;

typedef struct anneal_engine anneal_engine;
typedef struct anneal_context anneal_context;

const char* anneal_version(void);

/* device: "cpu", "cpu:avx2", "cuda", "cuda:1", "emulated" (a GPU's plan on the host, slowly),
 * "auto" (a GPU if the engine has a plan for one and one is here, else the CPU); null: "cpu". Loads
 * on the thread of the caller alone. */
anneal_code anneal_engine_load(const char* path, const char* device, anneal_engine** engine,
                               anneal_error* error);
/* Contexts made of it stay valid. Null is allowed. */
void anneal_engine_free(anneal_engine* engine);
int32_t anneal_engine_input_count(const anneal_engine* engine);
int32_t anneal_engine_output_count(const anneal_engine* engine);
/* REQUIRES: 0 <= index < count */
anneal_port anneal_engine_input(const anneal_engine* engine, int32_t index);
anneal_port anneal_engine_output(const anneal_engine* engine, int32_t index);

/* threads: the most of one run, the caller's included; 0: one per core. Prepares for the shapes
 * that were declared when the engine was built. */
anneal_code anneal_context_make(const anneal_engine* engine, int32_t threads,
                                anneal_context** context, anneal_error* error);
typedef struct {
  uint64_t size;             /* sizeof(anneal_context_options); what a later version adds is 0 */
  int32_t threads;           /* as for anneal_context_make() */
  int32_t synchronous_steps; /* not 0: on a GPU, errors name the step that failed; slower */
  uint64_t memory_limit;     /* most bytes of a GPU for activations and workspaces; 0: no limit */
  uint64_t spin;             /* not 0: waiting for a GPU keeps a core busy and ends sooner */
} anneal_context_options;
anneal_code anneal_context_make_with(const anneal_engine* engine,
                                     const anneal_context_options* options,
                                     anneal_context** context, anneal_error* error);
void anneal_context_free(anneal_context* context); /* null is allowed */
/* The memory stays the caller's. Each run reads it until other memory is set: it must outlive the
 * last of them. Any strides. */
anneal_code anneal_context_set_input(anneal_context* context, const char* name,
                                     const anneal_tensor* memory, anneal_error* error);
/* Optional; needs all inputs to be set. */
anneal_code anneal_context_set_output(anneal_context* context, const char* name,
                                      const anneal_tensor* memory, anneal_error* error);
/* Does ahead what changing to these shapes costs a run. An input that is not named has the shape
 * that was set last, or its only one. Outputs of the last run are gone. */
anneal_code anneal_context_prepare(anneal_context* context, const anneal_input_shape* inputs,
                                   int32_t count, anneal_error* error);
anneal_code anneal_context_run(anneal_context* context, anneal_error* error);
/* After a run: the memory that was set, or the context's, valid until the next run or set. */
anneal_code anneal_context_output(const anneal_context* context, const char* name,
                                  anneal_tensor* output, anneal_error* error);

#ifdef __cplusplus
}
#endif

#endif
