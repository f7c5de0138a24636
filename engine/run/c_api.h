/* The C interface to loading and running engines. It is stable: a program that is linked with it
 * runs with every later libengine of the same SONAME.
 *
 * Functions that can fail return 0 or an anneal_code, and on failure fill *error if error is not
 * null. They check all their arguments: a null object, an index out of range or an unknown name is
 * ANNEAL_INVALID_ARGUMENT. Strings are UTF-8 and belong to the object that gave them. Any number of
 * threads may use an anneal_engine or an anneal_stream at once; one thread at a time may use an
 * anneal_context.
 *
 * Every struct begins with its size, which the caller sets: `anneal_error e = {.size =
 * sizeof(e)};`. So structs can get more fields, and programs of older headers still work. Fields
 * that a program's struct lacks count as 0, and are not written. 0 is the default of every option,
 * so a struct with nothing but its size means the same as a null pointer. */
#ifndef ANNEAL_ENGINE_RUN_C_API_H_
#define ANNEAL_ENGINE_RUN_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ANNEAL_MAX_RANK = 8, ANNEAL_NAME_TEXT = 256, ANNEAL_ERROR_TEXT = 1024 };

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
} anneal_code;

typedef struct {
  uint64_t size; /* sizeof(anneal_error); 0: nothing is written */
  anneal_code code;
  int32_t rank; /* of dims: the shape that was given, where an error is about one; else 0 */
  int64_t dims[ANNEAL_MAX_RANK];
  char port[ANNEAL_NAME_TEXT];     /* the input or output that the error is about, or "" */
  char message[ANNEAL_ERROR_TEXT]; /* one sentence; longer texts are cut off */
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

/* Where memory is. Engines take and give host memory, and refuse memory of GPUs. */
typedef enum {
  ANNEAL_HOST = 0,
  ANNEAL_PINNED_HOST = 1,
  ANNEAL_CUDA = 2,
} anneal_memory_kind;

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
  int64_t dims[ANNEAL_MAX_RANK];     /* -1: a size that is open until inputs are set */
  int64_t min_dims[ANNEAL_MAX_RANK]; /* the allowed range; equal to dims where they are known */
  int64_t max_dims[ANNEAL_MAX_RANK];
  const char* dim_names[ANNEAL_MAX_RANK]; /* "N", "3", "(H + 1)//2" */
  /* The value of an input that may be left unset, dense and read-only; null: it must be set. */
  const void* default_data;
  int64_t default_dims[ANNEAL_MAX_RANK];
} anneal_tensor_info;

/* The shape of an input, by name. */
typedef struct {
  uint64_t size; /* sizeof(anneal_input_shape) */
  const char* name;
  int32_t rank;
  int64_t dims[ANNEAL_MAX_RANK];
} anneal_input_shape;

typedef struct anneal_engine anneal_engine;
typedef struct anneal_context anneal_context;
typedef struct anneal_stream anneal_stream;

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
/* An engine file in memory. The engine reads its weights in place, and calls release(argument) when
 * it and all its contexts are freed; the bytes must stay unchanged until then. The engine copies
 * the bytes first if release is null, or if they are not aligned to 64 bytes; then, and on failure,
 * release is called before the function returns. */
anneal_code anneal_engine_load_memory(const void* bytes, uint64_t byte_count,
                                      void (*release)(void* argument), void* argument,
                                      const anneal_engine_options* options, anneal_engine** engine,
                                      anneal_error* error);
/* Contexts made of it stay valid. Null is allowed. */
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
  int32_t threads;          /* most threads of one run, the caller's included; 0: one per core */
  int32_t spin;             /* not 0: waiting for a GPU keeps a core busy and ends sooner */
  uint64_t max_memory;      /* most bytes of the context on all devices; 0: no limit */
  int64_t micro_batch;      /* rows of a batch to run at a time; 0: the context chooses */
  int32_t shape_cache_size; /* input shapes for which the context keeps its preparation; 0: 8 */
  int32_t no_prewarm;       /* not 0: nothing is prepared for the shapes declared at build */
} anneal_context_options;

