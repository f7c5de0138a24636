// Channels-last activations for convolutions and pools. Activations in other layouts are copied
// first.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "anneal/core/parallel.h"
#include "anneal/core/tensor.h"
#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/program/tape.h"

namespace anneal::cpu {

// [N, C, up to 3 spatial axes]; missing spatial axes come first and have one element.
using Spatial = std::array<int64_t, 3>;

// values are those of the spatial axes from `first` on.
template <class Values>
Spatial spatial_of(const Values& values, int first, int count, int64_t missing) {
  Spatial result{missing, missing, missing};
  for (int i = 0; i < count; ++i) result[3 - count + i] = values[first + i];
  return result;
}

struct ChannelsLast {
  ChannelsLast() = default;
  // element: the type in which channels are wanted, f32 for f32, f16 and bf16, else the view's.
  // keeps_bf16: bf16 for bf16. repeats: how often each channel is there, next to each other.
  // REQUIRES: repeats == 1, or elements that keep their type
  explicit ChannelsLast(const TensorView& view, bool keeps_bf16 = false, int64_t repeats = 1);

  int64_t images = 0, channels = 0;
  Spatial size{};
  DataType element = DataType::kF32;
  bool staged = false;       // has to be copied
  int64_t image_stride = 0;  // in elements
  Spatial strides{};
  CopyPlan copy;                // of staged elements that keep their type
  size_t staged_bytes() const;  // 0 if not staged

  // Copies the view to memory of staged_bytes(). REQUIRES: staged
  void stage(const TensorView& view, std::byte* to, LoadBlock load, ThreadTeam& team) const;
};

}  // namespace anneal::cpu
