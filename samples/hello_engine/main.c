#include <stdio.h>

#include <anneal/engine/run/c_api.h>

int main(void) {
  anneal_engine* engine = NULL;
  anneal_context* context = NULL;
  anneal_error error = {.size = sizeof(error)};
  static float image[32 * 32];
  for (int i = 0; i < 32 * 32; ++i) image[i] = 0.5f;
  anneal_tensor input = {.size = sizeof(input), .dtype = ANNEAL_F32, .rank = 4,
                         .dims = {1, 1, 32, 32}, .data = image};
  anneal_tensor scores = {.size = sizeof(scores)};
  if (anneal_engine_load("glyphs.engine", NULL, &engine, &error) ||
      anneal_context_make(engine, NULL, &context, &error) ||
      anneal_context_set_input(context, "image", &input, &error) ||
      anneal_context_run(context, &error) ||
      anneal_context_output(context, "scores", &scores, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  for (int64_t i = 0; i < scores.dims[1]; ++i) printf("%g\n", ((const float*)scores.data)[i]);
  anneal_context_free(context);
  anneal_engine_free(engine);
}
