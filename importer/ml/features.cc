// Operators of ai.onnx.ml that prepare features and encode categories.
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <optional>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/ml/scores.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

constexpr TypeSet kFeatures = {DataType::kF32, DataType::kF64, DataType::kI32, DataType::kI64};

// Numbers of an attribute, one for all features or one for each, as a vector.
ValueId per_feature(Node& node, const std::vector<double>& values, DataType dtype,
                    std::string_view name) {
  const Shape& shape = node.shape(0);
  const Size features = shape.rank() == 0 ? Size(1) : shape[shape.rank() - 1];
  const auto count = static_cast<int64_t>(values.size());
  if (count != 1 && features.known() && features.value() != count)
    node.invalid(fmt::format("{} numbers for {} features", count, features.value()));
  if (is_float(dtype)) return node.constant_value(tensor_of(dtype, {count}, values), name);
  return node.integers_value({values.begin(), values.end()}, name);
}

Outputs import_scaler(Node& node) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFeatures);
  const DataType wide = dtype == DataType::kF64 ? DataType::kF64 : DataType::kF32;
  const auto offset = node.find_numbers("offset"), scale = node.find_numbers("scale");
  if (!offset || !scale || offset->empty() || scale->empty())
    node.invalid("attribute \"offset\" or \"scale\" is missing");
  const std::vector<ValueId> inputs = {
      node.input(0), per_feature(node, {offset->begin(), offset->end()}, wide, "offset"),
      per_feature(node, {scale->begin(), scale->end()}, wide, "scale")};
  return pointwise_result(node, inputs, DataType::kF32, [](Expressions in) {
    return (in[0].cast(in[1].reg.type) - in[1]) * in[2];
  });
}

// A row whose norm is 0 does not change.
Outputs import_normalizer(Node& node) {
  node.expect_inputs(1, 1);
  const int norm = node.choice("norm", {"MAX", "L1", "L2"});
  const ValueId rows = feature_rows(node);
  const DataType dtype = node.graph().value(rows).type().dtype;
  Reduce reduce{.kind = norm == 0 ? ReduceKind::kMax : ReduceKind::kSum};
  if (norm != 0)
    reduce.map = program_of(std::span(&dtype, 1), dtype, [&](Expressions in) {
      return norm == 1 ? in[0].apply(Opcode::kAbs) : in[0] * in[0];
    });
  const ValueId sum =
      node.layer(std::move(reduce), {rows, node.integers_value({1}, "axis")}, "norm");
  const ValueId result =
      pointwise(node, "normalized", {rows, sum}, DataType::kF32, [&](Expressions in) {
        const Expression size = norm == 2 ? in[1].apply(Opcode::kSqrt) : in[1];
        return select(in[1] == 0, in[0], in[0] / size);
      });
  const Shape& shape = node.shape(0);
  const std::vector<Size> sizes(shape.begin(), shape.end());
  const ValueId same = reshape(node, result, sizes, "of_shape");
  return pointwise_result(node, {same}, DataType::kF32, [](Expressions in) { return in[0]; });
}

Outputs import_imputer(Node& node) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFeatures);
  const bool is_real = is_float(dtype);
  const double replaced = node.number("replaced_value_float", 0);
  const int64_t replaced_integer = node.integer("replaced_value_int64", 0);
  const auto reals = node.find_numbers("imputed_value_floats").value_or(std::vector<float>());
  const auto integers = node.find_integers("imputed_value_int64s").value_or(std::vector<int64_t>());
  std::vector<double> values(reals.begin(), reals.end());
  if (!is_real) values.assign(integers.begin(), integers.end());
  if (values.empty()) node.invalid("no imputed values of the input's type");
  const ValueId imputed = per_feature(node, values, is_real ? dtype : DataType::kI64, "imputed");
  return pointwise_result(node, {node.input(0), imputed}, dtype, [&](Expressions in) {
    const Expression x = in[0];
    const Expression is_missing = is_real && std::isnan(replaced) ? x.apply(Opcode::kIsNan)
                                  : is_real                       ? x == replaced
                                            : x == static_cast<double>(replaced_integer);
    return select(is_missing, in[1].cast(x.reg.type), x);
  });
}

