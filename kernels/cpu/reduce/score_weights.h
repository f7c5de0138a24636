// From the products of q and k to the weights of v in attention: the score's program and the
// softmax over keys, row by row, where the products lie.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/program/tape.h"
#include "anneal/kernels/cpu/program/tape_space.h"
#include "anneal/kernels/cpu/reduce/reduction_loops.h"
#include "anneal/kernels/cpu/reduce/score_mask.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

// Queries [first, first + count) of a head of q.
struct ScoreRows {
  int64_t batch = 0, head = 0, first = 0, count = 0;
};

class ScoreWeights {
 public:
  static Result<ScoreWeights> make(const Attention& op, const Request& request);

  // What depends on shapes.
  struct Prepared {
    Dims dims;          // batches, heads, queries and keys
    int64_t pitch = 0;  // of a row of scores, elements
    TapeSpace tape;
    KeyRanges ranges;
  };
  // inputs: of the layer, with q, k and v.
  Prepared prepare(std::span<const TensorView> inputs, const Dims& dims, int64_t pitch) const;

  // Finds the keys that queries see, once for each run, in memory of p.ranges.bytes().
  void find_ranges(const Prepared& p, std::span<const TensorView> inputs, ThreadTeam& team,
                   std::byte* ranges) const;

  // Scores of these keys become weights that are not divided by their sum yet; sums[row]: what to
  // multiply the row's result with. scores: of key 0 of the first row. scratch: of scratch_bytes().
  void weigh(const Prepared& p, std::span<const TensorView> inputs, const ScoreRows& rows,
             const KeyRange& keys, float* scores, float* sums, std::byte* scratch) const;
  size_t scratch_bytes() const { return tape_ ? tape_->scratch_bytes() : 0; }

 private:
  ScoreWeights() = default;
  // An input of the score's program for all scores.
  static TensorView mask(const Prepared& p, std::span<const TensorView> inputs, size_t input) {
    return broadcast(inputs[2 + input], p.dims);
  }
  std::span<const TensorView> program_inputs(std::span<const TensorView> inputs) const {
    return inputs.subspan(3, op_inputs_ - 3);
  }
  // All scores as the program sees them: every head's block lies in the same memory.
  static TensorView all_scores(const Prepared& p, std::byte* data) {
    return {DataType::kF32, p.dims, {0, 0, p.pitch, 1}, data};
  }
  void run_tape(const Prepared& p, std::span<const TensorView> inputs, const ScoreRows& rows,
                const KeyRange& keys, float* scores, std::byte* scratch) const;
  double largest(float* row, int64_t count, const float* mask) const;
  float exponentials(float* row, int64_t count, float most) const;

  bool hidden_is_zero_ = false;
  size_t op_inputs_ = 0;
  ReductionLoops loops_{};
  RunTape run_ = nullptr;
  std::optional<Tape> tape_;  // of a program that is more than a scale
  float scale_ = 1;           // without a tape
  std::optional<AddedMask> added_;
  std::optional<HidingInput> hiding_;
};

}  // namespace anneal::cpu
