#include "anneal/kernels/cpu/reduce/score_weights.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/reference/program_map.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kMostAtOnce = 1 << 16;  // elements of a row, for loops over rows

}  // namespace

Result<ScoreWeights> ScoreWeights::make(const Attention& op, const Request& request) {
  ScoreWeights made;
  made.hidden_is_zero_ = op.hidden_is_zero;
  made.op_inputs_ = static_cast<size_t>(request.op_input_count);
  made.loops_ = reduction_loops(isa_of(request.device));
  made.run_ = anneal::cpu::run_tape(isa_of(request.device));
  if (op.score.empty()) return made;
  made.added_ = added_mask(op.score);
  made.hiding_ = hiding_input(op.score);
  if (const auto scale = scale_of(op.score)) {
    made.scale_ = *scale;
    return made;
  }
  auto tape = Tape::compile(widened_result(op.score));
  if (!tape) return Refusal{tape.reason()};
  made.tape_ = *std::move(tape);
  return made;
}

ScoreWeights::Prepared ScoreWeights::prepare(std::span<const TensorView> inputs, const Dims& dims,
                                             int64_t pitch) const {
  Prepared p{.dims = dims, .pitch = pitch, .tape = {}, .ranges = KeyRanges(dims[3])};
  if (tape_)
    p.tape = TapeSpace::of_accumulators(*tape_, program_inputs(inputs),
                                        std::array{all_scores(p, nullptr)}, {{0, 1, 2}, 3});
  if (hiding_) p.ranges = KeyRanges(hiding_->by, mask(p, inputs, hiding_->input));
  return p;
}

void ScoreWeights::find_ranges(const Prepared& p, std::span<const TensorView> inputs,
                               ThreadTeam& team, std::byte* ranges) const {
  if (hiding_) p.ranges.find(mask(p, inputs, hiding_->input), loops_, team, ranges);
}

void ScoreWeights::weigh(const Prepared& p, std::span<const TensorView> inputs,
                         const ScoreRows& rows, const KeyRange& keys, float* scores, float* sums,
                         std::byte* scratch) const {
  const int64_t count = keys.end - keys.begin;
  const TensorView added = added_ ? mask(p, inputs, 1) : TensorView{};
  const bool is_added = added_ && added.strides[3] == 1;
  if (tape_ && !is_added && count > 0) run_tape(p, inputs, rows, keys, scores, scratch);
  const int64_t first = is_added ? rows.batch * added.strides[0] + rows.head * added.strides[1] +
                                       rows.first * added.strides[2] + keys.begin
                                 : 0;
  for (int64_t row = 0; row < rows.count; ++row) {
    float* const line = scores + row * p.pitch + keys.begin;
    const float* const mask_row =
        is_added ? added.as<float>() + first + row * added.strides[2] : nullptr;
    sums[row] = exponentials(line, count, static_cast<float>(largest(line, count, mask_row)));
  }
}

void ScoreWeights::run_tape(const Prepared& p, std::span<const TensorView> inputs,
                            const ScoreRows& rows, const KeyRange& keys, float* scores,
                            std::byte* scratch) const {
  auto* const data = reinterpret_cast<std::byte*>(scores);
  const TensorView whole = all_scores(p, data - rows.first * p.pitch * 4);
  const TapeSpace::Operands operands{
      program_inputs(inputs), {&whole, 1}, {data + keys.begin * 4, p.pitch}};
  const int64_t row = (rows.batch * p.dims[1] + rows.head) * p.dims[2] + rows.first;
  p.tape.run(run_, *tape_, operands, {row, rows.count, keys.begin, keys.end - keys.begin}, scratch);
}

// Of the scores, to which the mask is added first; null: there is none.
double ScoreWeights::largest(float* row, int64_t count, const float* mask) const {
  double most = start_of(Reduction::kMax);
  for (int64_t i = 0; i < count; i += kMostAtOnce) {
    const int64_t n = std::min(kMostAtOnce, count - i);
    const double part = mask == nullptr ? loops_.row(Reduction::kMax, row + i, n, 0)
                                        : loops_.mask_row(row + i, mask + i, n, added_->scale,
                                                          added_->keeps_hidden);
    most = combined(Reduction::kMax, most, part);
  }
  return most;
}

// Scores become exponentials; what to multiply with in the end.
float ScoreWeights::exponentials(float* row, int64_t count, float most) const {
  if (count == 0) return 0;
  if (hidden_is_zero_ && most == -std::numeric_limits<float>::infinity()) {
    std::fill(row, row + count, 0.0f);
    return 0;
  }
  double sum = 0;
  for (int64_t i = 0; i < count; i += kMostAtOnce)
    sum += loops_.exp_row(row + i, std::min(kMostAtOnce, count - i), most, scale_, row + i);
  return static_cast<float>(1 / sum);
}

}  // namespace anneal::cpu