Outputs import_binarizer(Node& node) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFeatures);
  const float threshold = node.number("threshold", 0);
  return pointwise_result(node, {node.input(0)}, dtype, [&](Expressions in) {
    const Expression x = in[0];
    const RegisterType type = is_float(dtype) ? x.reg.type : RegisterType::kF32;
    const Expression number = x.cast(type);
    return (number.number(threshold) < number).cast(x.reg.type);
  });
}

// Elements of the last axis.
Outputs import_array_feature_extractor(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(0, kNumbers);
  node.dtype(1, {DataType::kI64});
  ValueId x = node.input(0);
  const Shape shape = node.shape(0);
  if (shape.rank() == 0) node.invalid("input 0 has no axes");
  if (shape.rank() == 1) x = reshape(node, x, {1, shape[0]}, "row");
  const Size count = product(node.shape(1), node.sizes());
  const ValueId indices = reshape(node, node.input(1), {count}, "indices");
  return node.result(Gather{.axis = std::max(shape.rank(), 2) - 1}, {x, indices});
}

Outputs import_feature_vectorizer(Node& node) {
  node.expect_inputs(1, 1 << 16);
  node.ignore("inputdimensions");
  std::vector<ValueId> parts;
  for (int i = 0; i < node.input_count(); ++i) {
    node.dtype(i, kFeatures);
    if (node.rank(i) != 2)
      node.invalid(fmt::format("input {} has {} axes, 2 expected", i, node.rank(i)));
    parts.push_back(pointwise(node, fmt::format("input{}", i), {node.input(i)}, DataType::kF32,
                              [](Expressions in) { return in[0]; }));
  }
  return node.result(Concat{.axis = 1}, parts);
}

// x with a last axis of size 1, to compare with the elements of a vector.
ValueId column_of(Node& node, ValueId x) {
  const Shape& shape = node.graph().value(x).type().shape;
  std::vector<Size> sizes(shape.begin(), shape.end());
  sizes.emplace_back(1);
  return reshape(node, x, sizes, "column");
}

Outputs import_one_hot_encoder(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFeatures);
  const auto texts = node.find_texts("cats_strings");
  if (texts && !texts->empty()) node.unsupported("categories that are strings");
  const auto categories = node.find_integers("cats_int64s");
  if (!categories || categories->empty()) node.invalid("no categories");
  const bool allows_unknown = node.flag("zeros", true);
  const ValueId x = column_of(node, as_i64(node, node.input(0), "categories_of_x"));
  const ValueId known = node.integers_value(*categories, "categories");
  if (!allows_unknown) {
    const int rank = node.rank(0);
    const ValueId found = pointwise(node, "equal", {x, known}, DataType::kBool,
                                    [](Expressions in) { return in[0] == in[1]; });
    const ValueId each = node.layer(Reduce{.kind = ReduceKind::kMax},
                                    {found, node.integers_value({rank}, "axis")}, "known");
    std::vector<int64_t> axes;
    for (int axis = 0; axis <= rank; ++axis) axes.push_back(axis);
    const ValueId all = node.layer(Reduce{.kind = ReduceKind::kMin, .keepdims = false},
                                   {each, node.integers_value(axes, "axes")}, "all_known");
    node.layer(Require{}, {all}, "categories_are_known");
  }
  return pointwise_result(node, {x, known}, DataType::kF32,
                          [](Expressions in) { return (in[0] == in[1]).cast(RegisterType::kF32); });
}

// Keys or values of a LabelEncoder: attribute `name`_tensor, `name`_int64s or `name`_floats.
Tensor read_labels(Node& node, const std::string& name) {
  const auto texts = node.find_texts(name + "_strings");
  if (texts && !texts->empty()) node.unsupported("labels that are strings");
  if (auto tensor = node.find_tensor(name + "_tensor")) {
    if (tensor->dtype() == DataType::kString) node.unsupported("labels that are strings");
    return reshaped(*tensor, {tensor->count()});
  }
  if (const auto integers = node.find_integers(name + "_int64s"); integers && !integers->empty())
    return Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(integers->size())}, *integers);
  const auto reals = node.find_numbers(name + "_floats");
  if (!reals || reals->empty()) node.invalid(fmt::format("no {} of a LabelEncoder", name));
  return Tensor::of<float>(DataType::kF32, {static_cast<int64_t>(reals->size())}, *reals);
}

