/* The C interface to loading and running engines. It is stable: a program that is linked with it
 * runs with every later libengine of the same SONAME.
 *
 * Functions that can fail return 0 or an anneal_code, and on failure fill *error if error is not
 * null. They check all their arguments: a null object, an index out of range or an unknown name is
 * ANNEAL_INVALID_ARGUMENT. Strings are UTF-8 and owned by the object that returned them. Threads
 * may use an anneal_engine or an anneal_stream at once, and an anneal_context one at a time.
 *
 * Every struct begins with its size, which the caller sets: `anneal_error e = {.size =
 * sizeof(e)};`. Later headers may add fields, and programs compiled with older headers still work.
 * Fields that a program's struct lacks count as 0, and are not written. 0 is the default of every
 * option, so a struct with nothing but its size means the same as a null pointer. */
#ifndef ANNEAL_ENGINE_RUN_C_API_H_
#define ANNEAL_ENGINE_RUN_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ANNEAL_MAX_RANK = 8, ANNEAL_NAME_TEXT = 256, ANNEAL_ERROR_TEXT = 1024 }; /* of arrays */

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
  ANNEAL_LIMIT = 10, /* a limit of the caller, such as max_memory, is too small */
  ANNEAL_CANNOT_WRITE = 11,
} anneal_code; /* why a call failed: core/error.h has the meanings */

typedef struct {
  uint64_t size; /* sizeof(anneal_error); 0: nothing is written */
  anneal_code code;
  int32_t rank; /* of dims, the shape that the caller passed; 0: the error is not about a shape */
  int64_t dims[ANNEAL_MAX_RANK];
  char port[ANNEAL_NAME_TEXT];     /* the input or output that the error is about, or "" */
  char message[ANNEAL_ERROR_TEXT]; /* one sentence, truncated to fit */
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
} anneal_dtype; /* the type of an element */

/* Where memory is. An engine on a GPU takes dense row-major memory of that GPU, too. */
typedef enum { ANNEAL_HOST = 0, ANNEAL_PINNED_HOST = 1, ANNEAL_CUDA = 2 } anneal_memory_kind;

/* Memory of the caller, or of a context. */
typedef struct {
  uint64_t size; /* sizeof(anneal_tensor) */
  anneal_dtype dtype;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];
  void* data;
  int32_t has_strides; /* 0: dense and row-major; strides are not read */
  anneal_memory_kind memory;
  int32_t memory_device;            /* of ANNEAL_CUDA: the number of the GPU */
  int64_t strides[ANNEAL_MAX_RANK]; /* in elements; always set in tensors that a context gives */
} anneal_tensor;

/* An input or output of an engine. */
typedef struct {
  uint64_t size; /* sizeof(anneal_tensor_info) */
  const char* name;
  anneal_dtype dtype;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];                                /* -1: open until inputs are set */
  int64_t min_dims[ANNEAL_MAX_RANK], max_dims[ANNEAL_MAX_RANK]; /* the allowed range */
  const char* dim_names[ANNEAL_MAX_RANK];                       /* "N", "3", "(H + 1)//2" */
  /* The value of an input that may be left unset, dense and read-only; null: it must be set. */
  const void* default_data;
  int64_t default_dims[ANNEAL_MAX_RANK];
  const char* state_output; /* the output that is its value in the next run; null: none */
} anneal_tensor_info;

typedef struct {
  uint64_t size; /* sizeof(anneal_input_shape) */
  const char* name;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];
} anneal_input_shape; /* the shape of an input, by name */

typedef struct anneal_engine anneal_engine;   /* a loaded engine */
typedef struct anneal_context anneal_context; /* the memory and bindings of one inference */
typedef struct anneal_stream anneal_stream;   /* a queue of runs in order */
typedef struct anneal_memory anneal_memory;   /* memory of a GPU, or page-locked memory */

const char* anneal_version(void); /* of the library that is running: "0.1.0" */

typedef enum { ANNEAL_INFO = 0, ANNEAL_WARNING = 1 } anneal_severity; /* of a message */
/* Takes one sentence. Any thread may call it, and several at once. */
typedef void (*anneal_log)(void* argument, anneal_severity severity, const char* text);

