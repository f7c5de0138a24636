#include <stdio.h>

#include <anneal/engine/run/c_api.h>

int main(void) {
  anneal_engine* engine = NULL;
  anneal_context* context = NULL;
  anneal_error error;
  static float image[32 * 32];
  for (int i = 0; i < 32 * 32; ++i) image[i] = 0.5f;
  const anneal_tensor input = {.dtype = ANNEAL_F32,
                               .rank = 4,
                               .dims = {1, 1, 32, 32},
                               .strides = {1024, 1024, 32, 1},
                               .data = image};
  anneal_tensor scores;
  if (anneal_engine_load("glyphs.engine", NULL, &engine, &error) != ANNEAL_OK ||
      anneal_context_make(engine, NULL, &context, &error) != ANNEAL_OK ||
      anneal_context_set_input(context, "image", &input, &error) != ANNEAL_OK ||
      anneal_context_run(context, &error) != ANNEAL_OK ||
      anneal_context_output(context, "scores", &scores, &error) != ANNEAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  for (int64_t i = 0; i < scores.dims[1]; ++i) printf("%g\n", ((const float*)scores.data)[i]);
  anneal_context_free(context);
  anneal_engine_free(engine);
  return 0;
}
