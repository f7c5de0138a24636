#include "anneal/importer/node/node_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/importer/onnx/tensor_data.h"

namespace anneal {

NodeInputs::NodeInputs(Graph& graph, std::vector<ValueId> inputs)
    : graph_(graph), inputs_(std::move(inputs)) {
  while (!inputs_.empty() && inputs_.back() == ValueId::kNone) inputs_.pop_back();
}

bool NodeInputs::has_input(int index) const {
  return index < input_count() && inputs_[index] != ValueId::kNone;
}

ValueId NodeInputs::optional_input(int index) const {
  if (!has_input(index)) return ValueId::kNone;
  if (graph().value(inputs_[index]).type().container != Container::kTensor)
    fail(ErrorCode::kUnsupported, fmt::format("input {} is a sequence or an optional", index));
  return inputs_[index];
}

ValueId NodeInputs::input(int index) const {
  if (!has_input(index)) fail(ErrorCode::kInvalidModel, fmt::format("input {} is missing", index));
  return optional_input(index);
}

void NodeInputs::expect_inputs(int min, int max) const {
  if (input_count() < min || input_count() > max)
    fail(ErrorCode::kInvalidModel, fmt::format("{} inputs, {}{} expected", input_count(), min,
                                               min == max ? "" : fmt::format(" to {}", max)));
}

const Shape& NodeInputs::shape(int index) const { return graph().value(input(index)).type().shape; }
DataType NodeInputs::dtype(int index) const { return graph().value(input(index)).type().dtype; }

DataType NodeInputs::dtype(int index, TypeSet allowed) const {
  const DataType type = dtype(index);
  if (allowed.contains(type)) return type;
  if (type == DataType::kString) fail(ErrorCode::kUnsupported, "strings");
  fail(ErrorCode::kInvalidModel, fmt::format("input {} is {}, which the operator does not take",
                                             index, anneal::to_string(type)));
}

void NodeInputs::expect_same_dtype(std::initializer_list<int> indices) const {
  std::optional<DataType> first;
  for (const int index : indices) {
    if (!has_input(index)) continue;
    if (first && *first != dtype(index))
      fail(ErrorCode::kInvalidModel,
           fmt::format("inputs of different types: {} and {}", anneal::to_string(*first),
                       anneal::to_string(dtype(index))));
    first = dtype(index);
  }
}

const Tensor* NodeInputs::constant(int index) const {
  return has_input(index) ? graph().constant(input(index)) : nullptr;
}

std::optional<std::vector<Size>> NodeInputs::contents(int index) const {
  if (!has_input(index)) return std::nullopt;
  const Value& value = graph().value(input(index));
  if (value.fact.elements) return value.fact.elements;
  if (!value.constant || !is_integer(value.constant->dtype())) return std::nullopt;
  std::vector<Size> sizes;
  for (const int64_t element : integers_of(*value.constant)) sizes.emplace_back(element);
  return sizes;
}

std::optional<std::vector<Size>> NodeInputs::known_sizes(int index) const {
  auto sizes = contents(index);
  const std::vector<bool> of_inputs = graph().symbols_of_inputs();
  if (sizes && std::ranges::any_of(*sizes, [&](Size size) {
        return size.is_unknown() || !is_made_of(this->sizes(), size, of_inputs);
      }))
    return std::nullopt;
  return sizes;
}

std::optional<std::vector<int64_t>> NodeInputs::known_integers(int index) const {
  const auto sizes = contents(index);
  if (!sizes) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Size size : *sizes) {
    if (!size.known()) return std::nullopt;
    integers.push_back(size.value());
  }
  return integers;
}

std::vector<int64_t> NodeInputs::integers_of_input(int index, std::string_view what) const {
  dtype(index, kIntegers);
  if (auto integers = known_integers(index)) return *integers;
  fail(ErrorCode::kUnsupported, fmt::format("{} known only at run time", what));
}

std::vector<double> NodeInputs::numbers_of_input(int index, std::string_view what) const {
  dtype(index, kNumbers);
  if (const Tensor* tensor = constant(index)) return numbers_of(*tensor);
  if (const auto integers = known_integers(index)) return {integers->begin(), integers->end()};
  fail(ErrorCode::kUnsupported, fmt::format("{} known only at run time", what));
}

}  // namespace anneal
