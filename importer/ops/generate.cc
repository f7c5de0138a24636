// Tensors made from attributes, shapes and indices.
#include "anneal/importer/ops/rows.h"

#include <fmt/format.h>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/onnx/tensor_proto.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

Outputs constant(Node& node, Tensor tensor) { return {node.result_constant(std::move(tensor))}; }

Outputs import_constant(Node& node) {
  node.expect_inputs(0, 0);
  for (const char* strings : {"value_string", "value_strings"})
    if (node.has_attribute(strings)) node.unsupported("a constant of strings");
  if (node.has_attribute("sparse_value")) node.unsupported("a sparse tensor");
  int32_t narrow_type = 0;
  if (auto tensor = node.find_tensor("value", &narrow_type))
    return {node.result_constant(std::move(*tensor), narrow_type)};
  if (node.has_attribute("value_float"))
    return constant(node, tensor_of(DataType::kF32, {}, {node.number("value_float", 0)}));
  if (const auto integer = node.find_integer("value_int"))
    return constant(node, Tensor::of<int64_t>(DataType::kI64, {}, {{*integer}}));
  if (const auto integers = node.find_integers("value_ints"))
    return constant(node, Tensor::of<int64_t>(DataType::kI64,
                                              {static_cast<int64_t>(integers->size())}, *integers));
  if (const auto numbers = node.find_numbers("value_floats"))
    return constant(
        node, Tensor::of<float>(DataType::kF32, {static_cast<int64_t>(numbers->size())}, *numbers));
  node.invalid("no attribute gives the value");
}

Outputs import_constant_of_shape(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, {DataType::kI64});
  const Tensor value = node.find_tensor("value").value_or(tensor_of(DataType::kF32, {}, {0}));
  if (value.count() != 1) node.invalid("attribute \"value\" holds not one element");
  const ValueId scalar = node.constant_value(reshaped(value, {}), "value");
  return node.result(Expand{}, {scalar, node.input(0)});
}

Tensor one_of(DataType dtype) {
  switch (dtype) {
    case DataType::kI16:
      return Tensor::of<int16_t>(dtype, {}, {{int16_t{1}}});
    case DataType::kI32:
      return Tensor::of<int32_t>(dtype, {}, {{int32_t{1}}});
    case DataType::kI64:
      return Tensor::of<int64_t>(dtype, {}, {{int64_t{1}}});
    default:
      return tensor_of(dtype, {}, {1});
  }
}

Outputs range(Node& node) {
  const int count = node.input_count();
  std::vector<ValueId> inputs;
  for (int i = 0; i < count && node.has_input(i); ++i) {
    node.expect_same_dtype({0, i});
    inputs.push_back(reshape(node, node.input(i), {}, fmt::format("scalar{}", i)));
  }
  const DataType dtype = node.dtype(0, kNumbers);
  if (inputs.size() == 2) inputs.push_back(node.constant_value(one_of(dtype), "one"));
  return node.result(Range{}, inputs);
}
Outputs import_range(Node& node) {
  node.expect_inputs(3, 3);
  node.ignore("stash_type");  // never below f32 here
  return range(node);
}
Outputs import_microsoft_range(Node& node) {
  using enum DataType;
  node.expect_inputs(2, 3);
  node.dtype(0, {kF32, kF64, kI16, kI32, kI64});
  return range(node);
}

Outputs import_eye_like(Node& node) {
  node.expect_inputs(1, 1);
  if (node.rank(0) != 2) node.invalid("a matrix is expected");
  const auto type = node.find_integer("dtype");
  const DataType dtype = type ? require_dtype(static_cast<int32_t>(*type)) : node.dtype(0);
  if (dtype == DataType::kString) node.unsupported("strings");
  const auto k = static_cast<double>(node.integer("k", 0));
  return pointwise_result(node, {node.input(0)}, dtype, [&](Expressions in) {
    const Expression on_diagonal = in[0].index(0) + k == in[0].index(1);
    return on_diagonal.cast(register_type(dtype));
  });
}

