// What score programs of attention do that needs no tape: they scale scores, add a mask, and hide
// keys from queries.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "anneal/core/parallel.h"
#include "anneal/core/tensor.h"
#include "anneal/graph/program/program.h"
#include "anneal/kernels/cpu/reduce/reduction_loops.h"

namespace anneal::cpu {

// For a program that only multiplies by a positive number, which keeps the largest score the
// largest.
std::optional<float> scale_of(const Program& score);

// score * scale + input 1 of the program, f32. keeps_hidden: -inf where input 1 is that, whatever
// the score is.
struct AddedMask {
  float scale = 1;
  bool keeps_hidden = false;
};
std::optional<AddedMask> added_mask(const Program& score);

// An input that hides keys: where it is so, the score is -inf, or has the weight 0 beside one that
// is not hidden. A score of NaN or +inf that is hidden counts as hidden, though a sum with -inf is
// NaN.
struct HidingInput {
  // kInfinity: f32, -inf. kLowest: f32, -inf or the lowest number, where nothing else than this
  // input and a factor makes the score. kFalse, kTrue: bool.
  enum class By : uint8_t { kInfinity, kLowest, kFalse, kTrue };
  size_t input = 0;  // of the program
  By by = By::kInfinity;
};
std::optional<HidingInput> hiding_input(const Program& score);

struct KeyRange {
  int64_t begin = 0, end = 0;
};

// The keys between the first and the last that a query sees, for each row of a mask. All others
// have the weight 0.
class KeyRanges {
 public:
  explicit KeyRanges(int64_t keys = 0) : keys_(keys) {}  // all keys for all rows
  // mask: broadcast to [batches, heads, queries, keys]. All keys for all rows where it has fewer
  // than 128 keys, or not next to each other. Ranges are multiples of 64 keys.
  KeyRanges(HidingInput::By by, const TensorView& mask);

  size_t bytes() const;  // of the ranges' memory
  void find(const TensorView& mask, const ReductionLoops& loops, ThreadTeam& team,
            std::byte* ranges) const;
  // Of queries [first, first + count) together, from a multiple of `multiple` on. A row that sees
  // no key counts as one that sees all.
  KeyRange of(const std::byte* ranges, int64_t batch, int64_t head, int64_t first, int64_t count,
              int64_t multiple) const;

 private:
  KeyRange find_row(const std::byte* row, const ReductionLoops& loops) const;
  bool has_visible(const std::byte* keys, int64_t count, const ReductionLoops& loops) const;

  HidingInput::By by_ = HidingInput::By::kInfinity;
  int64_t keys_ = 0;
  Dims rows_;  // batches, heads and queries, 1 where the mask is the same for all; empty: no ranges
};

}  // namespace anneal::cpu
