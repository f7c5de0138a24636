/* A program of interface 1, as an application may have been compiled years ago. It uses every
 * struct and every function, and checks that the library writes nothing behind a struct.
 *
 *   client_v1 glyphs.engine
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_api_v1.h"

#define CANARY 0x5a5a5a5a5a5a5a5aull

/* A struct of the interface with its size set, and what must not change behind it. */
#define GUARDED(type, name)       \
  struct {                        \
    type it;                      \
    uint64_t canary[16];          \
  } name;                         \
  memset(&name, 0, sizeof(name)); \
  name.it.size = sizeof(type);    \
  for (int c = 0; c < 16; ++c) name.canary[c] = CANARY

#define CHECK_CANARY(name)                                                                      \
  for (int c = 0; c < 16; ++c) check(name.canary[c] == CANARY, #name " was written behind its " \
                                                                     "end")

static void check(int ok, const char* what) {
  if (ok) return;
  printf("FAILED: %s\n", what);
  exit(1);
}

static void inputs_read(void* count) { ++*(int*)count; }
static void released(void* count) { ++*(int*)count; }

static void* read_file(const char* path, uint64_t* size) {
  FILE* file = fopen(path, "rb");
  check(file != NULL, "the engine file opens");
  fseek(file, 0, SEEK_END);
  *size = (uint64_t)ftell(file);
  rewind(file);
  void* bytes = malloc(*size);
  check(fread(bytes, 1, *size, file) == *size, "the engine file is read");
  fclose(file);
  return bytes;
}

int main(int argc, char** argv) {
  check(argc == 2, "the engine is named");
  GUARDED(anneal_error, error);
  GUARDED(anneal_engine_options, engine_options);
  GUARDED(anneal_engine_info, engine_info);
  GUARDED(anneal_tensor_info, input_info);
  GUARDED(anneal_tensor_info, output_info);
  GUARDED(anneal_context_options, context_options);
  GUARDED(anneal_context_info, context_info);
  GUARDED(anneal_tensor, input);
  GUARDED(anneal_tensor, output);
  static float image[2 * 32 * 32];
  for (int i = 0; i < 2 * 32 * 32; ++i) image[i] = 0.5f;

  anneal_engine* engine = NULL;
  anneal_context* context = NULL;
  anneal_stream* stream = NULL;
  check(anneal_engine_load("no such file", NULL, &engine, &error.it) == ANNEAL_IO, "kIo");
  check(error.it.code == ANNEAL_IO && strlen(error.it.message) > 5, "the error is filled");
  engine_options.it.device = "cpu";
  engine_options.it.threads = 1;
#define OK(call) check((call) == ANNEAL_OK, error.it.message)
  OK(anneal_engine_load(argv[1], &engine_options.it, &engine, &error.it));
  anneal_engine_free(engine);
  uint64_t size = 0;
  void* bytes = read_file(argv[1], &size);
  int releases = 0;
  OK(anneal_engine_load_memory(bytes, size, released, &releases, NULL, &engine, &error.it));
  OK(anneal_engine_get_info(engine, &engine_info.it, &error.it));
  check(engine_info.it.input_count == 1 && engine_info.it.output_count == 1, "counts");
  check(engine_info.it.device[0] != 0, "the device has a name");
  OK(anneal_engine_get_input(engine, 0, &input_info.it, &error.it));
  OK(anneal_engine_get_output(engine, 0, &output_info.it, &error.it));
  check(strcmp(input_info.it.name, "image") == 0 && input_info.it.rank == 4, "the input");
  check(strcmp(output_info.it.name, "scores") == 0, "the output");
  check(input_info.it.default_data == NULL, "no default value");
  check(anneal_engine_get_input(engine, 1, &input_info.it, &error.it) == ANNEAL_INVALID_ARGUMENT,
        "an index out of range");

  context_options.it.threads = 1;
  OK(anneal_context_make(engine, &context_options.it, &context, &error.it));
  input.it.dtype = ANNEAL_F32;
  input.it.rank = 4;
  const int64_t dims[4] = {2, 1, 32, 32};
  memcpy(input.it.dims, dims, sizeof(dims));
  input.it.data = image;
  anneal_input_shape shapes[1] = {{sizeof(shapes[0]), "image", 4, {2, 1, 32, 32}}};
  OK(anneal_context_prepare(context, shapes, 1, &error.it));
  OK(anneal_context_set_input(context, "image", &input.it, &error.it));
  OK(anneal_context_run(context, &error.it));
  OK(anneal_context_output(context, "scores", &output.it, &error.it));
  check(output.it.dims[0] == 2 && output.it.dims[1] == 47 && output.it.strides[1] == 1, "scores");
  for (int i = 0; i < 47; ++i) printf("%g\n", ((const float*)output.it.data)[i]);

  static float scores[2 * 47];
  output.it.data = scores;
  OK(anneal_context_set_output(context, "scores", &output.it, &error.it));
  OK(anneal_stream_make("cpu", &stream, &error.it));
  int read = 0;
  int32_t done = 0;
  OK(anneal_context_enqueue(context, stream, inputs_read, &read, &error.it));
  OK(anneal_stream_wait(stream, &error.it));
  OK(anneal_context_is_done(context, &done, &error.it));
  OK(anneal_context_wait(context, &error.it));
  check(read == 1 && done == 1 && scores[46] != 0, "the enqueued run");
  anneal_stream_free(stream);
  OK(anneal_stream_from_cuda(NULL, &stream, &error.it));
  check(anneal_context_enqueue(context, stream, NULL, NULL, &error.it) == ANNEAL_UNSUPPORTED,
        "a CUstream on the CPU");
  anneal_stream_free(stream);

  anneal_step_time times[64];
  int32_t count = 0;
  times[0].size = sizeof(times[0]);
  memset(&times[3], 0x5a, sizeof(times[3]));
  OK(anneal_context_profile(context, times, 3, &count, &error.it));
  check(count > 3 && times[2].times == 1 && strlen(times[2].kernel) > 3, "times");
  check(times[3].size == CANARY, "no more times than there is room for");
  OK(anneal_context_get_info(context, &context_info.it, &error.it));
  check(context_info.it.memory_bytes > 0 && context_info.it.run_warning_count == 0, "info");
  input.it.dims[0] = 0x7fffffffff;
  check(anneal_context_set_input(context, "image", &input.it, &error.it) != ANNEAL_OK, "too large");
  check(strcmp(error.it.port, "image") == 0 && error.it.dims[0] == 0x7fffffffff, "fields");
  OK(anneal_context_set_input(context, "image", NULL, &error.it));
  check(anneal_context_run(context, &error.it) == ANNEAL_INVALID_ARGUMENT, "no input");
  anneal_context_free(context);
  anneal_engine_free(engine);
  check(releases == 1, "the bytes are released once");
  free(bytes);
  check(strlen(anneal_version()) > 2, "a version");
  CHECK_CANARY(error);
  CHECK_CANARY(engine_options);
  CHECK_CANARY(engine_info);
  CHECK_CANARY(input_info);
  CHECK_CANARY(output_info);
  CHECK_CANARY(context_options);
  CHECK_CANARY(context_info);
  CHECK_CANARY(input);
  CHECK_CANARY(output);
  return 0;
}
