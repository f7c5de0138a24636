/* The C interface to building engines, in libbuilder. Conventions are those of
 * engine/run/c_api.h: functions return ANNEAL_OK or a code and fill *error, structs begin with
 * their size, and options that are 0, or that the caller's struct lacks, have their default. */
#ifndef ANNEAL_ENGINE_ONNX_C_BUILDER_H_
#define ANNEAL_ENGINE_ONNX_C_BUILDER_H_

#include <stdint.h>

#include "anneal/engine/run/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sizes of an input: smallest, to optimize for, largest. All 0: not given. */
typedef struct {
  uint64_t size;    /* sizeof(anneal_input_range) */
  const char* name; /* null or "": the only input */
  int32_t rank;
  int64_t min[ANNEAL_MAX_RANK], opt[ANNEAL_MAX_RANK], max[ANNEAL_MAX_RANK];
  int64_t profile; /* that it belongs to, an index from 0 on */
} anneal_input_range;

/* Writes sample `index` for one input into memory->data, which is dense and row-major, of the
 * input's type and dims: the batch is 1 where it is open, other open sizes are `opt` of the range.
 * A result other than 0 ends the build with ANNEAL_INVALID_ARGUMENT. One thread calls at a time. A
 * sample may be read several times and must be the same each time. */
typedef int32_t (*anneal_read_sample)(void* argument, int64_t index, const char* input,
                                      const anneal_tensor* memory);
/* what: the current step; share: 0 to 1, estimated. A result other than 0 cancels: the build fails
 * with ANNEAL_CANCELLED and writes nothing. */
typedef int32_t (*anneal_progress)(void* argument, const char* what, double share);

typedef struct {
  uint64_t size;       /* sizeof(anneal_build_options) */
  const char* targets; /* "cpu", "cpu:avx2", "sm_90", separated by commas; null: "cpu" */
  /* Not 0: layers may use this precision if it is accurate enough. int8 needs samples. */
  int32_t fp16, bf16, int8;
  int32_t symmetric;                /* not 0: int8 with zero points of 0 */
  const anneal_input_range* ranges; /* of inputs with open sizes: range_count ranges */
  int32_t range_count;
  int32_t exact;        /* not 0: skip what may change the last bits of results */
  int64_t sample_count; /* to calibrate with; 0: none */
  anneal_read_sample read_sample;
  void* sample_argument;
  uint64_t max_memory; /* of weights and activations in a run, in bytes; 0: no limit */
  int32_t threads;     /* of one inference while building; 0: one per core */
  int32_t no_fallback; /* not 0: fail if a layer of a GPU target would run on the CPU */
  anneal_progress progress;
  void* progress_argument;
  const char* const* libraries; /* as in anneal_engine_options */
  uint64_t library_count;
  anneal_log log; /* each step of the build, and warnings */
  void* log_argument;
  int64_t best;               /* not 0: allow as well what all targets compute faster than f32 */
  const char* weights;        /* a file for the weights, which the engine then does not hold */
  const char* weight_format;  /* "int8", "int4", "int4:64"; null: as in the model */
  const char* states;         /* BuildOptions::states: "past.*=present.*,h=next_h"; null: none */
  int64_t time_kernels;       /* not 0: measured times choose kernels */
  const char* timing_cache;   /* a file of times to use and to extend; null: none */
  int64_t optimization_level; /* 1 (few tactics are timed) to 5 (all); 0: 3 */
} anneal_build_options;

/* Builds an engine file from an ONNX file; options may be null. The file is written whole. */
anneal_code anneal_build(const char* onnx_path, const char* engine_path,
                         const anneal_build_options* options, anneal_error* error);
/* The same in memory, for anneal_engine_load_memory(). *engine is freed by anneal_build_free(). */
anneal_code anneal_build_memory(const void* onnx, uint64_t onnx_bytes,
                                const anneal_build_options* options, void** engine,
                                uint64_t* engine_bytes, anneal_error* error);
void anneal_build_free(void* engine); /* null is allowed */

/* An engine with the weights of another model of its topology, as refit_engine() in onnx_builder.h.
 * The output may be the engine; null: only options->weights is written. */
anneal_code anneal_refit(const char* engine_path, const char* onnx_path, const char* output_path,
                         const anneal_build_options* options, anneal_error* error);

#ifdef __cplusplus
}
#endif

#endif
