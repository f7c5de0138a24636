// Validation of a plan from an untrusted engine file.
#pragma once
#include <cstdint>
#include <optional>

#include "anneal/core/error.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/op/infer.h"

namespace anneal {

// Larger than any machine's memory; keeps sums of sizes far from overflow.
inline constexpr uint64_t kMaxArenaBytes = uint64_t{1} << 46;

// Fails with kIncompatiblePlan naming the step or slot and the rule it breaks: types are those that
// inference gives, weights exist, views lie within their bases, every slot is written before it is
// read and by one step, lifetimes cover all uses, arena buffers that live together do not overlap.
// Fails with LibraryError where the library of an operator from outside refuses what it took, or
// gave other types, when the engine was built.
class LibraryError : public Error {
 public:
  using Error::Error;
};
void check_plan(const Plan& plan, std::span<const Tensor> weights);

// Types of all slots as inference derives them step by step from the inputs' types. A slot that no
// step writes and that is neither input nor weight has no type. Fails as infer_layer does, naming
// the step.
std::vector<std::optional<Fact>> infer_slots(const Plan& plan, std::span<const Tensor> weights,
                                             SizeTable& sizes);

// The slot whose memory this one is, or is a part of.
uint32_t base_of(const Plan& plan, uint32_t slot);
// Whether the slot is no view, or one of all of its base as that is.
bool covers_base(const Plan& plan, const Slot& slot);

// Whether a weight has its slot's type, and lies row-major. Others lie as their slots' strides say.
bool is_row_major_weight(const Slot& slot, const Tensor& weight);

// The value of the input if the caller sets none; null: it has no default value.
const Tensor* default_value(const Plan& plan, std::span<const Tensor> weights, size_t input);

// Whether the value has the type, as far as its sizes are known.
bool may_hold(const Type& type, const Tensor& value);

// Whether every size is known, so that the arena is placed in the plan, not when sizes are bound.
bool is_static(const Plan& plan);

// Elements from the first to one past the last that a strided array touches. Fails with
// kInvalidArgument on negative strides or overflow.
int64_t extent(const Dims& dims, const Dims& strides);

}  // namespace anneal
