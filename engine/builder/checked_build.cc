#include "anneal/engine/builder/checked_build.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/milliseconds.h"
#include "anneal/engine/builder/f32_build.h"
#include "anneal/engine/builder/inputs/input_trials.h"
#include "anneal/engine/builder/self_check/comparison_inputs.h"
#include "anneal/engine/builder/self_check/eight_bit_faults.h"
#include "anneal/engine/builder/self_check/plan_comparison.h"
#include "anneal/engine/builder/self_check/plan_layers.h"
#include "anneal/engine/builder/self_check/table_misfit.h"
#include "anneal/engine/run/memory/shared_packing.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/precision/weight_format.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

// Builds again at most so often.
constexpr int kMostRebuilds = 4;
// Reverting layers to f32 is worth it if at most this part of the difference is left.
constexpr double kWorthIt = 0.5;
// Of the model's weights in f32, as which the check holds those that the model has in another type.
constexpr uint64_t kMostWeightBytes = uint64_t{4} << 30;
// Inputs are drawn again if this share of their f32 results is not finite.
constexpr double kBlind = 0.25;

bool has_integer_weights(const PrecisionOptions& options) { return !options.weight_format.empty(); }

bool is_lower(const PrecisionOptions& precision) {
  return precision.allows_half() || precision.allows(Precision::kI8) ||
         has_integer_weights(precision) ||
         std::ranges::any_of(precision.layers, [](const LayerPrecision& layer) {
           return layer.precision != Precision::kF32;
         });
}

bool uses(const PrecisionOptions& options, Precision precision) {
  return options.allows(precision) ||
         std::ranges::any_of(options.layers, [&](const LayerPrecision& layer) {
           return layer.precision == precision;
         });
}

// Of the lowest precision: half a last place, or the rounding error of 255 steps over a range.
double unit_of(const PrecisionOptions& options) {
  if (has_integer_weights(options)) return 1;
  if (uses(options, Precision::kI8)) return 0x1p-7;
  return uses(options, Precision::kBF16) ? 0x1p-8 : 0x1p-11;
}

