// The softmax of the top-k elements of a line. Each block of the line has its own maximum and sum
// of exponentials, and together they give those of the line. Blocks begin at fixed places, so that
// results do not depend on how a line is shared out.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/program/tape.h"
#include "anneal/kernels/cpu/reduce/reduction_loops.h"

namespace anneal::cpu {

// most: the largest number, leaving NaN aside. sum: of exp(x - most), NaN if there is a NaN.
struct ExpSum {
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0;
};
inline ExpSum joined(const ExpSum& a, const ExpSum& b) {
  const double most = std::max(a.most, b.most);
  // Where both are -infinity, their difference is NaN.
  const auto moved = [&](const ExpSum& one) {
    return one.most == most ? one.sum : one.sum * std::exp(one.most - most);
  };
  return {most, moved(a) + moved(b)};
}

class TopKSoftmax {
 public:
  static constexpr int64_t kBlock = 4096;  // elements

  TopKSoftmax(DataType dtype, bool log, Isa isa)
      : dtype_(dtype), log_(log), loops_(reduction_loops(isa)), load_(load_block(isa)) {}

  // The sum over n <= kBlock adjacent elements.
  ExpSum sum_of(const std::byte* x, int64_t n) const {
    alignas(64) float lanes[kBlock];
    if (dtype_ != DataType::kF32) {
      const TapePort port{const_cast<std::byte*>(x), 0, n, 1};
      load_(dtype_, port, reinterpret_cast<std::byte*>(lanes), n, 1, n);
    }
    const float* const from = dtype_ == DataType::kF32 ? reinterpret_cast<const float*>(x) : lanes;
    constexpr float kNone = start_of(Reduction::kMax);
    const auto most = static_cast<float>(loops_.row(Reduction::kMax, from, n, 0));
    if (most == kNone) return {};
    if (std::isnan(most)) return {kNone, most};
    return {most, loops_.row(Reduction::kExp, from, n, most)};
  }

  // Elements of a line become what its softmax has in their place.
  void apply(const ExpSum& line, float* x, int64_t n) const {
    if (std::isnan(line.sum)) return std::fill(x, x + n, std::numeric_limits<float>::quiet_NaN());
    const auto most = static_cast<float>(line.most);
    if (log_)
      return loops_.map_row(Map::kAffine, x, n, most, 1, -static_cast<float>(std::log(line.sum)),
                            x);
    loops_.map_row(Map::kExp, x, n, most, static_cast<float>(1 / line.sum), 0, x);
  }

 private:
  DataType dtype_;
  bool log_;
  ReductionLoops loops_;
  LoadBlock load_;
};

}  // namespace anneal::cpu
