#include <anneal/engine/run/c_api.h>
#include <stdio.h>

static void inputs_read(void* what) { printf("%s may be written again\n", (const char*)what); }
static float image[32 * 32];
int main(void) {
  anneal_engine* engine = NULL;
  anneal_context* context = NULL;
  anneal_stream* stream = NULL;
  anneal_error error = {.size = sizeof(error)};
  anneal_tensor input = {.size = sizeof(input), .dtype = ANNEAL_F32, .rank = 4,
                         .dims = {1, 1, 32, 32}, .data = image};
  anneal_tensor scores = {.size = sizeof(scores)};
  if (anneal_engine_load("glyphs.engine", NULL, &engine, &error) ||
      anneal_context_make(engine, NULL, &context, &error) ||
      anneal_stream_make("cpu", &stream, &error) ||
      anneal_context_set_input(context, "image", &input, &error) ||
      anneal_context_enqueue(context, stream, inputs_read, "image", &error) ||
      anneal_context_wait(context, &error) || /* other work goes before this line */
      anneal_context_output(context, "scores", &scores, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  printf("%d scores\n", (int)scores.dims[1]);
  anneal_stream_free(stream), anneal_context_free(context), anneal_engine_free(engine);
}