// What a key that is not listed becomes.
Tensor read_default(Node& node, DataType dtype) {
  const int64_t integer = node.integer("default_int64", -1);
  const float real = node.number("default_float", -0.0f);
  node.ignore("default_string");
  if (const auto tensor = node.find_tensor("default_tensor")) {
    if (tensor->dtype() != dtype || tensor->count() != 1)
      node.invalid("default_tensor is not one value of the type of the values");
    return reshaped(*tensor, {});
  }
  if (is_float(dtype)) return tensor_of(dtype, {}, {real});
  if (dtype != DataType::kI64) node.unsupported("integers of other types than int64 as values");
  return Tensor::of<int64_t>(DataType::kI64, {}, {&integer, 1});
}

Outputs import_label_encoder(Node& node) {
  node.expect_inputs(1, 1);
  const auto classes = node.find_texts("classes_strings");
  if ((classes && !classes->empty()) || node.dtype(0) == DataType::kString)
    node.unsupported("labels that are strings");
  const Tensor keys = read_labels(node, "keys"), values = read_labels(node, "values");
  if (keys.count() != values.count())
    node.invalid(fmt::format("{} keys and {} values", keys.count(), values.count()));
  if (keys.dtype() != node.dtype(0)) node.invalid("keys of another type than the input");
  const ValueId x = column_of(node, node.input(0));
  const int64_t axis = node.rank(0);
  const ValueId equal = pointwise(
      node, "equal", {x, node.constant_value(keys, "keys")}, DataType::kI32, [&](Expressions in) {
        Expression same = in[0] == in[1];
        // Since version 4 NaN is a key.
        if (is_float(keys.dtype()) && node.opset() >= 4)
          same = select(in[1].apply(Opcode::kIsNan), in[0].apply(Opcode::kIsNan), same);
        return same.cast(RegisterType::kI32);
      });
  const ValueId place =
      node.layer(ArgReduce{.axis = axis, .keepdims = false}, {equal}, "first_equal");
  const ValueId found = node.layer(Reduce{.kind = ReduceKind::kMax, .keepdims = false},
                                   {equal, node.integers_value({axis}, "axis")}, "found");
  const ValueId value =
      node.layer(Gather{}, {node.constant_value(values, "values"), place}, "value");
  const ValueId otherwise = node.constant_value(read_default(node, values.dtype()), "default");
  return pointwise_result(node, {found, value, otherwise}, values.dtype(),
                          [](Expressions in) { return select(in[0] == 1, in[1], in[2]); });
}

// The map of each row's classes to their scores. An engine gives the tensor of scores, a column
// for each class.
Outputs import_zip_map(Node& node) {
  node.expect_inputs(1, 1);
  node.ignore("classlabels_int64s"), node.ignore("classlabels_strings");
  return {node.input(0)};
}

constexpr OpRow kFeaturesRows[] = {
    {kMl, "ArrayFeatureExtractor", 1, kLatest, import_array_feature_extractor},
    {kMl, "Binarizer", 1, kLatest, import_binarizer},
    {kMl, "FeatureVectorizer", 1, kLatest, import_feature_vectorizer},
    {kMl, "Imputer", 1, kLatest, import_imputer},
    {kMl, "LabelEncoder", 1, kLatest, import_label_encoder},
    {kMl, "Normalizer", 1, kLatest, import_normalizer},
    {kMl, "OneHotEncoder", 1, kLatest, import_one_hot_encoder},
    {kMl, "Scaler", 1, kLatest, import_scaler},
    {kMl, "ZipMap", 1, kLatest, import_zip_map},
};

}  // namespace

std::span<const OpRow> ml_features_rows() { return kFeaturesRows; }

}  // namespace anneal
