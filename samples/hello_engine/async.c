#include <anneal/engine/run/c_api.h>
#include <stdio.h>

static void inputs_read(void* flag) { *(int*)flag = 1; } /* the image may be written again */
static float image[32 * 32];
static int is_read;
int main(void) {
  anneal_engine* engine = NULL;
  anneal_context* context = NULL;
  anneal_stream* stream = NULL;
  anneal_error error = {sizeof(error)};
  anneal_tensor input = {sizeof(input), ANNEAL_F32, 4, {1, 1, 32, 32}, image};
  anneal_tensor scores = {sizeof(scores)};
  if (anneal_engine_load("glyphs.engine", NULL, &engine, &error) ||
      anneal_context_make(engine, NULL, &context, &error) ||
      anneal_stream_make("cpu", &stream, &error) ||
      anneal_context_set_input(context, "image", &input, &error) ||
      anneal_context_enqueue(context, stream, inputs_read, &is_read, &error) ||
      anneal_context_wait(context, &error) || /* other work goes before this line */
      anneal_context_output(context, "scores", &scores, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  printf("%d scores, image read: %d\n", (int)scores.dims[1], is_read);
  anneal_stream_free(stream), anneal_context_free(context), anneal_engine_free(engine);
}
