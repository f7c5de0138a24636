// A library of kernels as it was compiled with the frozen header: y = 2 x.
#include "anneal/tests/abi/c_kernels_v1.h"

namespace {

int64_t elements(const anneal_tensor& tensor) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor.rank; ++axis) count *= tensor.dims[axis];
  return count;
}

anneal_code infer_double(const anneal_node* node, anneal_error*) {
  node->outputs[0] = node->inputs[0];
  return ANNEAL_OK;
}

anneal_code run_double(void*, const anneal_node* node, const anneal_run*, anneal_error*) {
  const auto* x = static_cast<const float*>(node->inputs[0].data);
  auto* y = static_cast<float*>(node->outputs[0].data);
  for (int64_t i = 0; i < elements(node->inputs[0]); ++i) y[i] = 2 * x[i];
  return ANNEAL_OK;
}

const char* source_of_double(void*, const anneal_node*) {
  return "KERNEL($name, 64)(In<f32> x, Out<f32> y, i64 count) {\n"
         "const i64 i = i64(blockIdx.x) * 64 + threadIdx.x;\n"
         "if (i < count) y[i] = 2 * x[i];\n"
         "}\n";
}

anneal_code launch_double(void*, const anneal_node* node, anneal_launch* launch, anneal_error*) {
  launch->values[0] = elements(node->inputs[0]);
  launch->value_count = 1;
  launch->grid[0] = static_cast<uint32_t>((launch->values[0] + 63) / 64);
  launch->block[0] = 64;
  return ANNEAL_OK;
}

const anneal_kernel kKernels[] = {{.size = sizeof(anneal_kernel),
                                   .domain = "frozen",
                                   .op = "Double",
                                   .since = 1,
                                   .version = 1,
                                   .flags = ANNEAL_KERNEL_PURE,
                                   .row_inputs = 1,
                                   .infer = infer_double,
                                   .create = nullptr,
                                   .destroy = nullptr,
                                   .prepare = nullptr,
                                   .run = run_double,
                                   .cuda_source = source_of_double,
                                   .cuda_launch = launch_double}};
const anneal_kernels kTable = {sizeof(anneal_kernels), "frozen_kernels", kKernels, 1, 0};

}  // namespace

extern "C" __attribute__((visibility("default"))) const anneal_kernels* anneal_kernel_library(
    int32_t version) {
  return version == ANNEAL_KERNELS_VERSION ? &kTable : nullptr;
}
