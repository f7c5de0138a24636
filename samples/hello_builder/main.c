/* Builds an engine in 8 bits, calibrated with samples: hello_builder_c MODEL.onnx MODEL.engine */
#include <anneal/engine/onnx/c_builder.h>
#include <stdio.h>

static int32_t read_stripes(void* unused, int64_t i, const char* input, const anneal_tensor* memory) {
  (void)unused, (void)input; /* the model has one input */
  for (int64_t k = 0; k < 32 * 32; ++k) ((float*)memory->data)[k] = (k / (1 + i)) % 2 == 0;
  return 0;
}

int main(int argc, char** argv) {
  const anneal_build_options options = {
      .size = sizeof(options), .int8 = 1, .sample_count = 8, .read_sample = read_stripes};
  anneal_error error = {.size = sizeof(error)};
  if (argc != 3 || anneal_build(argv[1], argv[2], &options, &error) != ANNEAL_OK) {
    fprintf(stderr, "%s\n", argc != 3 ? "usage: hello_builder_c MODEL.onnx ENGINE" : error.message);
    return 1;
  }
  return 0;
}