typedef struct {
  uint64_t size; /* sizeof(anneal_engine_options) */
  /* "cpu", "cpu:avx2", "cuda", "cuda:1", "emulated" (the GPU plan on the host, slow), "auto" (a
   * GPU if the engine has a plan for one and the machine has one, else the CPU); null: "auto" */
  const char* device;
  int32_t threads;              /* maximum while loading, the caller's included; 0: one per core */
  int32_t read_all;             /* not 0: read the file instead of mapping it */
  const char* const* libraries; /* files with kernels of your own (library/c_kernels.h) */
  uint64_t library_count;
  /* Host memory of weights that are not mapped, and of all contexts; both functions or none. Any
   * thread may call them, until the engine and its contexts are freed. alignment is a power of two.
   * Null: there is no memory, and the call fails with ANNEAL_OUT_OF_MEMORY. */
  void* (*allocate)(void* argument, uint64_t bytes, uint64_t alignment);
  void (*release)(void* argument, void* memory, uint64_t bytes);
  void* allocator_argument; /* of all four functions */
  anneal_log log;           /* what was loaded, and warnings of loading and of all runs */
  void* log_argument;
  const char* weights; /* the file of weights of an engine that does not hold them */
  /* The same for weights, activations and workspaces on the GPU, aligned to 256 bytes. */
  void* (*gpu_allocate)(void* argument, uint64_t bytes, uint64_t alignment);
  void (*gpu_release)(void* argument, void* memory, uint64_t bytes);
} anneal_engine_options;

anneal_code anneal_engine_load(const char* path, const anneal_engine_options* options,
                               anneal_engine** engine, anneal_error* error); /* options: or null */
/* An engine file in memory. The engine reads its weights in place, and calls release(argument) when
 * it and all its contexts are freed; the bytes must stay unchanged until then. The engine copies
 * the bytes first if release is null, or if they are not aligned to 64 bytes; then, and on failure,
 * release is called before the function returns. */
anneal_code anneal_engine_load_memory(const void* bytes, uint64_t byte_count,
                                      void (*release)(void* argument), void* argument,
                                      const anneal_engine_options* options, anneal_engine** engine,
                                      anneal_error* error);
/* Its contexts stay valid. Null is allowed. */
void anneal_engine_free(anneal_engine* engine);

typedef struct {
  uint64_t size; /* sizeof(anneal_engine_info) */
  int32_t input_count, output_count;
  const char* device; /* for people: "NVIDIA H100 80GB HBM3, sm_90" */
  /* One sentence for each step whose planned kernel this machine lacks, with its replacement. */
  int32_t load_warning_count;
  const char* const* load_warnings;
} anneal_engine_info;
anneal_code anneal_engine_get_info(const anneal_engine* engine, anneal_engine_info* info,
                                   anneal_error* error);
/* In the model's order, from 0. */
anneal_code anneal_engine_get_input(const anneal_engine* engine, int32_t index,
                                    anneal_tensor_info* info, anneal_error* error);
anneal_code anneal_engine_get_output(const anneal_engine* engine, int32_t index,
                                     anneal_tensor_info* info, anneal_error* error);

typedef struct {
  uint64_t size;            /* sizeof(anneal_context_options) */
  int32_t threads;          /* maximum for one run, the caller's included; 0: one per core */
  int32_t spin;             /* not 0: busy-wait for a GPU, with some microseconds less latency */
  uint64_t max_memory;      /* limit of the context in bytes, on all devices; 0: none */
  int64_t micro_batch;      /* rows per micro-batch; 0: the context chooses */
  int32_t shape_cache_size; /* input shapes for which the context keeps its preparation; 0: 8 */
  int32_t no_prewarm;       /* not 0: do not prepare the shapes declared at build */
  int64_t profile;          /* index of the profile to use, plus 1; 0: by the inputs' shapes */
} anneal_context_options;

anneal_code anneal_context_make(const anneal_engine* engine, const anneal_context_options* options,
                                anneal_context** context, anneal_error* error); /* keeps engine */
void anneal_context_free(anneal_context* context); /* waits for its run; null is allowed */
/* Any strides. It must stay valid until the last run that reads it. Null: unsets the input. */
anneal_code anneal_context_set_input(anneal_context* context, const char* name,
                                     const anneal_tensor* memory, anneal_error* error);
