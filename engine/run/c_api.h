/* The C interface to loading and running engines. It is what stays stable between versions: a
 * program linked against it runs with every later libengine of the same SONAME.
 *
 * It has what the C++ interface (engine.h) has for running engines. Separate slots and observers,
 * which find faults, are part of the C++ interface and of the command `anneal` only.
 *
 * Functions that can fail return 0 or an anneal_code, and on failure fill *error where error is not
 * null. Strings are UTF-8 and belong to the object they were asked of. Any number of threads may
 * use an anneal_engine at once; one thread at a time may use an anneal_context.
 *
 * Structs of options begin with their size, so that a program compiled with an older header goes on
 * working: what its struct does not have is 0. 0 is the default of every option but `threads`,
 * where it means one thread per core, as in C++. A null pointer to options means the defaults of
 * C++, with one thread. */
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
  ANNEAL_CANCELLED = 8,
  ANNEAL_OUT_OF_MEMORY = 9,
  ANNEAL_LIMIT = 10,
  ANNEAL_CANNOT_WRITE = 11,
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

/* Where memory lies. Engines take and give host memory today, and refuse memory of cards. */
typedef enum {
  ANNEAL_HOST = 0,
  ANNEAL_PINNED_HOST = 1,
  ANNEAL_CUDA = 2,
} anneal_memory_kind;

/* Memory of the caller, or of a context. Strides count elements. */
typedef struct {
  anneal_dtype dtype;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK], strides[ANNEAL_MAX_RANK];
  void* data;
  anneal_memory_kind memory;
  int32_t memory_device; /* of ANNEAL_CUDA: the number of the card */
} anneal_tensor;

/* An input or output of an engine. */
typedef struct {
  const char* name;
  anneal_dtype dtype;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];     /* -1: a size that is open until inputs are set */
  int64_t min_dims[ANNEAL_MAX_RANK]; /* what may be set; equal to dims where they are known */
  int64_t max_dims[ANNEAL_MAX_RANK];
  const char* dim_names[ANNEAL_MAX_RANK]; /* "N", "3", "(H + 1)//2" */
} anneal_tensor_info;

/* The shape of an input, by name. */
typedef struct {
  const char* name;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];
} anneal_input_shape;

typedef struct anneal_engine anneal_engine;
typedef struct anneal_context anneal_context;

const char* anneal_version(void);

typedef struct {
  uint64_t size; /* sizeof(anneal_engine_options) */
  /* "cpu", "cpu:avx2", "cuda", "cuda:1", "emulated" (a GPU's plan on the host, slowly), "auto" (a
   * GPU if the engine has a plan for one and the machine has one, else the CPU); null: "auto" */
  const char* device;
  int32_t threads;  /* most threads that load, the caller's included; 0: one per core */
  int32_t read_all; /* not 0: read the file instead of mapping it */
} anneal_engine_options;

anneal_code anneal_engine_load(const char* path, const anneal_engine_options* options,
                               anneal_engine** engine, anneal_error* error);
/* An engine file in memory. The engine reads its weights where they lie, and calls
 * release(argument) when it and all its contexts are freed; the bytes must stay unchanged until
 * then. The engine copies the bytes first if release is null, or if they are not aligned to 64
 * bytes; then, and on failure, release is called before the function returns. */
anneal_code anneal_engine_load_memory(const void* bytes, uint64_t byte_count,
                                      void (*release)(void* argument), void* argument,
                                      const anneal_engine_options* options, anneal_engine** engine,
                                      anneal_error* error);
/* Contexts made of it stay valid. Null is allowed. */
void anneal_engine_free(anneal_engine* engine);
int32_t anneal_engine_input_count(const anneal_engine* engine);
int32_t anneal_engine_output_count(const anneal_engine* engine);
/* REQUIRES: 0 <= index < count */
anneal_tensor_info anneal_engine_input(const anneal_engine* engine, int32_t index);
anneal_tensor_info anneal_engine_output(const anneal_engine* engine, int32_t index);
/* Whether an input may be left unset: 1, and *value is what it is then (of the engine's memory, not
 * to be written); else 0. value may be null. REQUIRES: 0 <= index < count */