anneal_code anneal_context_make(const anneal_engine* engine, const anneal_context_options* options,
                                anneal_context** context, anneal_error* error);
void anneal_context_free(anneal_context* context); /* waits for its run; null is allowed */
/* The caller keeps the memory valid until the last run that reads it. Any strides. Null memory: as
 * if the input had never been set. */
anneal_code anneal_context_set_input(anneal_context* context, const char* name,
                                     const anneal_tensor* memory, anneal_error* error);
/* Optional. All inputs without a default value must be set before. */
anneal_code anneal_context_set_output(anneal_context* context, const char* name,
                                      const anneal_tensor* memory, anneal_error* error);
/* Prepares a run at these shapes. An input that is not named keeps the shape that was set last,
 * else that of its default value, else its only one. Invalidates the outputs of the last run. The
 * first struct's size is that of all. */
anneal_code anneal_context_prepare(anneal_context* context, const anneal_input_shape* inputs,
                                   int32_t count, anneal_error* error);
anneal_code anneal_context_run(anneal_context* context, anneal_error* error);
/* After a run: the memory that was set, or the context's, dense and row-major, valid until the next
 * run, profile, prepare or set. */
anneal_code anneal_context_output(const anneal_context* context, const char* name,
                                  anneal_tensor* output, anneal_error* error);

/* Runs on one stream happen in order, runs on different streams overlap. device: "cpu" (or null)
 * for engines of every device; "cuda", "cuda:1", "emulated" for engines of that GPU. */
anneal_code anneal_stream_make(const char* device, anneal_stream** stream, anneal_error* error);
/* A CUstream of the application, which must outlive the stream; null: the legacy default one. Never
 * run on a real GPU yet. */
anneal_code anneal_stream_from_cuda(void* custream, anneal_stream** stream, anneal_error* error);
/* Until all runs on it have ended. anneal_context_wait() reports their errors. */
anneal_code anneal_stream_wait(anneal_stream* stream, anneal_error* error);
void anneal_stream_free(anneal_stream* stream); /* waits for its runs; null is allowed */

/* Begins a run and returns. Until anneal_context_wait() every other call with the context fails,
 * but for anneal_context_is_done() and anneal_context_free(). inputs_read(argument) is called once,
 * from any thread, when the inputs may be written again; it must not call this interface. It may be
 * null. It is not called if the function fails. */
anneal_code anneal_context_enqueue(anneal_context* context, anneal_stream* stream,
                                   void (*inputs_read)(void* argument), void* argument,
                                   anneal_error* error);
/* Until the run has ended; returns its error. Without a run it returns at once. */
anneal_code anneal_context_wait(anneal_context* context, anneal_error* error);
/* *done is 1 if anneal_context_wait() would not wait, else 0. */
anneal_code anneal_context_is_done(const anneal_context* context, int32_t* done,
                                   anneal_error* error);

/* The time of one step of a run. */
typedef struct {
  uint64_t size;             /* sizeof(anneal_step_time) */
  const char *step, *kernel; /* valid until the next profile of the context */
  double microseconds;
  int64_t times; /* how often it ran */
} anneal_step_time;
/* Runs as anneal_context_run() does, and gives the times of the first `capacity` steps. *count is
 * the number of all steps. times may be null if capacity is 0. The first struct's size is that of
 * all. */
anneal_code anneal_context_profile(anneal_context* context, anneal_step_time* times,
                                   int32_t capacity, int32_t* count, anneal_error* error);

typedef struct {
  uint64_t size;         /* sizeof(anneal_context_info) */
  uint64_t memory_bytes; /* of everything that the context holds */
  /* One sentence for each unbroken run of steps that a GPU's driver did not capture as a graph.
   * Valid until the next run. */
  int32_t run_warning_count;
  const char* const* run_warnings;
} anneal_context_info;
anneal_code anneal_context_get_info(anneal_context* context, anneal_context_info* info,
                                    anneal_error* error);

#ifdef __cplusplus
}
#endif

#endif
