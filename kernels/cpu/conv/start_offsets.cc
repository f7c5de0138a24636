#include "anneal/kernels/cpu/conv/start_offsets.h"

#include <utility>

#include "anneal/kernels/cpu/program/program_part.h"

namespace anneal::cpu {
namespace {

// [channels, 1, ...] beside a result with that many spatial axes, or one number.
bool is_of_channels(const Dims& dims, int64_t channels, int spatial_axes) {
  if (count(dims) == 1) return true;
  const int axis = dims.rank() - 1 - spatial_axes;
  return axis >= 0 && count(dims) == channels && dims[axis] == channels;
}

}  // namespace

StartOffsets::StartOffsets(const Request& request) {
  const Operand& w = request.inputs[1];
  if (request.epilogues.size() != 1 || request.epilogues[0].empty() || w.constant == nullptr)
    return;
  auto cut = cut_sum_offset(request.epilogues[0]);
  if (!cut) return;
  const size_t place = static_cast<size_t>(request.op_input_count) + cut->input - 1;
  if (place >= request.inputs.size()) return;
  const Operand& integers = request.inputs[place];
  if (integers.constant == nullptr || integers.constant->dtype() != DataType::kI32 ||
      !is_of_channels(integers.constant->dims(), w.constant->dims()[0],
                      w.constant->dims().rank() - 2))
    return;
  rest_ = std::move(cut->rest);
  integers_ = integers.constant;
}

Request StartOffsets::rest(const Request& request) const {
  Request without = request;
  if (rest_) without.epilogues = {&*rest_, 1};
  return without;
}

std::vector<int32_t> StartOffsets::of_channels(int64_t channels) const {
  if (integers_ == nullptr) return {};
  const auto values = integers_->as<const int32_t>();
  std::vector<int32_t> all(static_cast<size_t>(channels), values[0]);
  if (values.size() > 1) all.assign(values.begin(), values.end());
  return all;
}

}  // namespace anneal::cpu
