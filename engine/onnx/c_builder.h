/* The C interface to building engines, in libbuilder. Conventions are those of
 * engine/run/c_api.h: functions return ANNEAL_OK or a code and fill *error, structs begin with
 * their size, and options that the caller's struct lacks, or that are 0, have their default. */
#ifndef ANNEAL_ENGINE_ONNX_C_BUILDER_H_
#define ANNEAL_ENGINE_ONNX_C_BUILDER_H_

#include <stdint.h>

#include "anneal/engine/run/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sizes that an input may have: smallest, to optimize for, largest. All 0: not given. */
typedef struct {
  uint64_t size;    /* sizeof(anneal_input_range) */
  const char* name; /* null or "": the only input */
  int32_t rank;
  int64_t min[ANNEAL_MAX_RANK], opt[ANNEAL_MAX_RANK], max[ANNEAL_MAX_RANK];
} anneal_input_range;

/* Writes sample `index` for one input into memory->data, which is dense and row-major, of the
 * input's type and dims: the batch is 1 where it is open, other open sizes are `opt` of the range.
 * A result other than 0 ends the build with ANNEAL_INVALID_ARGUMENT. One thread calls at a time. A
 * sample may be read several times and must be the same each time. */
typedef int32_t (*anneal_read_sample)(void* argument, int64_t index, const char* input,
                                      const anneal_tensor* memory);
/* share: 0 to 1, an estimate. A result other than 0 cancels: the build fails with
 * ANNEAL_CANCELLED and writes nothing. */
typedef int32_t (*anneal_progress)(void* argument, const char* what, double share);

typedef struct {
  uint64_t size; /* sizeof(anneal_build_options) */
  /* "cpu", "cpu:avx2", "sm_90", separated by commas; null: "cpu" */
  const char* targets;
  /* Not 0: this precision is allowed beside the model's own. int8 needs samples. */
  int32_t fp16, bf16, int8;
  int32_t symmetric;                /* not 0: int8 with zero points of 0 */
  const anneal_input_range* ranges; /* of inputs with open sizes: range_count ranges */
  int32_t range_count;
  int32_t exact;        /* not 0: leave out what may change the last bits of results */
  int64_t sample_count; /* to calibrate with; 0: none */
  anneal_read_sample read_sample;
  void* sample_argument;
  uint64_t max_memory; /* of weights and activations in a run, in bytes; 0: no limit */
  int32_t threads;     /* that the engine will run with; 0: one per core */
  int32_t no_fallback; /* not 0: fail if layers would run on the CPU though the target is a GPU */
  anneal_progress progress;
  void* progress_argument;
} anneal_build_options;

/* Builds an engine file from an ONNX file; options may be null. The file is written whole or not at
 * all. */
anneal_code anneal_build(const char* onnx_path, const char* engine_path,
                         const anneal_build_options* options, anneal_error* error);
/* The same in memory, for anneal_engine_load_memory(). *engine is freed by anneal_build_free(). */
anneal_code anneal_build_memory(const void* onnx, uint64_t onnx_bytes,
                                const anneal_build_options* options, void** engine,
                                uint64_t* engine_bytes, anneal_error* error);
void anneal_build_free(void* engine); /* null is allowed */

#ifdef __cplusplus
}
#endif

#endif
