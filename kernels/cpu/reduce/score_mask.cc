#include "anneal/kernels/cpu/reduce/score_mask.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace anneal::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowestNumber = std::numeric_limits<float>::lowest();
constexpr int64_t kKeysAtOnce = 64;

class ScoreReader {
 public:
  explicit ScoreReader(const Program& score) : program_(score), code_(score.code()) {}

  bool gives_f32() const {
    return program_.results().size() == 1 && program_.results()[0].dtype == DataType::kF32 &&
           program_.inputs()[0] == DataType::kF32;
  }
  size_t result() const { return program_.results()[0].reg; }
  const Instruction& at(size_t reg) const { return code_[reg]; }
  size_t operand(size_t reg, size_t i) const { return code_[reg].operands[i]; }

  bool is_input(size_t reg, uint64_t input, DataType dtype) const {
    return at(reg).opcode == Opcode::kInput && at(reg).immediate == input &&
           program_.inputs()[input] == dtype;
  }
  std::optional<size_t> mask_of(size_t reg, DataType dtype) const {
    const Instruction& made = at(reg);
    if (made.opcode != Opcode::kInput || made.immediate == 0) return std::nullopt;
    if (program_.inputs()[made.immediate] != dtype) return std::nullopt;
    return made.immediate;
  }
  std::optional<float> number(size_t reg) const {
    const Instruction& made = at(reg);
    if (made.opcode != Opcode::kConstant || made.type != RegisterType::kF32) return std::nullopt;
    return std::bit_cast<float>(static_cast<uint32_t>(made.immediate));
  }
  bool is_infinity(size_t reg) const { return number(reg) == -kInfinity; }
  bool is_lowest(size_t reg) const {
    const auto made = number(reg);
    return made && *made <= kLowestNumber;
  }
  // Of the score itself, or its product with a number.
  std::optional<float> scale(size_t reg) const {
    if (is_input(reg, 0, DataType::kF32)) return 1.0F;
    if (at(reg).opcode != Opcode::kMul) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}})
      if (const auto factor = number(operand(reg, i));
          factor && is_input(operand(reg, 1 - i), 0, DataType::kF32))
        return factor;
    return std::nullopt;
  }
  // Whether a select gives -inf where that input is it.
  bool keeps_hidden(size_t reg, size_t input) const {
    if (at(reg).opcode != Opcode::kSelect || at(operand(reg, 0)).opcode != Opcode::kEqual)
      return false;
    const size_t equal = operand(reg, 0);
    return is_input(operand(reg, 1), input, DataType::kF32) &&
           ((is_input(operand(equal, 0), input, DataType::kF32) &&
             is_infinity(operand(equal, 1))) ||
            (is_input(operand(equal, 1), input, DataType::kF32) && is_infinity(operand(equal, 0))));
  }

 private:
  const Program& program_;
  std::span<const Instruction> code_;
};

// depth: of sums, each of which may be visited twice as often as the one around it.
std::optional<HidingInput> hides(const ScoreReader& score, size_t reg, int depth = 0) {
  constexpr int kMostDepth = 8;
  if (depth > kMostDepth) return std::nullopt;
  using By = HidingInput::By;
  switch (score.at(reg).opcode) {
    case Opcode::kInput:
      if (const auto mask = score.mask_of(reg, DataType::kF32))
        return HidingInput{*mask, By::kInfinity};
      return std::nullopt;
    case Opcode::kAdd: {
      const size_t left = score.operand(reg, 0), right = score.operand(reg, 1);
      auto found = hides(score, left, depth + 1);
      const size_t other = found ? right : left;
      if (!found) found = hides(score, right, depth + 1);
      if (found && found->by == By::kInfinity && score.scale(other)) found->by = By::kLowest;
      return found;
    }
    case Opcode::kSelect: {
      size_t condition = score.operand(reg, 0);
      const size_t if_true = score.operand(reg, 1), if_false = score.operand(reg, 2);
      if (const auto mask = score.mask_of(if_true, DataType::kF32))
        return score.keeps_hidden(reg, *mask) ? hides(score, if_false, depth + 1) : std::nullopt;
      bool is_negated = false;
      if (score.at(condition).opcode == Opcode::kNot)
        condition = score.operand(condition, 0), is_negated = true;
      const auto mask = score.mask_of(condition, DataType::kBool);
      // The lowest number hides a key only beside scores that nothing else hides.
      const auto is_hidden = [&](size_t branch, size_t other) {
        return score.is_infinity(branch) || (score.is_lowest(branch) && score.scale(other));
      };
      const bool hides_true = is_hidden(if_true, if_false);
      if (!mask || hides_true == is_hidden(if_false, if_true)) return std::nullopt;
      return HidingInput{*mask, hides_true != is_negated ? By::kTrue : By::kFalse};
    }
    default:
      return std::nullopt;
  }
}

bool has_nonzero(const std::byte* bytes, int64_t count) {
  return std::any_of(bytes, bytes + count, [](std::byte each) { return each != std::byte{0}; });
}
bool has_zero(const std::byte* bytes, int64_t count) {
  return std::find(bytes, bytes + count, std::byte{0}) != bytes + count;
}

}  // namespace