/* Optional. All inputs without a default value must be set before. Null memory: unsets it. */
anneal_code anneal_context_set_output(anneal_context* context, const char* name,
                                      const anneal_tensor* memory, anneal_error* error);
/* Prepares a run at these shapes. An input that is not named keeps the shape that was set last,
 * else that of its default value, else the only shape it allows. Invalidates the outputs of the
 * last run. All structs have the size of the first. */
anneal_code anneal_context_prepare(anneal_context* context, const anneal_input_shape* inputs,
                                   int32_t count, anneal_error* error);
anneal_code anneal_context_run(anneal_context* context, anneal_error* error);
/* After a run, or a wait for an enqueued one: the memory that was set, or the context's, dense and
 * row-major, valid until the next run, profile, prepare or set. */
anneal_code anneal_context_output(const anneal_context* context, const char* name,
                                  anneal_tensor* output, anneal_error* error);

/* Runs on one stream happen in order, runs on different streams overlap. device: "cpu" (or null)
 * for engines of every device; "cuda", "cuda:1", "emulated" for engines of that GPU. */
anneal_code anneal_stream_make(const char* device, anneal_stream** stream, anneal_error* error);
/* A CUstream of the application, which must outlive the stream; null: the legacy default one. */
anneal_code anneal_stream_from_cuda(void* custream, anneal_stream** stream, anneal_error* error);
/* Waits until all its runs have ended. anneal_context_wait() reports their errors. */
anneal_code anneal_stream_wait(anneal_stream* stream, anneal_error* error);
void anneal_stream_free(anneal_stream* stream); /* waits for its runs; null is allowed */

/* Memory of a GPU ("cuda", "cuda:1", "emulated"; null: "cuda") or page-locked memory of the host
 * for its copies. Not initialised, aligned to 64 bytes. All three functions are thread-safe. */
anneal_code anneal_memory_make(anneal_memory_kind kind, uint64_t bytes, const char* gpu,
                               anneal_memory** memory, void** data, anneal_error* error);
void anneal_memory_free(anneal_memory* memory); /* no run may use it; null is allowed */
/* Copies all elements to memory of the same type and dims, and waits. Memory of a GPU, dense and
 * row-major, is copied after the work on its default stream, not after that of other streams. */
anneal_code anneal_copy(const anneal_tensor* to, const anneal_tensor* from, anneal_error* error);

/* Starts a run and returns. Until anneal_context_wait() every call with the context fails, except
 * anneal_context_is_done() and anneal_context_free(). inputs_read(argument) is called once,
 * from any thread, when the inputs may be written again; it must not call this interface. It may be
 * null. It is not called if the function fails. */
anneal_code anneal_context_enqueue(anneal_context* context, anneal_stream* stream,
                                   void (*inputs_read)(void* argument), void* argument,
                                   anneal_error* error);
/* Waits until the run has ended and returns its error. Without a run it returns at once. */
anneal_code anneal_context_wait(anneal_context* context, anneal_error* error);
/* *done is 1 if anneal_context_wait() would not wait, else 0. */
anneal_code anneal_context_is_done(const anneal_context* context, int32_t* done,
                                   anneal_error* error);

typedef struct {
  uint64_t size;             /* sizeof(anneal_step_time) */
  const char *step, *kernel; /* valid until the next profile of the context */
  double microseconds;
  int64_t times;    /* how often it ran */
} anneal_step_time; /* the time of one step of a run */
/* As anneal_context_run(), and writes the times of the first `capacity` steps. *count is the number
 * of all steps. times may be null if capacity is 0. All structs have the size of the first. */
anneal_code anneal_context_profile(anneal_context* context, anneal_step_time* times,
                                   int32_t capacity, int32_t* count, anneal_error* error);

typedef struct {
  uint64_t size;         /* sizeof(anneal_context_info) */
  uint64_t memory_bytes; /* all memory of the context */
  /* One sentence for each sequence of steps that the GPU's driver could not capture as a CUDA
   * graph, and for each port that is copied through the host. Valid until the next run. */
  int32_t run_warning_count;
  const char* const* run_warnings;
} anneal_context_info;
anneal_code anneal_context_get_info(anneal_context* context, anneal_context_info* info,
                                    anneal_error* error);

#ifdef __cplusplus
}
#endif

#endif