Outputs import_trilu(Node& node) {
  node.expect_inputs(1, 2);
  const int rank = node.rank(0);
  if (rank < 2) node.invalid("a matrix is expected");
  const DataType dtype = node.dtype(0, kNumbersAndBooleans);
  const bool upper = node.flag("upper", true);
  const auto known = node.known_integers(1);
  std::vector<ValueId> inputs = {node.input(0)};
  if (node.has_input(1) && !known) {
    node.dtype(1, {DataType::kI64});
    inputs.push_back(reshape(node, node.input(1), {}, "k"));
  }
  if (known && known->size() != 1) node.invalid("k is not a scalar");
  return pointwise_result(node, inputs, dtype, [&](Expressions in) {
    const Expression row = in[0].index(rank - 2), column = in[0].index(rank - 1);
    const Expression k =
        in.size() == 2 ? in[1]
                       : Expression{in[0].builder,
                                    in[0].builder->constant(RegisterType::kI64,
                                                            known ? known->front() : int64_t{0})};
    // Compared by distance: row + k may overflow.
    const Expression distance = column - row;
    const Expression zero{in[0].builder, in[0].builder->constant(in[0].reg.type, int64_t{0})};
    return select(upper ? k <= distance : distance <= k, in[0], zero);
  });
}

// The indices get an axis of size 1 and broadcast against a ruler of `depth` elements along it.
Outputs import_one_hot(Node& node) {
  node.expect_inputs(3, 3);
  node.dtype(0, kNumbers);
  node.dtype(1, kNumbers);
  const DataType dtype = node.dtype(2, kNumbersAndBooleans);
  const int rank = node.rank(0) + 1;
  const auto axis = static_cast<int>(node.resolve_axis(node.integer("axis", -1), rank));
  const Shape& shape = node.shape(0);
  std::vector<Size> with_axis(shape.begin(), shape.end());
  with_axis.insert(with_axis.begin() + axis, Size(1));
  const ValueId indices = reshape(node, node.input(0), with_axis, "indices");

  ValueId depth;
  if (const Tensor* given = node.constant(1); given && given->count() == 1) {
    depth = node.integers_value({static_cast<int64_t>(numbers_of(*given)[0])}, "depth");
  } else {
    depth = reshape(node, as_i64(node, node.input(1), "depth"), {Size(1)}, "depth_vector");
  }
  std::vector<ValueId> sizes;
  const auto ones = [&](int count, const char* suffix) {
    if (count > 0)
      sizes.push_back(
          node.integers_value(std::vector<int64_t>(static_cast<size_t>(count), 1), suffix));
  };
  ones(axis, "before");
  sizes.push_back(depth);
  ones(rank - 1 - axis, "after");
  const ValueId target =
      sizes.size() == 1 ? sizes[0] : node.layer(Concat{.axis = 0}, sizes, "ruler_shape");
  const ValueId zero =
      node.constant_value(Tensor::of<uint8_t>(DataType::kBool, {}, {{uint8_t{0}}}), "zero");
  const ValueId ruler = node.layer(Expand{}, {zero, target}, "ruler");

  if (node.rank(2) != 1) node.invalid("off and on value in a vector are expected");
  const auto value_at = [&](int64_t index, const char* suffix) {
    const Tensor at = Tensor::of<int64_t>(DataType::kI64, {}, {{index}});
    const ValueId position = node.constant_value(at, std::string(suffix) + "_index");
    return node.layer(Gather{}, {node.input(2), position}, suffix);
  };
  const std::vector<ValueId> inputs = {indices, ruler, depth, value_at(0, "off"),
                                       value_at(1, "on")};
  return pointwise_result(node, inputs, dtype, [&](Expressions in) {
    const Expression index = in[0].cast(RegisterType::kI64);
    const Expression wrapped = select(index < 0, index + in[2], index);
    return select(wrapped == in[0].index(axis), in[4], in[3]);
  });
}

constexpr OpRow kGenerateRows[] = {
    {"", "Constant", 1, kLatest, import_constant},
    {"", "ConstantOfShape", 9, kLatest, import_constant_of_shape},
    {"", "EyeLike", 9, kLatest, import_eye_like},
    {"", "OneHot", 9, kLatest, import_one_hot},
    {"", "Range", 11, kLatest, import_range},
    {kMicrosoft, "Range", 1, kLatest, import_microsoft_range},
    {"", "Trilu", 14, kLatest, import_trilu},
    {kMicrosoft, "Trilu", 1, kLatest, import_trilu},
};

}  // namespace

std::span<const OpRow> generate_rows() { return kGenerateRows; }

}  // namespace anneal
