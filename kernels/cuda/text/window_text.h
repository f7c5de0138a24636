// The numbers of Conv and Pool in the text of their functions, by the names that device/window.h
// and device/conv_side.h read.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/shape_text.h"
#include "anneal/kernels/cuda/text/store_vector_text.h"

namespace anneal::cuda {

// The attributes that Conv and Pool have in common.
struct WindowOp {
  const std::vector<int64_t>&strides, &pads_begin, &pads_end, &dilations;
};

// in_*, out_*, stride_*, pad_*, pad_end_*, dilation_* of z, y and x, x_n, x_c, x_z, x_y, x_x, and
// kPadded: whether a window may reach beyond the input. REQUIRES: rank 3 to 5.
void add_window(ShapeText& shape, Extents& extents, const Request& request, const WindowOp& op,
                bool windows_stick_out);
// The spatial axis of z, y, x (0, 1, 2) in a tensor of this rank; -1: there is none.
int axis_of(int zyx, int rank);
// [n, c, z, y, x] (or fewer) as the arguments of a Store: "at.n, c, at.y, at.x".
std::string coordinates_text(int rank, std::string_view channel, std::string_view prefix = "");

// "struct Result" of a Store of store_lanes(), which device/window.h tells about.
std::string result_definition(int rank, std::string_view accumulator);

// Outputs to a thread of device/window.h.
struct ThreadShare {
  int channels = 1, columns = 1;
};
// `threads`, struct At and at(i): threads one after another in memory order of y. input_channel: an
// expression of c.
void add_thread_outputs(ShapeText& shape, Extents& extents, const Request& request,
                        ThreadShare share, std::string_view input_channel);
// The neighbouring channels that a thread stores at once.
StoreLanes store_lanes(ThreadShare share);
int64_t thread_count(const Dims& y, ThreadShare share);

// The axes of a tensor from the one whose neighbours are nearest in memory to the farthest.
std::vector<int> memory_order(const Operand& operand);
// Whether neighbours along axis 1 are nearest.
bool is_channels_first_in_memory(const Operand& operand);

}  // namespace anneal::cuda
