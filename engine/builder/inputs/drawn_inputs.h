// Inputs for a plan without data: sizes that its layers accept together, and numbers that its
// layers can read.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/engine/builder/inputs/input_range.h"
#include "anneal/engine/plan.h"

namespace anneal {

// The choice of a size that the build declared a range for; a size that was left open is chosen to
// be small. kLarger: as kLargest, and a size that was left open is four times as large, or 32
// iterations.
enum class SizeChoice : uint8_t { kOptimal, kSmallest, kLargest, kLarger };

// A step of a run that failed, and why.
struct StepFailure {
  size_t step = 0;
  std::string text;
};
// Runs the plan on inputs of those dims; nullopt: it ran.
using TrialRun = std::function<std::optional<StepFailure>(std::span<const Dims>)>;

// Dims of all inputs with which the plan binds. given: by input, fixed dims; may be empty. Sizes
// that were not given keep their declared value if the layers agree, else take another one of the
// declared range. run: called with dims that all layers accept before values are known, until it
// accepts them, some 50 times at most; if it never does, the result is the choice that came
// furthest. Deterministic. Fails with kInvalidArgument if no dims are found, naming the inputs, the
// step that refuses and --shapes.
std::vector<Dims> choose_input_dims(const Plan& plan, std::span<const Tensor> weights,
                                    SizeChoice sizes = SizeChoice::kOptimal,
                                    std::span<const std::optional<Dims>> given = {},
                                    const TrialRun& run = {});

// By input: the range of its elements at these sizes, so that every Gather, scatter, length, size
// and condition that follows from it gets accepted values, whatever the other inputs hold within
// their ranges. Negative indices are left out. For floats and booleans 0 and 1. If an input decides
// sizes or numbers of iterations, its range ends most_steps above its least. REQUIRES: dims bind.
std::vector<InputRange> input_ranges(const Plan& plan, std::span<const Tensor> weights,
                                     std::span<const Dims> dims,
                                     int64_t most_steps = kMostDecidedSteps);

// Floats uniform in [0, 1), booleans, integers uniform in the range; an index with two elements or
// more has both ends among them. Masks are 1 for the first elements of each row, and then 0. The
// same on every machine. With at_end, a single element is the high end.
Tensor draw_input(DataType dtype, const Dims& dims, const InputRange& range, uint64_t seed,
                  bool at_end = false);

// All integers and booleans are value, or the end of the range that is nearest to it. Floats are as
// above.
Tensor alike_input(DataType dtype, const Dims& dims, const InputRange& range, uint64_t seed,
                   double value);

// One tensor for each input, drawn with seeds from `seed` on; its default value where that has
// these dims.
std::vector<Tensor> draw_inputs(const Plan& plan, std::span<const Tensor> weights,
                                std::span<const Dims> dims, uint64_t seed, bool at_end = false);

}  // namespace anneal
