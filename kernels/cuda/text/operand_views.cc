#include "anneal/kernels/cuda/text/operand_views.h"

#include <algorithm>
#include <numeric>

namespace anneal::cuda {
namespace {

DataType bits_of(DataType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return DataType::kU8;
    case 2:
      return DataType::kU16;
    case 4:
      return DataType::kU32;
    default:
      return DataType::kU64;
  }
}

// Elements behind each other that are worth moving their axis.
constexpr int64_t kWorthMoving = 8;

std::vector<int> numbers(size_t end) {
  std::vector<int> all(end);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

std::optional<std::vector<int64_t>> integers(const Operand& operand) {
  if (operand.constant == nullptr) return std::nullopt;
  const Tensor& tensor = *operand.constant;
  if (tensor.dtype() == DataType::kI64) {
    const auto values = tensor.as<int64_t>();
    return std::vector<int64_t>(values.begin(), values.end());
  }
  if (tensor.dtype() != DataType::kI32) return std::nullopt;
  const auto values = tensor.as<int32_t>();
  return std::vector<int64_t>(values.begin(), values.end());
}

bool has_epilogue(const Request& request) {
  return !request.epilogues.empty() && !request.epilogues[0].empty();
}

AxisMapping AxisMapping::all(int rank) {
  AxisMapping look;
  for (int axis = 0; axis < rank; ++axis) look.axes.push_back({.of = {axis}});
  return look;
}

Operand AxisMapping::operator()(const Operand& operand, const Shape& other,
                                SizeTable& sizes) const {
  Operand seen = operand;
  if (dense) {
    seen.type.shape = other;
    seen.strides = row_major_strides(other, sizes);
    return seen;
  }
  seen.type.shape = {};
  seen.strides = {};
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    Size size = 1, stride = 0;
    for (const int of : axis.of) {
      size = sizes.mul(size, operand.type.shape[of]);
      stride = operand.strides[of];
    }
    seen.type.shape.push_back(axis.sliced ? other[static_cast<int>(i)] : size);
    seen.strides.push_back(sizes.mul(stride, axis.step));
  }
  return seen;
}

TensorView AxisMapping::operator()(const TensorView& view, const Dims& other) const {
  if (dense) return {view.dtype, other, row_major_strides(other), view.data};
  TensorView seen{view.dtype, {}, {}, view.data};
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    int64_t size = 1, stride = 0;
    for (const int of : axis.of) {
      size *= view.dims[of];
      stride = view.strides[of];
    }
    if (axis.sliced) {
      const int64_t last = axis.step < 0 ? size - 1 : size;
      const int64_t start = axis.start < 0 ? axis.start + size : axis.start;
      size = other[static_cast<int>(i)];
      if (size > 0) offset += std::clamp<int64_t>(start, 0, std::max<int64_t>(last, 0)) * stride;
    }
    seen.dims.push_back(size);
    seen.strides.push_back(stride * axis.step);
  }
  if (seen.data != nullptr) seen.data += offset * static_cast<int64_t>(size_of(view.dtype));
  return seen;
}

OperandViews::OperandViews(const Request& request, std::vector<int> op_inputs)
    : request_(request),
      op_input_count_(static_cast<int>(op_inputs.size())),
      outputs_(request.outputs.begin(), request.outputs.end()),
      sizes_(request.sizes) {
  looks_.inputs = std::move(op_inputs);
  for (size_t i = static_cast<size_t>(request.op_input_count); i < request.inputs.size(); ++i)
    looks_.inputs.push_back(static_cast<int>(i));
  for (const int input : looks_.inputs)
    inputs_.push_back(request.inputs[static_cast<size_t>(input)]);
  looks_.of_inputs.resize(inputs_.size());
  looks_.of_outputs.resize(outputs_.size());
}

OperandViews::OperandViews(const Request& request)
    : OperandViews(request, numbers(static_cast<size_t>(request.op_input_count))) {}

void OperandViews::look_at_input(int input, const AxisMapping& look) {
  Operand& operand = inputs_[static_cast<size_t>(input)];
  operand = look(operand, space(), sizes_);
  looks_.of_inputs[static_cast<size_t>(input)].push_back(look);
}

void OperandViews::look_at_output(int output, const AxisMapping& look) {
  Operand& operand = outputs_[static_cast<size_t>(output)];
  operand = look(operand, inputs_[0].type.shape, sizes_);
  looks_.of_outputs[static_cast<size_t>(output)].push_back(look);
}

bool OperandViews::is_dense(const Operand& operand) {
  const Shape& shape = operand.type.shape;
  const Shape dense = row_major_strides(shape, sizes_);
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!(shape[axis] == Size(1)) && !(operand.strides[axis] == dense[axis])) return false;
  return true;
}

bool OperandViews::lie_behind(const Operand& operand, int outer, int inner) {
  return operand.strides[outer] == sizes_.mul(operand.strides[inner], operand.type.shape[inner]);
}

