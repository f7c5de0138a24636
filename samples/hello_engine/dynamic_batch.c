#include <stdio.h>

#include <anneal/engine/run/c_api.h>

int main(void) {
  anneal_engine* engine = NULL;
  anneal_context* context = NULL;
  anneal_error error = {.size = sizeof(error)};
  static float images[8 * 32 * 32];
  if (anneal_engine_load("glyphs.engine", NULL, &engine, &error) ||
      anneal_context_make(engine, NULL, &context, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  for (int64_t batch = 1; batch <= 8; batch = batch == 1 ? 4 : batch + 4) {
    anneal_tensor input = {.size = sizeof(input), .dtype = ANNEAL_F32, .rank = 4,
                           .dims = {batch, 1, 32, 32}, .data = images};
    anneal_tensor scores = {.size = sizeof(scores)};
    if (anneal_context_set_input(context, "image", &input, &error) ||
        anneal_context_run(context, &error) ||
        anneal_context_output(context, "scores", &scores, &error))
      return fprintf(stderr, "%s\n", error.message), 1;
    printf("[%d,%d]\n", (int)scores.dims[0], (int)scores.dims[1]);
  }
  anneal_context_free(context), anneal_engine_free(engine);
}
