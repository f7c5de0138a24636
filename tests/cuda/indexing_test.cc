// Indices out of range: a gather reads the nearest position, a scatter leaves the update out. No
// access leaves its tensor.
#include <gtest/gtest.h>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

struct Beyond {
  const char* name;
  const char* kernel;
  Op op;
  std::vector<std::string> inputs;
  std::string output;
};
void PrintTo(const Beyond& beyond, std::ostream* out) { *out << beyond.name; }

TestLayer layer_of(const Beyond& beyond) {
  TestLayer layer{.op = beyond.op};
  for (const std::string& input : beyond.inputs) layer.inputs.emplace_back(tensor_from_text(input));
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  const Tensor output = tensor_from_text(beyond.output);
  layer.outputs = {type_of(output)};
  layer.output_dims = {output.dims()};
  return layer;
}

class ElementwiseIndices : public ::testing::TestWithParam<Beyond> {};

TEST_P(ElementwiseIndices, BeyondTheAxisStayWithinTheTensor) {
  const TestLayer layer = layer_of(GetParam());
  const auto device = cuda_backend().open(cuda::device_under_test());
  RunOptions options;
  options.is_exact = true;
  const RunResult got =
      run_layer(*find_kernel(cuda_backend(), GetParam().kernel), layer, *device, options);
  ASSERT_EQ(got.why_not, "");
  const Tensor wanted = tensor_from_text(GetParam().output);
  const auto problem = difference(got.outputs[0], wanted, default_tolerance(wanted.dtype()));
  EXPECT_FALSE(problem) << *problem;
}

INSTANTIATE_TEST_SUITE_P(
    Ops, ElementwiseIndices,
    ::testing::Values(
        Beyond{"gather",
               "cuda.gather.indexed",
               Gather{0},
               {"f32[3]={1,2,3}", "i64[6]={3,-4,-3,2,4000000000000000000,-4000000000000000000}"},
               "f32[6]={3,1,1,3,3,1}"},
        Beyond{"gather_elements",
               "cuda.gather_elements.indexed",
               GatherElements{1},
               {"i8[2,2]={1,2,3,4}", "i32[2,3]={2,-3,1,-2,-9,9}"},
               "i8[2,3]={2,1,2,3,3,4}"},
        Beyond{"gather_nd",
               "cuda.gather_nd.indexed",
               GatherND{},
               {"f32[2,2]={1,2,3,4}", "i64[3,2]={2,-3,0,7,-9,1}"},
               "f32[3]={3,2,2}"},
        Beyond{
            "scatter_elements",
            "cuda.scatter_elements.lines",
            ScatterElements{0, ScatterReduction::kAdd},
            {"f32[3]={1,2,3}", "i64[5]={3,-4,-3,2,4000000000000000000}", "f32[5]={10,20,30,40,50}"},
            "f32[3]={31,2,43}"},
        Beyond{"scatter_nd",
               "cuda.scatter_nd.lines",
               ScatterND{},
               {"i32[2,2]={1,2,3,4}", "i64[4,2]={0,2,-3,0,1,-1,0,-2}", "i32[4]={5,6,7,8}"},
               "i32[2,2]={8,2,3,7}"}),
    [](const auto& info) { return std::string(info.param.name); });

// While it is prepared, before anything runs.
TEST(GatherKernel, RefusesIndicesOfAnEmptyAxis) {
  const TestLayer layer = layer_of({"", "", Gather{0}, {"f32[0,3]", "i64[1]={0}"}, "f32[1,3]"});
  const auto device = cuda_backend().open(cuda::device_under_test());
  try {
    run_layer(*find_kernel(cuda_backend(), "cuda.gather.indexed"), layer, *device);
    FAIL() << "nothing is refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "an index is out of range for 0 elements");
  }
}

}  // namespace
}  // namespace anneal::testing
