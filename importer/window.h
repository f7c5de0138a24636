// Attributes of operators that slide a window over spatial axes: kernel, strides, dilations, pads.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/importer/node.h"

namespace anneal {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end;  // one per spatial axis
};

// Input 0 is x[N,C,spatial...], of at least one spatial axis.
int spatial_axes(Node& node);
// Reads kernel_shape (which weights, if there is one, must agree with; without weights it is
// required), strides, dilations, pads and auto_pad.
Window read_window(Node& node, ValueId weights = ValueId::kNone);
// The same without pads, for operators that read them in their own way.
Window read_unpadded_window(Node& node, ValueId weights = ValueId::kNone);
enum class AutoPad : uint8_t { kNotSet, kSameUpper, kSameLower, kValid };
AutoPad read_auto_pad(Node& node);
// Reads pads as begins and ends; none if absent.
void read_pads(Node& node, Window& window);
// Reads the window and the groups of a convolution, whose weights are that input.
Conv read_conv(Node& node, int weights);
// Total padding cut in two, the larger half at the end for kSameUpper.
void set_pads(Window& window, size_t axis, int64_t total, AutoPad auto_pad);

}  // namespace anneal
