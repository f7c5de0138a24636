// Operators of ai.onnx.ml that prepare features and encode categories.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
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
  const Dims dims = {static_cast<int64_t>(values.size())};
  return node.constant_value(tensor_of(dtype, dims, values), name);
}

// Input 0, for an attribute with that many numbers.
ValueId with_count(Node& node, size_t numbers) {
  const Shape& shape = node.shape(0);
  const auto count = static_cast<int64_t>(numbers);
  if (count == 1 || shape.rank() == 0) return node.input(0);
  const Size features = shape[shape.rank() - 1];
  if (!features.known()) {
    // A run with other features fails here.
    std::vector<Size> sizes(shape.begin(), shape.end());
    sizes.back() = count;
    return reshape(node, node.input(0), sizes, "features");
  }
  if (features.value() != count)
    node.invalid(fmt::format("{} numbers for {} features", count, features.value()));
  return node.input(0);
}

Outputs import_scaler(Node& node) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFeatures);
  const DataType wide = dtype == DataType::kF64 ? DataType::kF64 : DataType::kF32;
  const auto offset = node.find_numbers("offset"), scale = node.find_numbers("scale");
  if (!offset || !scale || offset->empty() || offset->size() != scale->size())
    node.invalid("attributes \"offset\" and \"scale\" must have the same number of values");
  const std::vector<ValueId> inputs = {
      with_count(node, offset->size()),
      per_feature(node, {offset->begin(), offset->end()}, wide, "offset"),
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
  const float replaced = node.number("replaced_value_float", 0);
  const int64_t replaced_integer = node.integer("replaced_value_int64", 0);
  const auto reals = node.find_numbers("imputed_value_floats").value_or(std::vector<float>());
  const auto integers = node.find_integers("imputed_value_int64s").value_or(std::vector<int64_t>());
  if ((is_real ? reals.empty() : integers.empty()) || (!reals.empty() && !integers.empty()))
    node.invalid("imputed values must be given, and have the input's type");
  if (is_real) {
    const std::vector<double> values(reals.begin(), reals.end());
    const ValueId x = with_count(node, reals.size());
    return pointwise_result(
        node, {x, per_feature(node, values, dtype, "imputed")}, dtype, [&](Expressions in) {
          const bool is_nan = std::isnan(replaced);
          return select(is_nan ? in[0].apply(Opcode::kIsNan) : in[0] == replaced, in[1], in[0]);
        });
  }
  const ValueId x = with_count(node, integers.size());
  const std::vector<ValueId> inputs = {x, node.integers_value(integers, "imputed"),
                                       node.integers_value({replaced_integer}, "replaced")};
  return pointwise_result(node, inputs, dtype, [](Expressions in) {
    const Expression number = in[0].cast(RegisterType::kI64);
    return select(number == in[2], in[1], number).cast(in[0].reg.type);
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
  ValueId categories_of_x = as_i64(node, node.input(0), "categories_of_x");
  if (is_float(node.dtype(0)))  // NaN is no category
    categories_of_x =
        pointwise(node, "categories_or_none", {node.input(0), categories_of_x}, DataType::kI64,
                  [](Expressions in) {
                    constexpr auto kNone = static_cast<double>(std::numeric_limits<int64_t>::min());
                    return select(in[0].apply(Opcode::kIsNan), in[1].number(kNone), in[1]);
                  });
  const ValueId x = column_of(node, categories_of_x);
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

// By a table of all integers from the least key to the greatest, where that is not much longer than
// the keys.
std::optional<Outputs> dense_table(Node& node, const Tensor& keys, const Tensor& values) {
  const auto numbers = keys.as<int64_t>();
  const auto [least, greatest] = std::ranges::minmax(numbers);
  const auto range = static_cast<uint64_t>(greatest) - static_cast<uint64_t>(least);
  if (range > 4 * numbers.size() + 1024) return std::nullopt;
  // What each integer becomes; the place behind the last value is the default's.
  const auto otherwise = static_cast<int64_t>(numbers.size());
  std::vector<int64_t> places(range + 2, otherwise);
  for (size_t i = numbers.size(); i-- > 0;)  // the first of equal keys counts
    places[static_cast<uint64_t>(numbers[i]) - static_cast<uint64_t>(least)] =
        static_cast<int64_t>(i);
  const ValueId all = node.layer(
      Concat{},
      {node.constant_value(values, "values"),
       node.constant_value(reshaped(read_default(node, values.dtype()), {1}), "default")},
      "values_and_default");
  const ValueId first_key = node.integers_value({least}, "least");
  const ValueId last_key = node.integers_value({greatest}, "greatest");
  const ValueId outside = node.integers_value({static_cast<int64_t>(range) + 1}, "outside");
  const ValueId place =
      pointwise(node, "key", {node.input(0), first_key, last_key, outside}, DataType::kI64,
                [](Expressions in) {
                  return select(in[1] <= in[0] && in[0] <= in[2], in[0] - in[1], in[3]);
                });
  const ValueId in_table = node.rank(0) == 0 ? reshape(node, place, {}, "place_scalar") : place;
  const ValueId of_value =
      node.layer(Gather{}, {node.integers_value(places, "places"), in_table}, "place");
  return node.result(Gather{}, {all, of_value});
}

Outputs import_label_encoder(Node& node) {
  node.expect_inputs(1, 1);
  const auto classes = node.find_texts("classes_strings");
  if ((classes && !classes->empty()) || node.dtype(0) == DataType::kString)
    node.unsupported("labels that are strings");
  const Tensor keys = read_labels(node, "keys"), values = read_labels(node, "values");
  if (keys.count() == 0) node.invalid("no keys");
  if (keys.count() != values.count())
    node.invalid(fmt::format("{} keys and {} values", keys.count(), values.count()));
  if (keys.dtype() != node.dtype(0)) node.invalid("keys of another type than the input");
  if (keys.dtype() == DataType::kI64)
    if (const auto table = dense_table(node, keys, values)) return *table;
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
