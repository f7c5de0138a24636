#include <stdio.h>
#include <string.h>

#include <anneal/engine/run/c_api.h>

int main(void) {
  anneal_engine* engine = NULL;
  anneal_context* context = NULL;
  anneal_error error = {.size = sizeof(error)};
  static float images[9 * 32 * 32]; /* the engine was built for 8 at most */
  anneal_tensor input = {.size = sizeof(input), .dtype = ANNEAL_F32, .rank = 4,
                         .dims = {9, 1, 32, 32}, .data = images};
  if (anneal_engine_load("glyphs.engine", NULL, &engine, &error) ||
      anneal_context_make(engine, NULL, &context, &error) ||
      anneal_context_set_input(context, "image", &input, &error))
    printf("code %d: %s\n", (int)error.code, error.message);
  if (error.code == ANNEAL_INVALID_ARGUMENT && strcmp(error.port, "image") == 0)
    printf("a batch of %d does not fit\n", (int)error.dims[0]);
  anneal_context_free(context), anneal_engine_free(engine);
}
