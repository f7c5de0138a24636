// A plan at one choice of sizes: what inference says of its slots, in numbers.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/op/infer.h"

namespace anneal {

// An axis of a slot that is shorter than a step reads.
struct ShortAxis {
  uint32_t slot = kNoSlot;
  int axis = 0;
  int64_t wanted = 0;  // the least size that would do
};

// The first step that does not accept the sizes, or has an empty result for them.
struct SizeComplaint {
  std::optional<size_t> step;  // none: the inputs contradict each other
  std::string text;
  // It accepts them, but has no elements, or runs a body whose layers may not.
  bool is_soft = false;
  std::optional<ShortAxis> short_axis = {};  // if that is why
};

struct SizedPlan {
  std::vector<Fact> facts;                 // by slot; sizes that depend on values are unknown
  std::optional<SizeComplaint> complaint;  // inference ended there, unless it is soft
};

// symbols: the values of those that inputs know.
SizedPlan sized_plan(const Plan& plan, std::span<const Tensor> weights,
                     const SymbolValues& symbols);
// By slot, for a body, given the facts of its inputs. Results that its layers refuse are unknown.
std::vector<Fact> sized_body(const Plan& body, std::span<const Tensor> weights,
                             const SymbolValues& symbols, std::span<const Fact> inputs);

}  // namespace anneal