int32_t anneal_engine_input_default(const anneal_engine* engine, int32_t index,
                                    anneal_tensor* value);
/* What it runs on, for people: "NVIDIA H100 80GB HBM3, sm_90". */
const char* anneal_engine_device(const anneal_engine* engine);
/* One sentence for each step whose planned kernel this machine does not have, with the kernel that
 * runs in its place. */
int32_t anneal_engine_load_warning_count(const anneal_engine* engine);
const char* anneal_engine_load_warning(const anneal_engine* engine, int32_t index);

typedef struct {
  uint64_t size;             /* sizeof(anneal_context_options) */
  int32_t threads;           /* most threads of one run, the caller's included; 0: one per core */
  int32_t synchronous_steps; /* not 0: on a GPU, errors name the step that failed; slower */
  /* Most bytes for activations, workspaces, staging and outputs on all devices; 0: no limit. */
  uint64_t max_memory;
  int32_t spin; /* not 0: waiting for a GPU keeps a core busy and ends sooner */
  /* Input shapes for which the context keeps what it prepared; 0: 8. */
  int32_t shape_cache_size;
  int32_t no_prewarm;  /* not 0: nothing is prepared for the shapes declared at build */
  int64_t micro_batch; /* rows of a batch to run at a time; 0: the context chooses */
} anneal_context_options;

anneal_code anneal_context_make(const anneal_engine* engine, const anneal_context_options* options,
                                anneal_context** context, anneal_error* error);
void anneal_context_free(anneal_context* context); /* null is allowed */
/* The memory stays the caller's. Each run reads it until other memory is set: it must outlive the
 * last of them. Any strides. */
anneal_code anneal_context_set_input(anneal_context* context, const char* name,
                                     const anneal_tensor* memory, anneal_error* error);
/* As if the input had never been set: runs read its default value, or ask for it to be set. */
anneal_code anneal_context_clear_input(anneal_context* context, const char* name,
                                       anneal_error* error);
/* Optional; needs all inputs without a default value to be set. */
anneal_code anneal_context_set_output(anneal_context* context, const char* name,
                                      const anneal_tensor* memory, anneal_error* error);
/* Does ahead what changing to these shapes costs a run. An input that is not named has the shape
 * that was set last, else that of its default value, else its only one. Outputs of the last run are
 * gone. */
anneal_code anneal_context_prepare(anneal_context* context, const anneal_input_shape* inputs,
                                   int32_t count, anneal_error* error);
anneal_code anneal_context_run(anneal_context* context, anneal_error* error);
/* After a run: the memory that was set, or the context's, dense and row-major, valid until the next
 * run, profile, prepare or set. */
anneal_code anneal_context_output(const anneal_context* context, const char* name,
                                  anneal_tensor* output, anneal_error* error);

/* The time of one step of a run. */
typedef struct {
  const char *step, *kernel; /* valid until the next profile of the context */
  double microseconds;
  int64_t times; /* how often it ran */
} anneal_step_time;
/* Runs as anneal_context_run() does, and gives the times of the first `capacity` steps. *count is
 * the number of all steps. times may be null if capacity is 0. */
anneal_code anneal_context_profile(anneal_context* context, anneal_step_time* times,
                                   int32_t capacity, int32_t* count, anneal_error* error);
/* Bytes of everything the context holds. */
uint64_t anneal_context_memory_bytes(const anneal_context* context);
/* One sentence for each unbroken run of steps that a GPU's driver did not capture as a graph. Valid
 * until the next run. */
int32_t anneal_context_run_warning_count(const anneal_context* context);
const char* anneal_context_run_warning(const anneal_context* context, int32_t index);

#ifdef __cplusplus
}
#endif

#endif
