// One walk through the steps of a plan with the intervals of its values.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "anneal/engine/builder/inputs/value_ranges.h"

namespace anneal {

// Values by slot. Not thread-safe.
class ValueWalk {
 public:
  // REQUIRES: all arguments outlive it. depth: of a body within bodies.
  ValueWalk(const Plan& plan, std::span<const Tensor> weights, const std::vector<Fact>& facts,
            const SymbolValues& symbols, int depth);

  // The outputs, and the findings on the way. inputs: one per input of the plan.
  std::vector<ValueRange> run(std::span<const ValueRange> inputs, RangeFindings& findings);

  ValueRange value(uint32_t slot);
  ValueRange input(const Step& step, size_t i) {
    return i < step.inputs.size() ? value(step.inputs[i]) : ValueRange{{0, 0}, -1};
  }
  static bool has(const Step& step, size_t i) {
    return i < step.op_input_count && step.inputs[i] != kNoSlot;
  }
  bool is_known(uint32_t slot) const { return known_[slot].has_value(); }
  // Whether the slot's contents are known only at run time.
  bool is_decided_late(uint32_t slot) const {
    return !is_known(slot) && plan_.slots[slot].storage != Storage::kWeight;
  }
  const Shape& shape(uint32_t slot) const { return facts_[slot].type.shape; }
  // The size of an axis, or the least that it can be; nullopt where nothing is known.
  std::optional<double> size_of_axis(uint32_t slot, int64_t axis) const;
  std::vector<int64_t> dims_of_slot(uint32_t slot) const;
  double elements_of_axes(uint32_t slot) const;
  // For a slot with unknown sizes.
  void set_least_dims(uint32_t slot, std::vector<double> dims) { least_[slot] = std::move(dims); }
  // Slots that are columns of the last axis of a tensor, by column; empty where it has none.
  std::map<int64_t, uint32_t> columns_of(uint32_t slot) const;

  const Plan& plan() const { return plan_; }
  bool is_outermost() const { return depth_ == 0; }
  RangeFindings& findings() const { return *findings_; }
  std::vector<ValueRange> run_body(int64_t index, const Step& step,
                                   const std::vector<std::pair<ValueRange, Fact>>& inputs);
  const Fact& fact(uint32_t slot) const { return facts_[slot]; }

 private:
  std::optional<ValueRange> unwritten(uint32_t slot);
  bool overwrites(uint32_t writer, uint32_t slot) const;
  std::optional<int64_t> number_of(Size size) const;
  void run(const Step& step);
  std::vector<ValueRange> after_epilogues(const Step& step, std::vector<ValueRange> results);

  const Plan& plan_;
  std::span<const Tensor> weights_;
  const std::vector<Fact>& facts_;
  const SymbolValues& symbols_;
  int depth_;
  std::vector<std::optional<ValueInterval>> known_;        // by slot: contents that never change
  std::vector<bool> is_written_;                           // by slot
  std::map<uint32_t, std::vector<uint32_t>> writers_;      // by base: what was written in this run
  std::vector<std::optional<ValueRange>> values_;          // by slot, of this run
  std::vector<std::optional<std::vector<double>>> least_;  // by slot: the least dims, where unknown
  std::map<std::pair<const Step*, int64_t>,
           std::pair<std::vector<Fact>, std::unique_ptr<ValueWalk>>>
      bodies_;
  RangeFindings* findings_ = nullptr;
};

}  // namespace anneal
