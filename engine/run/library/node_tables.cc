#include "anneal/engine/run/library/node_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

// Far apart, and far from what sizes are.
constexpr int64_t kFirstOpen = -(int64_t{1} << 41) - 12345, kOpenStep = -1000003;

anneal_tensor dense_tensor(DataType dtype, const Dims& dims, const std::byte* data) {
  anneal_tensor tensor = {};
  tensor.size = sizeof(tensor);
  tensor.dtype = static_cast<anneal_dtype>(dtype);
  tensor.rank = dims.rank();
  std::ranges::copy(dims, tensor.dims);
  // Kernels take mutable memory, and never write through an input.
  tensor.data = const_cast<std::byte*>(data);
  return tensor;
}

anneal_tensor absent_tensor() {
  anneal_tensor tensor = {};
  tensor.size = sizeof(tensor);
  return tensor;
}

Dims numbers_of(const Shape& shape, OpenSizes& open) {
  Dims dims;
  for (const Size size : shape) dims.push_back(open.number_of(size));
  return dims;
}

}  // namespace

int64_t OpenSizes::number_of(Size size) {
  if (size.known()) return size.value();
  const auto found =
      size.is_unknown() ? sizes_.end() : std::find(sizes_.begin(), sizes_.end(), size);
  const int64_t index = found - sizes_.begin();
  if (found == sizes_.end()) sizes_.push_back(size);
  return kFirstOpen + index * kOpenStep;
}

Size OpenSizes::size_of(int64_t number) const {
  if (number >= 0) return number;
  if (number == ANNEAL_OPEN_SIZE) return Size::unknown();
  const int64_t offset = number - kFirstOpen;
  const int64_t index = offset / kOpenStep;
  if (offset % kOpenStep != 0 || index < 0 || index >= static_cast<int64_t>(sizes_.size()))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is neither a size nor an open size of an input", number));
  return sizes_[static_cast<size_t>(index)];
}

NodeTables::NodeTables(const Custom& op) {
  const size_t count = op.attributes.size();
  attributes_.resize(count);
  texts_.resize(count);
  tensors_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const CustomAttribute& from = op.attributes[i];
    anneal_attribute& to = attributes_[i];
    to = {};
    to.size = sizeof(to);
    to.name = from.name.c_str();
    to.kind = static_cast<anneal_attribute_kind>(from.value.index() + 1);
    if (const auto* tensor = std::get_if<Tensor>(&from.value)) {
      tensors_[i] = dense_tensor(tensor->dtype(), tensor->dims(), tensor->bytes().data());
      to.tensor = &tensors_[i];
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&from.value)) {
      to.ints = ints->data();
      to.count = static_cast<int32_t>(ints->size());
    } else if (const auto* floats = std::get_if<std::vector<float>>(&from.value)) {
      to.floats = floats->data();
      to.count = static_cast<int32_t>(floats->size());
    } else {
      for (const std::string& text : std::get<std::vector<std::string>>(from.value))
        texts_[i].push_back(text.c_str());
      to.strings = texts_[i].data();
      to.count = static_cast<int32_t>(texts_[i].size());
    }
  }
  outputs_.assign(static_cast<size_t>(op.outputs), absent_tensor());
}

NodeTables::NodeTables(const Custom& op, const InferInputs& inputs, OpenSizes& open)
    : NodeTables(op) {
  for (int i = 0; i < inputs.count(); ++i) {
    if (!inputs.has(i)) {
      inputs_.push_back(absent_tensor());
      continue;
    }
    const Type& type = inputs.type(i);
    if (type.dtype == DataType::kString) rules::refuse(fmt::format("input {} has strings", i));
    const Shape shape = rules::pinned(type.shape, inputs.sizes());
    inputs_.push_back(dense_tensor(type.dtype, numbers_of(shape, open), nullptr));
  }
  point();
}

NodeTables::NodeTables(const Custom& op, std::span<const Operand> inputs) : NodeTables(op) {
  for (const Operand& input : inputs)
    inputs_.push_back(input.present
                          ? dense_tensor(input.type.dtype, numbers_of(input.type.shape, open_),
                                         input.constant ? input.constant->bytes().data() : nullptr)
                          : absent_tensor());
  point();
}

void NodeTables::set_outputs(std::span<const Operand> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs_[i] =
        dense_tensor(outputs[i].type.dtype, numbers_of(outputs[i].type.shape, open_), nullptr);
}

void NodeTables::set_views(std::span<const TensorView> inputs,
                           std::span<const TensorView> outputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs_[i].dtype != 0)
      inputs_[i] = dense_tensor(inputs[i].dtype, inputs[i].dims, inputs[i].data);
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs_[i] = dense_tensor(outputs[i].dtype, outputs[i].dims, outputs[i].data);
}

void NodeTables::set_data(std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
  for (size_t i = 0; i < inputs.size(); ++i) inputs_[i].data = inputs[i].data;
  for (size_t i = 0; i < outputs.size(); ++i) outputs_[i].data = outputs[i].data;
}

void NodeTables::point() {
  node_.size = sizeof(node_);
  node_.attributes = attributes_.data();
  node_.inputs = inputs_.data();
  node_.outputs = outputs_.data();
  node_.attribute_count = static_cast<int32_t>(attributes_.size());
  node_.input_count = static_cast<int32_t>(inputs_.size());
  node_.output_count = static_cast<int32_t>(outputs_.size());
}

}  // namespace anneal
