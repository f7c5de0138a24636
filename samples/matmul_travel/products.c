/* Two kernels of one matrix product for GPUs, of the domain "sample": NaiveMatMul gives each thread
 * an element and reads global memory alone; TiledMatMul shares tiles of 32 x 32 within a block. */
#include <anneal/engine/run/library/c_kernels.h>
#include <stdio.h>

/* TYPE: of the elements; READ makes an f32 of one, WRITE one of an f32. */
#define NAIVE(TYPE, READ, WRITE)                                 \
  "KERNEL($name, 256)(In<" TYPE "> a, In<" TYPE "> b, Out<" TYPE \
  "> c, i64 n) {\n"                                              \
  "  const i64 row = i64(blockIdx.y) * 8 + threadIdx.y;\n"       \
  "  const i64 column = i64(blockIdx.x) * 32 + threadIdx.x;\n"   \
  "  if (row >= n || column >= n) return;\n"                     \
  "  f32 sum = 0;\n"                                             \
  "  for (i64 k = 0; k < n; ++k) {\n"                            \
  "    const f32 left = " READ                                   \
  "(a[row * n + k]);\n"                                          \
  "    const f32 right = " READ                                  \
  "(b[k * n + column]);\n"                                       \
  "    sum = fmaf(left, right, sum);\n"                          \
  "  }\n"                                                        \
  "  c[row * n + column] = " WRITE                               \
  "(sum);\n"                                                     \
  "}\n"

#define TILED(TYPE, READ, WRITE)                                                     \
  "KERNEL($name, 1024)(In<" TYPE "> a, In<" TYPE "> b, Out<" TYPE                    \
  "> c, i64 n) {\n"                                                                  \
  "  SHARED(f32, left, 1024);\n"                                                     \
  "  SHARED(f32, right, 1024);\n"                                                    \
  "  const i32 x = threadIdx.x, y = threadIdx.y;\n"                                  \
  "  const i64 row = i64(blockIdx.y) * 32 + y, column = i64(blockIdx.x) * 32 + x;\n" \
  "  f32 sum = 0;\n"                                                                 \
  "  for (i64 k = 0; k < n; k += 32) {\n"                                            \
  "    left[y * 32 + x] = row < n && k + x < n ? " READ                              \
  "(a[row * n + k + x]) : 0.0f;\n"                                                   \
  "    right[y * 32 + x] =\n"                                                        \
  "        k + y < n && column < n ? " READ                                          \
  "(b[(k + y) * n + column]) : 0.0f;\n"                                              \
  "    __syncthreads();\n"                                                           \
  "    for (i32 i = 0; i < 32; ++i) {\n"                                             \
  "      const f32 of_row = left[y * 32 + i];\n"                                     \
  "      const f32 of_column = right[i * 32 + x];\n"                                 \
  "      sum = fmaf(of_row, of_column, sum);\n"                                      \
  "    }\n"                                                                          \
  "    __syncthreads();\n"                                                           \
  "  }\n"                                                                            \
  "  if (row < n && column < n) c[row * n + column] = " WRITE                        \
  "(sum);\n"                                                                         \
  "}\n"

static anneal_code infer(const anneal_node* node, anneal_error* error) {
  if (node->input_count != 2 || node->output_count != 1 || node->inputs[0].rank != 2 ||
      node->inputs[1].rank != 2 || node->inputs[0].dtype != node->inputs[1].dtype ||
      (node->inputs[0].dtype != ANNEAL_F32 && node->inputs[0].dtype != ANNEAL_F16)) {
    snprintf(error->message, sizeof error->message, "it multiplies two matrices of f32 or f16");
    return ANNEAL_UNSUPPORTED;
  }
  for (int i = 0; i < 4; ++i)
    if (node->inputs[i / 2].dims[i % 2] != node->inputs[0].dims[0]) {
      snprintf(error->message, sizeof error->message, "both matrices are N x N");
      return ANNEAL_UNSUPPORTED;
    }
  node->outputs[0] = node->inputs[0];
  return ANNEAL_OK;
}
static anneal_code run(void* self, const anneal_node* node, const anneal_run* run,
                       anneal_error* error) {
  (void)self, (void)node, (void)run;
  snprintf(error->message, sizeof error->message, "this kernel is for GPUs alone");
  return ANNEAL_UNSUPPORTED;
}
static const char* naive_source(void* self, const anneal_node* node) {
  (void)self;
  return node->inputs[0].dtype == ANNEAL_F32 ? NAIVE("f32", "", "")
                                             : NAIVE("h16", "to_f32", "to_h16");
}
static const char* tiled_source(void* self, const anneal_node* node) {
  (void)self;
  return node->inputs[0].dtype == ANNEAL_F32 ? TILED("f32", "", "")
                                             : TILED("h16", "to_f32", "to_h16");
}
/* Blocks of 32 columns and `rows` rows, one thread for each element. */
static anneal_code launch_rows(const anneal_node* node, anneal_launch* launch, uint32_t rows) {
  const int64_t n = node->inputs[0].dims[0];
  launch->values[0] = n, launch->value_count = 1;
  launch->grid[0] = (uint32_t)((n + 31) / 32), launch->grid[1] = (uint32_t)((n + rows - 1) / rows);
  launch->block[0] = 32, launch->block[1] = rows;
  return ANNEAL_OK;
}
static anneal_code launch_naive(void* self, const anneal_node* node, anneal_launch* launch,
                                anneal_error* error) {
  (void)self, (void)error;
  return launch_rows(node, launch, 8);
}
static anneal_code launch_tiled(void* self, const anneal_node* node, anneal_launch* launch,
                                anneal_error* error) {
  (void)self, (void)error;
  return launch_rows(node, launch, 32);
}
static const anneal_kernel kernels[] = {{.size = sizeof kernels[0],
                                         .domain = "sample",
                                         .op = "NaiveMatMul",
                                         .version = 1,
                                         .infer = infer,
                                         .run = run,
                                         .cuda_source = naive_source,
                                         .cuda_launch = launch_naive},
                                        {.size = sizeof kernels[0],
                                         .domain = "sample",
                                         .op = "TiledMatMul",
                                         .version = 1,
                                         .infer = infer,
                                         .run = run,
                                         .cuda_source = tiled_source,
                                         .cuda_launch = launch_tiled}};
static const anneal_kernels library = {
    .size = sizeof library, .name = "products", .kernels = kernels, .count = 2};
const anneal_kernels* anneal_kernel_library(int32_t version) {
  return version == ANNEAL_KERNELS_VERSION ? &library : NULL;
}
