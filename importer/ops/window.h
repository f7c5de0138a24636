// Attributes of operators that slide a window over spatial axes: kernel, strides, dilations, pads.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/importer/node/node.h"

namespace anneal {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end;  // one per spatial axis
  // For auto_pad with a stride on an open size: the padding of the input by padded_input(), in a
  // layer of its own. Empty, or one per spatial axis.
  std::vector<Size> open_begin, open_end;
};

// Input 0 is x[N,C,spatial...], of at least one spatial axis.
int spatial_axes(Node& node);
// Reads kernel_shape (which weights, if there is one, must agree with; without weights it is
// required), strides, dilations, pads and auto_pad. first_axis: of input 0, the first spatial one.
Window read_window(Node& node, ValueId weights = ValueId::kNone, int first_axis = 2);
// Input 0, or `input` of the same spatial sizes; with the window's open pads, which hold `fill`, a
// scalar of its type.
ValueId padded_input(Node& node, const Window& window, ValueId input, ValueId fill);
// The same without pads, for operators that read them in their own way.
Window read_unpadded_window(Node& node, ValueId weights = ValueId::kNone);
enum class AutoPad : uint8_t { kNotSet, kSameUpper, kSameLower, kValid };
AutoPad read_auto_pad(Node& node);
// Reads pads as begins and ends; none if absent.
void read_pads(Node& node, Window& window);
struct ConvOfInput {
  Conv op;
  ValueId input;  // x, padded
};
// Reads the window and the groups of a convolution. x: input 0 with channels first. zero_point:
// what padding holds; absent: 0.
ConvOfInput read_conv(Node& node, ValueId x, ValueId weights, ValueId zero_point = ValueId::kNone,
                      int first_axis = 2);
// x[N,spatial...,C] as [N,C,spatial...].
ValueId channels_first(Node& node, ValueId x, std::string_view suffix);
// The opposite, as the node's output 0.
Outputs channels_last_result(Node& node, ValueId x);
// Total padding cut in two, the larger half at the end for kSameUpper.
void set_pads(Window& window, size_t axis, int64_t total, AutoPad auto_pad);

}  // namespace anneal
