// The text of kernels that walk along one axis: a line has the elements along it, and the other
// axes count lines.
#pragma once
#include <string>
#include <string_view>

#include "anneal/kernels/cuda/text/operand_views.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {

class Lines {
 public:
  // Of input 0, and of all outputs.
  Lines(const Request& request, Extents& extents, int axis)
      : request_(request), extents_(extents), axis_(axis) {}

  std::string count() const;
  std::string length() const { return extents_.input_dim(0, axis_); }
  // "const i64 i0 = ...": of `line`, on all axes but this one.
  std::string coordinates() const;
  // The offset of element 0 of the line, and the distance from one element to the next.
  std::string base(OperandAt of) const;
  std::string step(OperandAt of) const { return extents_.stride(of.output, of.index, axis_); }

  // The lines of a binding.
  static int64_t count(const Dims& x, int axis);

 private:
  const Request& request_;
  Extents& extents_;
  int axis_;
};

// At the sizes to optimize for, 1 at least.
int64_t usual_lines(const Request& request, int axis);
int64_t usual_length(const Request& request, int axis);

// A loop over lines, `threads` of a block of `block_threads` for each: in `body` there is `line`.
std::string line_loop(int threads, int block_threads, const std::string& body);

}  // namespace anneal::cuda