void OperandViews::as_bits(int indices) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (static_cast<int>(i) != indices) inputs_[i].type.dtype = bits_of(inputs_[i].type.dtype);
  for (Operand& operand : outputs_) operand.type.dtype = bits_of(operand.type.dtype);
}

Request OperandViews::request() const {
  return {request_.op,     request_.epilogues, op_input_count_,
          inputs_,         outputs_,           sizes_,
          request_.device, request_.tactic,    request_.ignore_speed_heuristics};
}

bool OperandViews::is_small(const Shape& shape) const {
  constexpr int64_t kMost = int64_t{1} << 30;
  int64_t product = 1;
  for (const Size size : shape) {
    const int64_t most = sizes_.range(size).max;
    if (most > kMost || product * most > kMost) return false;
    product *= std::max<int64_t>(most, 1);
  }
  return true;
}

// Two neighbours of the output's axes, seen from an operand.
bool OperandViews::can_merge(const Operand& operand, int outer, int inner) {
  const Shape& shape = operand.type.shape;
  const int missing = space().rank() - shape.rank();
  const auto repeats = [&](int axis) { return axis < missing || shape[axis - missing] == Size(1); };
  if (repeats(outer) || repeats(inner)) return repeats(outer) && repeats(inner);
  return shape[outer - missing] == space()[outer] && shape[inner - missing] == space()[inner] &&
         lie_behind(operand, outer - missing, inner - missing);
}

void OperandViews::look_at_all(const std::vector<PerAxis<int>>& groups) {
  const Shape out = space();
  const auto see = [&](Operand& operand, std::vector<AxisMapping>& looks) {
    const int missing = out.rank() - operand.type.shape.rank();
    AxisMapping look;
    for (const auto& group : groups) {
      PerAxis<int> own;
      for (const int axis : group)
        if (axis >= missing) own.push_back(axis - missing);
      // Axes that the operand lacks are outermost and left out, but for one that was moved.
      if (own.rank() > 0 || !look.axes.empty()) look.axes.push_back({.of = own});
    }
    operand = look(operand, out, sizes_);
    looks.push_back(std::move(look));
  };
  for (size_t i = 0; i < inputs_.size(); ++i) see(inputs_[i], looks_.of_inputs[i]);
  for (size_t i = 0; i < outputs_.size(); ++i) see(outputs_[i], looks_.of_outputs[i]);
}

bool OperandViews::epilogues_use_index() const {
  return std::ranges::any_of(request_.epilogues, &Program::uses_index);
}

void OperandViews::move_unit_axis_last() {
  if (epilogues_use_index()) return;
  int unit = -1, last = -1;
  for (int axis = 0; axis < space().rank(); ++axis) {
    if (space()[axis] == Size(1)) continue;
    last = axis;
    if (outputs_[0].strides[axis] == Size(1)) unit = axis;
  }
  if (unit < 0 || unit == last || sizes_.range(space()[unit]).min < kWorthMoving) return;
  std::vector<PerAxis<int>> axes;
  for (int axis = 0; axis < space().rank(); ++axis)
    if (axis != unit) axes.push_back({axis});
  axes.push_back({unit});
  look_at_all(axes);
}

void OperandViews::merge_axes() {
  if (epilogues_use_index()) return;
  std::vector<PerAxis<int>> groups;
  for (int axis = 0; axis < space().rank(); ++axis) {
    if (space()[axis] == Size(1)) continue;
    const auto merges = [&](const Operand& operand) {
      return can_merge(operand, groups.back()[groups.back().rank() - 1], axis);
    };
    if (!groups.empty() && std::all_of(inputs_.begin(), inputs_.end(), merges) &&
        std::all_of(outputs_.begin(), outputs_.end(), merges)) {
      groups.back().push_back(axis);
    } else {
      groups.push_back({axis});
    }
  }
  look_at_all(groups);
}

void OperandViews::Looks::apply(std::span<const TensorView> all_inputs,
                                std::span<const TensorView> all_outputs,
                                std::vector<TensorView>& seen_inputs,
                                std::vector<TensorView>& seen_outputs) const {
  const auto see = [](TensorView view, const std::vector<AxisMapping>& looks, const Dims& other) {
    for (const AxisMapping& look : looks) view = look(view, other);
    return view;
  };
  const Dims out = all_outputs[0].dims;
  for (size_t i = 0; i < inputs.size(); ++i)
    seen_inputs[i] = see(all_inputs[static_cast<size_t>(inputs[i])], of_inputs[i], out);
  const Dims in = inputs.empty() ? Dims{} : all_inputs[static_cast<size_t>(inputs[0])].dims;
  for (size_t i = 0; i < of_outputs.size(); ++i)
    seen_outputs[i] = see(all_outputs[i], of_outputs[i], in);
}

}  // namespace anneal::cuda
