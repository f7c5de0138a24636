/* SoftClip of the domain "sample", y = x / (1 + slope * |x|), on the CPU and on GPUs. */
#include <anneal/engine/run/library/c_kernels.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { float slope; char cuda[512]; } soft_clip; /* the state of a node */
typedef struct { const float* x; float* y; float slope; } job;

static int64_t count(const anneal_tensor* tensor) {
  int64_t elements = 1;
  for (int32_t i = 0; i < tensor->rank; ++i) elements *= tensor->dims[i];
  return elements;
}
static anneal_code infer(const anneal_node* node, anneal_error* error) {
  if (node->input_count != 1 || node->output_count != 1 || node->inputs[0].dtype != ANNEAL_F32) {
    snprintf(error->message, sizeof error->message, "it takes and gives one tensor of f32");
    return ANNEAL_UNSUPPORTED;
  }
  node->outputs[0] = node->inputs[0]; /* the same type and sizes, known or open */
  return ANNEAL_OK;
}
static anneal_code create(const anneal_node* node, void** state, anneal_error* error) {
  soft_clip* self = *state = malloc(sizeof *self);
  if (!self) return error->code = ANNEAL_OUT_OF_MEMORY;
  self->slope = anneal_float_named(node, "slope", 1);
  snprintf(self->cuda, sizeof self->cuda,
           "KERNEL($name, 256)(In<f32> x, Out<f32> y, i64 count) {\n"
           "  const i64 i = i64(blockIdx.x) * 256 + threadIdx.x;\n"
           "  if (i < count) y[i] = x[i] / (1.0f + %.9ef * (x[i] < 0.0f ? -x[i] : x[i]));\n"
           "}\n", self->slope);
  return ANNEAL_OK;
}
static void part(void* argument, int64_t begin, int64_t end, int32_t thread) {
  const job* all = argument;
  for (int64_t i = begin; i < end; ++i)
    all->y[i] = all->x[i] / (1 + all->slope * fabsf(all->x[i]));
}
static anneal_code run(void* self, const anneal_node* node, const anneal_run* run,
                       anneal_error* error) {
  job all = {node->inputs[0].data, node->outputs[0].data, ((soft_clip*)self)->slope};
  run->parallel_for(run->team, count(node->inputs), 4096, part, &all);
  return ANNEAL_OK;
}
static const char* source(void* self, const anneal_node* node) { return ((soft_clip*)self)->cuda; }
static anneal_code launch(void* self, const anneal_node* node, anneal_launch* launch,
                          anneal_error* error) {
  launch->values[0] = count(node->inputs), launch->value_count = 1;
  launch->grid[0] = (uint32_t)((launch->values[0] + 255) / 256), launch->block[0] = 256;
  return ANNEAL_OK;
}
static const anneal_kernel kernels[] = {{
    .size = sizeof kernels[0], .domain = "sample", .op = "SoftClip", .version = 1,
    .flags = ANNEAL_KERNEL_PURE, .row_inputs = 1, .infer = infer, .create = create,
    .destroy = free, .run = run, .cuda_source = source, .cuda_launch = launch}};
static const anneal_kernels library = {
    .size = sizeof library, .name = "soft_clip", .kernels = kernels, .count = 1};
const anneal_kernels* anneal_kernel_library(int32_t version) {
  return version == ANNEAL_KERNELS_VERSION ? &library : NULL;
}