std::optional<float> scale_of(const Program& score) {
  const ScoreReader reader(score);
  if (score.inputs().size() != 1 || !reader.gives_f32()) return std::nullopt;
  const auto scale = reader.scale(reader.result());
  const bool is_product = reader.at(reader.result()).opcode == Opcode::kMul;
  return scale && is_product && std::isnormal(*scale) && *scale > 0 ? scale : std::nullopt;
}

std::optional<AddedMask> added_mask(const Program& score) {
  const ScoreReader reader(score);
  if (score.inputs().size() != 2 || !reader.gives_f32()) return std::nullopt;
  size_t sum = reader.result();
  const bool keeps_hidden = reader.keeps_hidden(sum, 1);
  if (keeps_hidden) sum = reader.operand(sum, 2);
  if (reader.at(sum).opcode != Opcode::kAdd) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}})
    if (const auto scale = reader.scale(reader.operand(sum, i));
        scale && reader.is_input(reader.operand(sum, 1 - i), 1, DataType::kF32))
      return AddedMask{*scale, keeps_hidden};
  return std::nullopt;
}

std::optional<HidingInput> hiding_input(const Program& score) {
  const ScoreReader reader(score);
  if (score.empty() || !reader.gives_f32()) return std::nullopt;
  return hides(reader, reader.result());
}

KeyRanges::KeyRanges(HidingInput::By by, const TensorView& mask) : by_(by), keys_(mask.dims[3]) {
  constexpr int64_t kLeastKeys = 2 * kKeysAtOnce;
  if (mask.strides[3] != 1 || keys_ < kLeastKeys) return;
  for (int axis = 0; axis < 3; ++axis)
    rows_.push_back(mask.strides[axis] == 0 ? 1 : mask.dims[axis]);
}

size_t KeyRanges::bytes() const {
  return rows_.rank() > 0 ? static_cast<size_t>(count(rows_)) * sizeof(KeyRange) : 0;
}

void KeyRanges::find(const TensorView& mask, const ReductionLoops& loops, ThreadTeam& team,
                     std::byte* ranges) const {
  if (rows_.rank() == 0) return;
  auto* const found = reinterpret_cast<KeyRange*>(ranges);
  const auto size = static_cast<int64_t>(size_of(mask.dtype));
  team.for_ranges(count(rows_), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t query = i % rows_[2], head = i / rows_[2] % rows_[1],
                    batch = i / rows_[2] / rows_[1];
      const int64_t offset =
          batch * mask.strides[0] + head * mask.strides[1] + query * mask.strides[2];
      found[i] = find_row(mask.data + offset * size, loops);
    }
  });
}

KeyRange KeyRanges::find_row(const std::byte* row, const ReductionLoops& loops) const {
  const bool is_f32 = by_ == HidingInput::By::kInfinity || by_ == HidingInput::By::kLowest;
  const int64_t size = is_f32 ? int64_t{sizeof(float)} : 1;
  const auto is_hidden = [&](int64_t begin, int64_t end) {
    return !has_visible(row + begin * size, end - begin, loops);
  };
  KeyRange range{0, keys_};
  while (range.begin < keys_ && is_hidden(range.begin, std::min(range.begin + kKeysAtOnce, keys_)))
    range.begin += kKeysAtOnce;
  if (range.begin >= keys_) return {0, keys_};
  while (range.end > range.begin + kKeysAtOnce && is_hidden(range.end - kKeysAtOnce, range.end))
    range.end -= kKeysAtOnce;
  return range;
}

bool KeyRanges::has_visible(const std::byte* keys, int64_t count,
                            const ReductionLoops& loops) const {
  switch (by_) {
    case HidingInput::By::kFalse:
      return has_nonzero(keys, count);
    case HidingInput::By::kTrue:
      return has_zero(keys, count);
    case HidingInput::By::kInfinity:
    case HidingInput::By::kLowest:
      break;
  }
  const double most = loops.row(Reduction::kMax, reinterpret_cast<const float*>(keys), count, 0);
  const double hidden = by_ == HidingInput::By::kLowest ? double{kLowestNumber} : -kInfinity;
  return !(most <= hidden);  // NaN is visible
}

KeyRange KeyRanges::of(const std::byte* ranges, int64_t batch, int64_t head, int64_t first,
                       int64_t count, int64_t multiple) const {
  if (rows_.rank() == 0) return {0, keys_};
  const auto place = [&](int axis, int64_t at) { return rows_[axis] == 1 ? 0 : at; };
  const KeyRange* const rows = reinterpret_cast<const KeyRange*>(ranges) +
                               (place(0, batch) * rows_[1] + place(1, head)) * rows_[2];
  KeyRange all = rows[place(2, first)];
  for (int64_t i = 1; i < (rows_[2] == 1 ? 1 : count); ++i) {
    all.begin = std::min(all.begin, rows[first + i].begin);
    all.end = std::max(all.end, rows[first + i].end);
  }
  all.begin -= all.begin % multiple;
  return all;
}

}  // namespace anneal::cpu
