#include "anneal/engine/builder/timing/gpu_operands.h"

#include <algorithm>
#include <cstring>

#include "anneal/engine/builder/timing/timed_operands.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

constexpr auto kSpoiled = std::byte{0x55};

size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(extent(view.dims, view.strides)) * size_of(view.dtype);
}

}  // namespace

GpuOperands::GpuOperands(const TimedStep& step, Device& device, DeviceStream& stream,
                         size_t cache_bytes)
    : device_(device), sizes_(*step.plan.sizes) {
  size_t count = 1;
  for (size_t set = 0; set < count; ++set) {
    Set& made = sets_.emplace_back();
    const auto& [inputs, outputs] = step.operands;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool on_host =
          i < step.step.op_input_count && is_host_value(step.step.op, static_cast<int>(i));
      made.inputs.push_back(view_of(inputs[i], step.weights[i], on_host, i + 1, stream));
    }
    for (const Operand& output : outputs)
      made.outputs.push_back(view_of(output, nullptr, false, 0, stream));
    stream.wait();
    if (set > 0) continue;
    for (const auto& buffer : buffers_) set_bytes_ += buffer->size();
    count = std::min(kMostSets, 1 + 2 * cache_bytes / std::max<size_t>(set_bytes_, 1));
  }
  if (count * set_bytes_ < 2 * cache_bytes) others_ = device_.allocate(2 * cache_bytes);
}

TensorView GpuOperands::view_of(const Operand& operand, const Tensor* weight, bool on_host,
                                uint64_t seed, DeviceStream& stream) {
  if (!operand.present) return {};
  TensorView view = opt_view(sizes_, operand);
  const size_t bytes = weight != nullptr ? weight->bytes().size() : bytes_of(view);
  std::vector<std::byte> content(bytes);
  if (weight != nullptr) {
    std::ranges::copy(weight->bytes(), content.begin());
  } else if (seed > 0) {
    const std::vector<std::byte> pattern = timing_pattern(view.dtype, seed);
    for (size_t at = 0; at < bytes; at += pattern.size())
      std::memcpy(&content[at], pattern.data(), std::min(pattern.size(), bytes - at));
  }
  if (on_host) {
    on_host_.push_back(std::move(content));
    view.data = on_host_.back().data();
    return view;
  }
  buffers_.push_back(device_.allocate(std::max<size_t>(bytes, 1)));
  view.data = buffers_.back()->data();
  if (bytes == 0 || (weight == nullptr && seed == 0)) return view;
  device_.copy(view.data, content.data(), bytes, stream);
  stream.wait();
  return view;
}

void GpuOperands::leave_the_cache(DeviceStream& stream) {
  if (!others_) return;
  const size_t half = others_->size() / 2;
  device_.copy(others_->data(), others_->data() + half, half, stream);
}

void GpuOperands::spoil_outputs(DeviceStream& stream) {
  for (const TensorView& output : sets_[0].outputs) {
    const std::vector<std::byte> spoiled(bytes_of(output), kSpoiled);
    device_.copy(output.data, spoiled.data(), spoiled.size(), stream);
    stream.wait();
  }
}

std::vector<std::vector<std::byte>> GpuOperands::read_outputs(DeviceStream& stream) {
  std::vector<std::vector<std::byte>> read;
  for (const TensorView& output : sets_[0].outputs) {
    std::vector<std::byte>& bytes = read.emplace_back(bytes_of(output));
    device_.copy(bytes.data(), output.data, bytes.size(), stream);
    stream.wait();
  }
  return read;
}

}  // namespace anneal
