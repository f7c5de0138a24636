// The inputs that f32 and a plan of lower precision run on side by side.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/run/engine.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

struct ComparisonInput {
  std::string what;  // "drawn inputs of the largest sizes"
  std::vector<Tensor> tensors;
  bool is_drawn = false;
  bool is_refused = false;  // by the model, when it ran
  bool is_large = false;    // floats from 0 to 256: judged by overflow alone
  bool is_plain = false;    // floats are not those of the table's ranges
  bool is_extra = false;    // its sizes are optional: a refusal is not reported
};

// Samples, or else drawn inputs at the sizes of the plan's profile. Inputs that need too much work,
// or have no sizes, are left out. The same on every machine.
class ComparisonInputs {
 public:
  // most_work: multiply-adds of all runs. REQUIRES: plan and weights outlive it.
  ComparisonInputs(const Plan& plan, std::span<const Tensor> weights, double most_work)
      : plan_(plan), weights_(weights), most_work_(most_work) {}

  void take(const std::vector<std::vector<Tensor>>& samples, std::span<const TensorInfo> ports);
  // The distribution of floats with a range in the table: uniform over the range, which reaches
  // larger sums than samples do, or normal, as samples are spread, for 8 bits, which cut off values
  // beyond the samples.
  enum class Spread : uint8_t { kUniform, kNormal };
  struct FloatRanges {
    const CalibrationTable* table = nullptr;  // may be null
    Spread spread = Spread::kUniform;
    bool may_overflow = false;  // where there is no table, floats from 0 to 256 are drawn as well
  };
  void draw(const FloatRanges& ranges);
  // In place of drawn floats: from 0 to 1, of which more functions make numbers.
  void draw_plainer(ComparisonInput& input) const;
  // In place of integers, and then of floats too if that is not enough: numbers with which a run of
  // f32 ends well. False: none were found.
  bool draw_accepted(ComparisonInput& input, const Engine& f32, int threads);
  void leave_out(ComparisonInput& input, const std::string& why);

  std::vector<ComparisonInput>& all() { return inputs_; }
  const std::string& left_out() const { return left_out_; }  // what, and why

 private:
  bool may_run(std::span<const Dims> dims, const std::string& what);
  bool is_cheap(std::span<const Dims> dims) const;
  std::string why_not_drawn() const;
  void try_sizes(SizeChoice sizes, const FloatRanges& ranges);
  void draw_large_floats();
  void draw_longer();
  void note(const std::string& what, const std::string& why);

  const Plan& plan_;
  std::span<const Tensor> weights_;
  double most_work_;
  double work_ = 0;
  std::vector<std::vector<Dims>> tried_;
  std::vector<ComparisonInput> inputs_;
  std::string left_out_;
};

}  // namespace anneal