// Integers of 4 bits change weights by 8 % of their root mean square, and those of 8 bits by 0.6 %.
// Networks that stand this have results that are off by a few times as much, however deep they are.
double most_explained(const PrecisionOptions& options) {
  switch (parse_weight_format(options.weight_format).bits) {
    case 4:
      return 0.5 / kToldFrom;
    case 8:
      return 0.1 / kToldFrom;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

std::string names_of(const PrecisionOptions& options) {
  std::string names;
  for (const Precision precision : {Precision::kF16, Precision::kBF16, Precision::kI8})
    if (uses(options, precision))
      names += (names.empty() ? "" : " and ") + std::string(to_string(precision));
  if (has_integer_weights(options))
    names += (names.empty() ? "" : " and ") + options.weight_format + " weights";
  return names;
}

// A pattern that matches the name alone.
std::string exact_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string percent(double share) {
  return 100 * share < 10 ? fmt::format("{:.2g} %", 100 * share)
                          : fmt::format("{:.0f} %", 100 * share);
}

uint64_t f32_weight_bytes(const Graph& model) {
  std::set<ValueId> counted;
  uint64_t bytes = 0;
  for (const LayerId id : model.order())
    for (const ValueId input : model.layer(id).inputs) {
      const Tensor* constant = input == ValueId::kNone ? nullptr : model.constant(input);
      if (constant && is_float(constant->dtype()) && counted.insert(input).second)
        bytes += static_cast<uint64_t>(constant->count()) * sizeof(float);
    }
  for (const Graph& body : model.bodies()) bytes += f32_weight_bytes(body);
  return bytes;
}

// The plan that runs here: the first one for a CPU; empty if a stand-in must be built.
std::string target_that_runs(const GraphBuildOptions& options) {
  const auto found = std::ranges::find_if(
      options.targets, [](const std::string& target) { return target.starts_with("cpu"); });
  return found == options.targets.end() ? std::string() : *found;
}

class Checker {
 public:
  Checker(const Graph& model, const GraphBuildOptions& options, const SelfCheckOptions& check,
          const F32Build& f32)
      : model_(model),
        options_(options),
        check_(check),
        f32_(f32),
        precision_(options.passes.precision),
        asked_(options.passes.precision.layers),
        target_(target_that_runs(options)),
        stands_in_(target_.empty()) {
    if (stands_in_) target_ = "cpu";
  }

  // The file is as it was built; it is replaced if layers go back to f32.
  void run(CheckedBuild& made);

 private:
  struct Round {
    Finding worst;
    std::string input;                          // where
    std::map<std::string, std::string> faults;  // by layer: why it goes back
    std::string layer;                          // where most of the difference arises
    std::vector<Tensor> tensors;                // of the input, if the table has its ranges
    PlanComparison::BehindSelection behind_selection;
  };

  EngineFile build_lower() const;
  void open();
  // Whether layers go back to f32. Integer weights are expected to change results.
  bool is_bad(const Finding& finding) const {
    return has_integer_weights(precision_) ? finding.is_told() : finding.is_bad();
  }
  Finding find(PlanComparison& comparison, ComparisonInput& input) const;
  Finding find_numbers(PlanComparison& comparison, ComparisonInput& input) const;
  Round compare(EngineFile file);
  void find_faults(PlanComparison& comparison, const Plan& reduced, const ComparisonInput& input,
                   Round& round);
  void add(const PlanLayers& layers, const std::string& step, const std::string& why,
           Round& round) const;
  void find_misfit(const Round& round);
  void mend(Round& round);
  size_t count_of_inputs() const;
  std::string remedy(const Round& round) const;
  std::string sentence(const Round& round) const;
  std::string explanation(const Finding& worst) const;
  std::string outcome(const Round& round) const;

  const Graph& model_;
  const GraphBuildOptions& options_;
  const SelfCheckOptions& check_;
  const F32Build& f32_;
  PrecisionOptions precision_;
  LayerPrecisions asked_;  // before anything goes back
  std::string target_;     // of the plan that runs
  bool stands_in_;
  std::shared_ptr<SharedPacking> packing_ = SharedPacking::make();
  std::optional<EngineFile> exact_file_;
  std::unique_ptr<WatchedEngine> exact_;
  std::unique_ptr<JudgedValues> judged_;
  std::unique_ptr<ComparisonInputs> inputs_;
  Finding first_;  // before anything was mended
  std::map<std::string, std::string> reverted_;
  bool is_in_vain_ = false;  // f32 for the layers that were found changed little
  bool has_judged_ = false;  // any element of any result
  std::optional<TableMisfit> misfit_;
};

const Plan* plan_for(const EngineFile& file, const std::string& target) {
  for (const Plan& plan : file.plans)
    if (plan.target == target) return &plan;
  return nullptr;
}

EngineFile Checker::build_lower() const {
  GraphBuildOptions options = f32_.silent();
  options.passes.precision = precision_;
  return build(model_.clone(), options);
}

void Checker::open() {
  exact_file_ = f32_.build(model_);
  exact_file_->packing = packing_;
  exact_ =
      std::make_unique<WatchedEngine>(*exact_file_, exact_file_->plans[0], options_.passes.threads);
  judged_ = std::make_unique<JudgedValues>(exact_->plan());
  inputs_ = std::make_unique<ComparisonInputs>(exact_file_->plans[0], exact_file_->weights,
                                               check_.most_work);
  std::vector<std::vector<Tensor>> samples = check_.samples;
  samples.resize(std::min(samples.size(), kMostCheckedSamples));
  if (samples.empty())
    inputs_->draw({.table = precision_.ranges.get(),
                   .spread = uses(precision_, Precision::kI8) ? ComparisonInputs::Spread::kNormal
                                                              : ComparisonInputs::Spread::kUniform,
                   .may_overflow = uses(precision_, Precision::kF16)});
  else
    inputs_->take(samples, exact_->ports());
}

// Drawn inputs are drawn again if the model refuses them, or if f32 makes no numbers of them.
Finding Checker::find(PlanComparison& comparison, ComparisonInput& input) const {
  try {
    return find_numbers(comparison, input);
  } catch (const Error& error) {
    if (!input.is_drawn || !refuses_arguments(error) ||
        !inputs_->draw_accepted(input, exact_->engine(), options_.passes.threads))
      throw;
  }
  return find_numbers(comparison, input);
}

Finding Checker::find_numbers(PlanComparison& comparison, ComparisonInput& input) const {
  const Finding found = comparison.compare(input.tensors);
  const double blind = comparison.blind_share();
  if (!input.is_drawn || input.is_large || blind < kBlind) return found;
  const ComparisonInput before = input;
  inputs_->draw_plainer(input);
  try {
    const Finding again = comparison.compare(input.tensors);
    if (comparison.blind_share() < blind) return again;
  } catch (const Error& error) {
    if (!refuses_arguments(error)) throw;
  }
  input = before;
  return comparison.compare(input.tensors);
}

// Layers that the user has named keep what was asked.
void Checker::add(const PlanLayers& layers, const std::string& step, const std::string& why,
                  Round& round) const {
  const std::set<std::string> names = layers.of_step(step);
  Layer all;
  all.name = step;
  all.origins.assign(names.begin(), names.end());
  if (asked_.of(all)) return;
  for (const std::string& layer : names)
    if (!reverted_.contains(layer)) round.faults.emplace(layer, why);
}

void Checker::find_faults(PlanComparison& comparison, const Plan& reduced,
                          const ComparisonInput& input, Round& round) {
  comparison.keep_all();
  EightBitFaults eight_bits(*exact_, reduced, precision_);
  if (eight_bits.has_any()) {
    const PlanLayers layers(model_, exact_->plan());
    for (const Fault& fault : eight_bits.find(comparison, input.tensors)) {
      for (const std::string& step : layers.products_of(fault.value)) {
        if (round.layer.empty()) round.layer = layers.name_of(step);
        add(layers, step,
            fmt::format("int8 by the range in the table changes its input \"{}\" by {} of its root "
                        "mean square, which causes most of a difference from f32",
                        fault.value, percent(fault.difference)),
            round);
      }
    }
    if (!round.faults.empty()) return;
  }
  const PlanLayers layers(model_, reduced);
  const auto add_lower = [&](const std::string& step, const std::string& why) {
    if (layers.is_lower(step)) add(layers, step, why, round);
  };
  for (const Fault& fault : comparison.faults()) {
    if (round.layer.empty()) round.layer = layers.name_of(fault.step);
    const std::string why =
        fault.is_lost ? fmt::format("\"{}\" is not finite in {}, and reaches {:.3g} in f32",
                                    fault.value, names_of(precision_), fault.largest)
                      : fmt::format(
                            "most of a difference from f32 arises in its result \"{}\": {} of its "
                            "root mean square",
                            fault.value, percent(fault.difference));
    add_lower(fault.step, why);
    for (const std::string& operand : layers.inputs_of(fault.step))
      if (comparison.is_rounded(operand))
        for (const std::string& maker : layers.makers(operand))
          add_lower(maker, fmt::format("\"{}\" reads \"{}\" and needs its full precision",
                                       fault.step, operand));
    if (!fault.is_lost) continue;
    for (const std::string& step : layers.products_of(fault.value)) add_lower(step, why);
  }
}

Checker::Round Checker::compare(EngineFile file) {
  const Plan& plan = *plan_for(file, target_);
  file.packing = packing_;
  WatchedEngine reduced(file, plan, options_.passes.threads);
  PlanComparison comparison(*exact_, reduced, *judged_, unit_of(precision_),
                            most_explained(precision_));
  Round round;
  for (ComparisonInput& input : inputs_->all()) {
    if (input.is_refused) continue;
    Finding found;
    try {
      found = find(comparison, input);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCancelled) throw;
      inputs_->leave_out(input, error.what());
      continue;
    }
    if (comparison.judged().is_blind()) {
      inputs_->leave_out(input, "f32 gives no numbers");
      continue;
    }
    has_judged_ = has_judged_ || comparison.judged().elements > 0;
    if (comparison.behind_selection().difference > round.behind_selection.difference)
      round.behind_selection = comparison.behind_selection();
    if (input.is_large && !found.is_lost) continue;
    if (std::pair(found.is_lost, found.excess) >
            std::pair(round.worst.is_lost, round.worst.excess) ||
        round.input.empty()) {
      round.worst = found;
      round.input = input.what;
      if (input.is_drawn && !input.is_plain) round.tensors = input.tensors;
    }
    if (is_bad(found)) find_faults(comparison, plan, input, round);
  }
  return round;
}

// Inputs are drawn within ranges that may be wrong themselves.
void Checker::find_misfit(const Round& round) {
  if (!is_bad(round.worst) || round.tensors.empty() || !precision_.ranges) return;
  misfit_ = table_misfit(*exact_, round.tensors, *precision_.ranges);
}

// Builds again with f32 for the layers that were found, while others are found: one of two operands
// of a difference alone changes little.
void Checker::mend(Round& round) {
  const Round as_built = round;
  for (int count = 0; count < kMostRebuilds && is_bad(round.worst) && !round.faults.empty();
       ++count) {
    for (const auto& [layer, why] : round.faults) {
      reverted_.emplace(layer, why);
      precision_.layers.push_back({exact_pattern(layer), Precision::kF32});
    }
    round = compare(build_lower());
  }
  if (!reverted_.empty() && is_bad(round.worst) && round.worst.is_lost == as_built.worst.is_lost &&
      round.worst.excess > kWorthIt * as_built.worst.excess) {
    reverted_.clear();
    is_in_vain_ = true;
    round = as_built;
  }
}

size_t Checker::count_of_inputs() const {
  return static_cast<size_t>(
      std::ranges::count(inputs_->all(), false, &ComparisonInput::is_refused));
}

// Empty for integer weights, of which no rule says how far they take results.
std::string Checker::explanation(const Finding& worst) const {
  if (has_integer_weights(precision_)) return {};
  return fmt::format(", {} {}", worst.is_capped() ? "and the limit is" : "and rounding explains",
                     percent(worst.most()));
}

std::string Checker::outcome(const Round& round) const {
  const size_t count = count_of_inputs();
  const Finding& worst = round.worst;
  const std::string names = names_of(precision_);
  const bool is_one = names.find(' ') == std::string::npos;
  const std::string_view verb = worst.is_told() ? (is_one ? "differs from" : "differ from")
                                : has_integer_weights(precision_) ? "compared with"
                                : is_one                          ? "agrees with"
                                                                  : "agree with";
  std::string text = fmt::format(
      "{}{} {} f32 on {}", names,
      stands_in_ ? fmt::format(", as the CPU computes it in place of {},", options_.targets[0])
                 : "",
      verb, count == 1 ? round.input : fmt::format("{} inputs", count));
  if (worst.value.empty())
    text += ": no difference";
  else if (worst.is_count)
    text += fmt::format(": {} of the elements of \"{}\" differ at most, and rounding explains {}",
                        percent(worst.difference), worst.value, percent(worst.most()));
  else if (!worst.is_lost)
    text += fmt::format(": \"{}\" is off by {} at most{}", worst.value, percent(worst.difference),
                        explanation(worst));
  if (!reverted_.empty())
    text += first_.is_lost ? fmt::format("; \"{}\" was not finite before", first_.value)
                           : fmt::format("; \"{}\" was off by {} before", first_.value,
                                         percent(first_.difference));
  if (misfit_ && !misfit_->is_of_input) text += "; " + misfit_->text;
  if (const auto& behind = round.behind_selection; !behind.value.empty())
    text += fmt::format(
        "; a selection (by TopK or a comparison, for example) differs, and \"{}\", which follows "
        "from it, is off by {}; that is not judged",
        behind.value, percent(behind.difference));
  if (!inputs_->left_out().empty()) text += "; left out: " + inputs_->left_out();
  return text;
}

// The remedy for the reader of the warning.
std::string Checker::remedy(const Round& round) const {
  if (round.layer.empty())
    return "no single layer explains it, so compare accuracy with anneal eval, or build in f32";
  const std::string where = fmt::format("most of it arises in layer \"{}\"", round.layer);
  const auto asked =
      std::ranges::find_if(options_.passes.precision.layers, [&](const LayerPrecision& layer) {
        return layer.precision != Precision::kF32 &&
               std::regex_match(round.layer, std::regex(layer.pattern));
      });
  if (asked != options_.passes.precision.layers.end())
    return fmt::format("{}, which --layer-precision {}={} requests: leave that out", where,
                       asked->pattern, to_string(asked->precision));
  if (is_in_vain_)
    return where +
           ", where f32 helps little, so compare accuracy with anneal eval, or build in f32";
  return fmt::format("{}: keep it exact with --layer-precision '{}=f32'", where,
                     exact_pattern(round.layer));
}

std::string Checker::sentence(const Round& round) const {
  const Finding& worst = round.worst;
  const std::string how =
      worst.is_lost ? fmt::format("\"{}\" is not finite in {} where f32 is", worst.value,
                                  names_of(precision_))
      : worst.is_count
          ? fmt::format("{} of the elements of \"{}\" differ between {} and f32",
                        percent(worst.difference), worst.value, names_of(precision_))
          : fmt::format("\"{}\" in {} differs from f32 by {}{}", worst.value, names_of(precision_),
                        percent(worst.difference), explanation(worst));
  return fmt::format("{} ({}); {}", how, round.input, remedy(round));
}

void Checker::run(CheckedBuild& made) {
  EngineFile& file = made.file;
  SelfCheckReport& report = made.check;
  if (const uint64_t bytes = f32_weight_bytes(model_); bytes > kMostWeightBytes) {
    report.outcome = fmt::format(
        "it was not compared with f32: the weights take {:.1f} GB in f32, and the check holds at "
        "most {:.1f} GB",
        static_cast<double>(bytes) / 1e9, static_cast<double>(kMostWeightBytes) / 1e9);
    return;
  }
  std::optional<EngineFile> stand_in;
  if (stands_in_) stand_in = build_lower();
  open();
  Round round;
  if (!inputs_->all().empty()) round = compare(stand_in ? *stand_in : file);
  if (count_of_inputs() == 0) {
    report.outcome = fmt::format("it was not compared with f32: {}", inputs_->left_out());
    return;
  }
  if (!has_judged_) {
    report.outcome = "it was not compared with f32: no result has elements that can be compared";
    return;
  }
  find_misfit(round);
  // f32 for the layers behind a wrong range of an input mends nothing.
  first_ = round.worst;
  if (!misfit_ || !misfit_->is_of_input) mend(round);
  report.is_compared = true;
  report.outcome = outcome(round);
  if (misfit_ && misfit_->is_of_input)
    report.warning = fmt::format("{}. Check the range of \"{}\", or calibrate again", misfit_->text,
                                 misfit_->value);
  else if (round.worst.is_told())
    report.warning = sentence(round);
  if (reverted_.empty()) return;
  for (const auto& [layer, why] : reverted_) report.back_to_f32.push_back({layer, why});
  options_.before_rebuild();
  GraphBuildOptions again = options_;
  again.passes.precision = precision_;
  file = build(model_.clone(), again);
  made.precision = precision_;
}

}  // namespace

CheckedBuild build_checked(Graph graph, const GraphBuildOptions& options,
                           const SelfCheckOptions& check) {
  if (!check.run || !is_lower(options.passes.precision))
    return {build(std::move(graph), options), {}, options.passes.precision};
  const std::string target = target_that_runs(options);
  F32Build f32(options, target.empty() ? "cpu" : target);
  CheckedBuild made{build(graph.clone(), f32.watched()), {}, options.passes.precision};
  SelfCheckReport& report = made.check;
  options.progress("comparing with f32");
  const auto start = Clock::now();
  try {
    Checker(graph, options, check, f32).run(made);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    report.outcome = fmt::format("it was not compared with f32: {}", error.what());
  }
  report.milliseconds = milliseconds_since(start);
  const auto record = [&](const std::string& subject, const std::string& text, bool refused) {
    for (Plan& plan : made.file.plans)
      plan.decisions.push_back(
          {std::string(kSelfCheck), subject.empty() ? plan.name : subject, text, refused});
  };
  record("", report.outcome, !report.is_compared);
  for (const auto& [layer, why] : report.back_to_f32)
    record(layer, "goes back to f32: " + why, false);
  if (!report.warning.empty()) record("", report.warning, true);
  return made;
}

}  // namespace anneal
