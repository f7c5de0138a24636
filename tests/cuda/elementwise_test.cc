// Elementwise kernels, and those of rows, where tensors lie in memory as the op suite has them not:
// off the alignment of vectors, in place, and one channels-last while the others are row-major.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "anneal/core/channels_last.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

struct Way {
  const char* name;
  int64_t input_offset = 0, output_offset = 0;  // of the first element, in elements
  bool in_place = false;
  bool input_last = false, output_last = false;  // the channels, of the first input and the output
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
  Place place(DataType dtype, const Dims& dims, int64_t offset, bool channels_last) {
    const size_t size = size_of(dtype);
    const auto elements = static_cast<size_t>(count(dims) + offset);
    Place placed{device_->allocate(elements * size), {}};
    placed.view = row_major_view(dtype, dims, placed.buffer->data());
    if (channels_last) placed.view.strides = channels_last_strides(dims);
    placed.view.data += offset * static_cast<int64_t>(size);
    return placed;
  }
  // The bytes of a row-major tensor in the order of the view's strides, or back.
  std::vector<std::byte> in_order(std::span<const std::byte> bytes, const TensorView& view,
                                  bool back) {
    const size_t size = size_of(view.dtype);
    std::vector<std::byte> result(bytes.size());
    Dims at = Dims::filled(view.dims.rank(), 0);
    for (size_t i = 0; i < bytes.size(); i += size) {
      size_t place = 0;
      for (int axis = 0; axis < at.rank(); ++axis)
        place += static_cast<size_t>(at[axis] * view.strides[axis]) * size;
      std::memcpy(result.data() + (back ? i : place), bytes.data() + (back ? place : i), size);
      for (int axis = at.rank() - 1; axis >= 0 && ++at[axis] == view.dims[axis]; --axis)
        at[axis] = 0;
    }
    return result;
  }

  Tensor run(const std::string& kernel_name, const TestLayer& layer) {
    const auto stream = device_->make_stream();
    const Way& way = GetParam();
    std::vector<Place> places;
    std::vector<Operand> in_operands;
    std::vector<TensorView> inputs;
    for (const auto& input : layer.inputs) {
      const bool first = inputs.empty();
      places.push_back(place(input->dtype(), input->dims(), first ? way.input_offset : 0,
                             first && way.input_last));
      inputs.push_back(places.back().view);
      const auto bytes = in_order(input->bytes(), inputs.back(), false);
      device_->copy(inputs.back().data, bytes.data(), bytes.size(), *stream);
      stream->wait();
      in_operands.push_back({.type = type_of(*input), .strides = shape_of(inputs.back().strides)});
    }
    const Type type = layer.outputs[0];
    const Dims dims = layer.output_dims[0];
    places.push_back(place(type.dtype, dims, way.output_offset, way.output_last));
    const TensorView output = way.in_place ? inputs[0] : places.back().view;
    const Operand out_operand{.type = type, .strides = shape_of(output.strides)};
    const SizeTable sizes;
    const KernelResult made = find_kernel(cuda_backend(), kernel_name)
                                  ->make({layer.op,
                                          {},
                                          layer.op_input_count,
                                          in_operands,
                                          {&out_operand, 1},
                                          sizes,
                                          *device_,
                                          {}});
    check(made.has_value(), "the kernel accepts the layer");
    device_->prepare_code({});
    const auto prepared = (*made)->prepare(inputs, {&output, 1}, 1);
    ThreadTeam team(1);
    (*made)->launch({inputs, {&output, 1}, prepared.get(), nullptr, *stream, team});
    std::vector<std::byte> bytes(static_cast<size_t>(count(dims)) * size_of(type.dtype));
    device_->copy(bytes.data(), output.data, bytes.size(), *stream);
    stream->wait();
    auto fresh = allocate_tensor(type.dtype, dims);
    std::ranges::copy(in_order(bytes, output, true), fresh.data.begin());
    return fresh.tensor;
  }

  std::unique_ptr<Device> cpu_ = cpu_backend().open("cpu");
  std::unique_ptr<Device> device_ = cuda_backend().open(cuda::device_under_test());
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
TEST_P(Elementwise, Normalize) {
  expect_agreement(Normalize{{1}}, "cuda.normalize.rows", {"f32[5,129]=90..99"});
  expect_agreement(Normalize{{0, 2}}, "cuda.normalize.rows", {"f16[2,35,99]"});
}
TEST_P(Elementwise, Copy) {
  const Op op = Pointwise{parse_program("(u8)->(u8) $0")};
  expect_agreement(op, "cuda.pointwise.strided", {"u8[3,7,1203]=0..255"});
}
TEST_P(Elementwise, CopyBetweenLayouts) {
  const Op op = Pointwise{parse_program("(f16)->(f16) $0")};
  if (GetParam().input_last != GetParam().output_last)
    expect_agreement(op, "cuda.pointwise.tiled", {"f16[2,35,9,11]"});
}

TEST_P(Elementwise, RowsThatIndicesName) {
  if (GetParam().in_place) return;
  expect_agreement(Gather{0}, "cuda.gather.indexed", {"f32[23,64]", "i64[33]=-23..22"});
  expect_agreement(Gather{1}, "cuda.gather.indexed", {"f16[3,5,9,64]", "i32[7]=-5..4"});
  expect_agreement(GatherND{1}, "cuda.gather_nd.indexed", {"u8[3,5,96]", "i64[3,7,1]=-5..4"});
}

INSTANTIATE_TEST_SUITE_P(Ways, Elementwise,
                         ::testing::Values(Way{"Aligned"}, Way{"InputOff", 1, 0},
                                           Way{"OutputOff", 0, 3}, Way{"BothOff", 2, 2},
                                           Way{"InPlace", 0, 0, true},
                                           Way{"InPlaceOff", 1, 1, true},
                                           Way{"FromChannelsLast", 0, 0, false, true, false},
                                           Way{"ToChannelsLast", 0, 0, false, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace anneal::testing
