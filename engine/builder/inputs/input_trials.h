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
// integers 1, the least and the largest of their ranges. Then the error tells: inputs that decide
// sizes take numbers that it names, alike, with such a product or with such a sum, and numbers that
// layers look for occur so often. What lets a run come further stays for the next error. Not
// thread-safe.
class InputTrials {
 public:
  // threads: of a run; 0: one per core. REQUIRES: the engine outlives it; one input for each of the
  // engine.
  InputTrials(const Engine& engine, std::vector<TrialInput> inputs, int threads = 0);

  // nullopt: a run on inputs of those dims ended well. Else the failure that came furthest. Runs
  // nothing once they have taken some seconds together.
  std::optional<StepFailure> run(std::span<const Dims> dims);
  // In the way that ended well, at first the first.
  std::vector<Tensor> draw(std::span<const Dims> dims) const;
  int runs() const { return runs_; }  // so far

 private:
  enum class Content : uint8_t {
    kAlike,  // each element is the number
    kLast,   // the last is the number, those before it are 1
    kSum,    // parts of the number that are as equal as they can be, the last the largest
    kCount,  // the number is the count of elements that equal the marker
  };
  // Of one input; of all that may decide sizes together.
  struct Choice {
    std::optional<size_t> input = {};
    Content content = Content::kAlike;
    int64_t number = 0, marker = 0;
  };
  struct Way {
    std::optional<double> value = {};  // of all integers; none: spread over the range
    std::vector<Choice> choices = {};  // for the inputs that they name, instead
  };
  const Plan& plan_for(std::span<const Dims> dims) const;  // that runs at these dims
  std::vector<InputRange> ranges_at(std::span<const Dims> dims) const;
  std::vector<Tensor> draw(std::span<const Dims> dims, std::span<const InputRange> ranges,
                           const Way& way) const;
  void choose(const Choice& choice, std::span<const Dims> dims, std::span<const InputRange> ranges,
              std::vector<Tensor>& tensors) const;
  std::vector<Choice> choices_for(const std::string& error, std::span<const Dims> dims,
                                  std::span<const InputRange> ranges, const Way& way) const;
  std::optional<StepFailure> follow(std::span<const Dims> dims, std::span<const InputRange> ranges,
                                    StepFailure failure);
  bool may_decide(size_t input, std::span<const Dims> dims,
                  std::span<const InputRange> ranges) const;
  bool is_late() const;
  std::optional<StepFailure> run_once(const std::vector<Tensor>& tensors);

  std::shared_ptr<const Engine> engine_;
  std::vector<TrialInput> inputs_;
  int threads_;
  Way way_;
  int runs_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace anneal
