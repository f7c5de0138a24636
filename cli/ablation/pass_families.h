// The optimizer's passes by family, in the order in which an ablation adds them.
#pragma once
#include <span>
#include <string_view>

namespace anneal {

// Passes that serve one purpose. Each pass of optimizer/passes/passes.h is in one family.
struct PassFamily {
  std::string_view name;
  std::span<const std::string_view> passes;
  // The builder's part of it: channels-last values between kernels that prefer them.
  bool has_layouts = false;
  // The builder's part of it: results that are written at their place, and slices that are views.
  bool has_placement = false;
  // They change a graph only if the model or the options have 8 or 16 bits.
  bool is_for_precision = false;
};

std::span<const PassFamily> pass_families();

}  // namespace anneal
