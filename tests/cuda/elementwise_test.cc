// Elementwise kernels where tensors lie in memory as the op suite has them not: off the alignment
// of vectors, and in place.
#include <gtest/gtest.h>

#include <cstring>

#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

struct Way {
  const char* name;
  int64_t input_offset = 0, output_offset = 0;  // of the first element, in elements
  bool in_place = false;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class Elementwise : public ::testing::TestWithParam<Way> {
 protected:
  // The op's only output, the first input being where GetParam() says.
  void expect_agreement(const Op& op, const std::string& kernel,
                        const std::vector<std::string>& inputs) {
    TestLayer layer{.op = op};
    for (const std::string& input : inputs) layer.inputs.emplace_back(tensor_from_text(input));
    layer.op_input_count = static_cast<int>(inputs.size());
    SizeTable sizes;
    const Type type = infer_with(layer, own_types(layer), sizes)[0].type;
    layer.outputs = {type};
    layer.output_dims = {dims_of(type.shape)};
    const auto wanted = run_layer(*reference_entry(cpu_backend(), op.index()), layer, *cpu_);
    const auto problem =
        difference(run(kernel, layer), wanted.outputs[0], default_tolerance(type.dtype));
    EXPECT_FALSE(problem) << kernel << ": " << *problem;
  }

 private:
  struct Place {
    std::unique_ptr<Buffer> buffer;
    TensorView view;
  };
  Place place(DataType dtype, const Dims& dims, int64_t offset) {
    const size_t size = size_of(dtype);
    const auto elements = static_cast<size_t>(count(dims) + offset);
    Place placed{device_->allocate(elements * size), {}};
    placed.view = row_major_view(dtype, dims, placed.buffer->data());
    placed.view.data += offset * static_cast<int64_t>(size);
    return placed;
  }

  Tensor run(const std::string& kernel_name, const TestLayer& layer) {
    const auto stream = device_->make_stream();
    const Way& way = GetParam();
    std::vector<Place> places;
    std::vector<Operand> in_operands;
    std::vector<TensorView> inputs;
    for (const auto& input : layer.inputs) {
      places.push_back(place(input->dtype(), input->dims(), inputs.empty() ? way.input_offset : 0));
      inputs.push_back(places.back().view);
      device_->copy(inputs.back().data, input->bytes().data(), input->bytes().size(), *stream);
      in_operands.push_back(
          {.type = input->type(), .strides = shape_of(row_major_strides(input->dims()))});
    }
    const Type type = layer.outputs[0];
    const Dims dims = layer.output_dims[0];
    places.push_back(place(type.dtype, dims, way.output_offset));
    const TensorView output = way.in_place ? inputs[0] : places.back().view;
    const Operand out_operand{.type = type, .strides = shape_of(row_major_strides(dims))};
    const SizeTable sizes;
    const Made made = find_kernel(cuda_backend(), kernel_name)
                          ->make({layer.op,
                                  {},
                                  layer.op_input_count,
                                  in_operands,
                                  {&out_operand, 1},
                                  sizes,
                                  *device_,
                                  {}});
    check(made.kernel != nullptr, "the kernel accepts the layer");
    device_->load_code({});
    const auto prepared = made.kernel->prepare(inputs, {&output, 1}, 1);
    Team team(1);
    made.kernel->launch({inputs, {&output, 1}, prepared.get(), nullptr, *stream, team});
    auto result = Tensor::allocate(type.dtype, dims);
    device_->copy(result.data.data(), output.data, result.data.size(), *stream);
    stream->wait();
    return result.tensor;
  }

  std::unique_ptr<Device> cpu_ = cpu_backend().open("cpu");
  std::unique_ptr<Device> device_ = cuda_backend().open("emulated");
};

TEST_P(Elementwise, Vectors) {
  const Op op = Pointwise{parse_program("(f32,f32)->(f32) max(add($0,$1),0f32)")};
  expect_agreement(op, "cuda.pointwise.strided", {"f32[5003]", "f32[5003]"});
}
TEST_P(Elementwise, VectorsOfHalves) {
  const Op op = Pointwise{parse_program("(f16,f16)->(f16) round_f16(mul($0,$1))")};
  expect_agreement(op, "cuda.pointwise.strided", {"f16[5003]", "f16[]"});
}
TEST_P(Elementwise, VectorsInRows) {
  const Op op = Pointwise{parse_program("(f32,f32)->(f32) sub($0,$1)")};
  expect_agreement(op, "cuda.pointwise.strided", {"f32[3,7,96]", "f32[7,1]"});
}
TEST_P(Elementwise, Scalars) {
  const Op op = Pointwise{parse_program("(f32,f32)->(f32) sub($0,$1)")};
  expect_agreement(op, "cuda.pointwise.strided", {"f32[3,7,9]", "f32[3,1,1]"});
}
TEST_P(Elementwise, Softmax) {
  expect_agreement(Softmax{1}, "cuda.softmax.rows", {"f32[5,129]=-9..9"});
  expect_agreement(Softmax{1}, "cuda.softmax.rows", {"f32[2,4001]=-9..9"});
}
TEST_P(Elementwise, Copy) {
  const Op op = Pointwise{parse_program("(u8)->(u8) $0")};
  expect_agreement(op, "cuda.pointwise.strided", {"u8[7,1203]=0..255"});
}

INSTANTIATE_TEST_SUITE_P(Ways, Elementwise,
                         ::testing::Values(Way{"Aligned"}, Way{"InputOff", 1, 0},
                                           Way{"OutputOff", 0, 3}, Way{"BothOff", 2, 2},
                                           Way{"InPlace", 0, 0, true},
                                           Way{"InPlaceOff", 1, 1, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace anneal::testing
