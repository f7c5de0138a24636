// Runs of an engine on drawn inputs, to find inputs that it accepts.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/error.h"
#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// Whether sizes or indices inside the plan follow from values that nothing limits before a run.
bool may_refuse_values(const Plan& plan);

// Whether an error of a run tells that it does not accept its inputs. Sizes that follow from values
// are refused as the model's.
bool refuses_arguments(const Error& error);

// The content of an input: a tensor, or drawn numbers.
struct TrialInput {
  std::optional<Tensor> given;
  uint64_t seed = 0;
};

// Draws inputs in different ways and runs the engine on them: as draw_input() does; then all
// integers 1, the least and the largest of their ranges; then those that decide sizes at numbers
// that the error names, alike or with such a product. Not thread-safe.
class InputTrials {
 public:
  // REQUIRES: the engine outlives it; one input for each of the engine.
  InputTrials(const Engine& engine, std::vector<TrialInput> inputs);

  // nullopt: a run on inputs of those dims ended well. Else what became of the first way. Runs
  // nothing once they have taken some seconds together.
  std::optional<StepFailure> run(std::span<const Dims> dims);
  // In the way that ended well, at first the first.
  std::vector<Tensor> draw(std::span<const Dims> dims) const;
  int runs() const { return runs_; }  // so far

 private:
  enum class Sizes : uint8_t {
    kAsOthers,
    kAlike,  // each is the value, and the others are spread
    kLast,   // the last is the value, those before it are 1, and the others are spread
  };
  struct Way {
    std::optional<double> value = {};  // none: spread over the range
    Sizes sizes = Sizes::kAsOthers;
  };
  std::vector<InputRange> ranges_at(std::span<const Dims> dims) const;
  std::vector<Tensor> draw(std::span<const Dims> dims, std::span<const InputRange> ranges,
                           const Way& way) const;
  std::optional<StepFailure> run_once(const std::vector<Tensor>& tensors);
  std::optional<StepFailure> failure_of(const std::string& text) const;

  std::shared_ptr<const Engine> engine_;
  std::vector<TrialInput> inputs_;
  Way way_;
  int runs_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace anneal
