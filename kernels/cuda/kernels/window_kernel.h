// Kernels of device/window.h, in which a thread computes a few neighbouring channels of one place
// of the output.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/text/window_text.h"

namespace anneal::cuda {

struct WindowKernel {
  std::string_view family;
  std::string_view header;                 // of device/, behind window.h
  ThreadShare share;                       // as add_thread_outputs() was given it
  DataType accumulator;                    // of the values that are stored
  size_t inputs = 1;                       // of the op, which the function has as x0, x1, ...
  std::string definitions;                 // of types that the call names
  std::string call;                        // "resize<Taps, 4, f32>(s, x0, aligned != 0, result)"
  std::vector<VectorAccess> vectors = {};  // as in FunctionParts
  std::string_view if_empty;  // what a launch fails with if input 0 is empty, but the output is not
};

// The kernel whose function makes the Shape `s` and a Result of the request's store, and calls.
KernelResult make_window_kernel(const Request& request, Extents& extents, const ShapeText& shape,
                                WindowKernel kernel);

// The most channels of an input that a thread may read at once: 16 bytes, and no more than `most`.
int readable_channels(const Operand& x, int64_t most);

}  // namespace anneal::cuda
