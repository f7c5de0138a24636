#include "anneal/engine/builder/checked_build.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "anneal/core/milliseconds.h"
#include "anneal/engine/builder/self_check/drawn_inputs.h"
#include "anneal/engine/builder/self_check/eight_bit_faults.h"
#include "anneal/engine/builder/self_check/plan_comparison.h"
#include "anneal/engine/builder/self_check/plan_layers.h"
#include "anneal/engine/builder/self_check/run_work.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

// Builds again at most so often.
constexpr int kMostRebuilds = 4;
// What layers in f32 must leave of a difference that they do not mend, or they are not worth it.
constexpr double kWorthIt = 0.5;
// And what a build must leave of the last one's difference for another to follow.
constexpr double kWorthAnother = 0.9;

// Sizes to try where there is no end, and the multiply-adds that they may take.
constexpr int64_t kOpenSizes[] = {32, 8};
constexpr double kCheapWork = 1e8, kCheapWorkOfAWeight = 100;

bool is_lower(const PrecisionOptions& precision) {
  return precision.f16 || precision.bf16 || precision.int8 ||
         std::ranges::any_of(precision.layers, [](const LayerPrecision& layer) {
           return layer.precision != Precision::kF32;
         });
}

bool uses(const PrecisionOptions& options, Precision precision) {
  const bool by_default = precision == Precision::kI8     ? options.int8
                          : precision == Precision::kBF16 ? options.bf16
                                                          : options.f16 && !options.bf16;
  return by_default || std::ranges::any_of(options.layers, [&](const LayerPrecision& layer) {
           return layer.precision == precision;
         });
}

// Of the lowest precision: half a last place, or what 255 steps over a range leave.
double unit_of(const PrecisionOptions& options) {
  if (uses(options, Precision::kI8)) return 0x1p-7;
  return uses(options, Precision::kBF16) ? 0x1p-8 : 0x1p-11;
}

std::string names_of(const PrecisionOptions& options) {
  std::string names;
  for (const Precision precision : {Precision::kF16, Precision::kBF16, Precision::kI8})
    if (uses(options, precision))
      names += (names.empty() ? "" : " and ") + std::string(to_string(precision));
  return names;
}

// A pattern that matches the name alone.
std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string percent(double share) { return fmt::format("{:.2g} %", 100 * share); }

// Tensors of one row for an engine that was built for more: rows again from the first.
Tensor with_rows(const Tensor& tensor, const TensorInfo& port) {
  const Dims& dims = tensor.dims();
  if (dims.rank() == 0 || dims.rank() != port.dims.rank() || dims[0] < 1) return tensor;
  const int64_t rows = std::max(port.dims[0] == -1 ? port.min_dims[0] : port.dims[0], dims[0]);
  if (rows == dims[0] || rows % dims[0] != 0) return tensor;
  Dims whole = dims;
  whole[0] = rows;
  const Tensor::Fresh fresh = Tensor::allocate(tensor.dtype(), whole);
  for (size_t at = 0; at < fresh.data.size(); at += tensor.bytes().size())
    std::ranges::copy(tensor.bytes(), fresh.data.begin() + static_cast<ptrdiff_t>(at));
  return fresh.tensor;
}

class Checker {
 public:
  Checker(const Graph& model, const GraphBuildOptions& options, const SelfCheckOptions& check)
      : model_(model), options_(options), check_(check) {}

  // `file`: as it was built; replaced if layers go back to f32.
  void run(EngineFile& file, SelfCheckReport& report);

 private:
  struct Sample {
    std::string what;  // "drawn inputs of the largest sizes"
    std::vector<Tensor> inputs;
    bool is_refused = false;  // by the model, when it ran
  };
  struct Round {
    Finding worst;
    std::string sample;                         // where
    std::map<std::string, std::string> faults;  // by layer: why it goes back
    std::string layer;                          // where most of the difference arises
  };

  GraphBuildOptions silent(const std::string& target) const;
  EngineFile build_for(const std::string& target, const PrecisionOptions& precision) const;
  bool open(const EngineFile& file);
  std::vector<Sample> samples();
  bool is_cheap(const std::vector<Dims>& dims) const;
  void leave_out(const std::string& what, const Error& error);
  bool may_run(const std::vector<Tensor>& inputs, const std::string& what);
  Round compare(const EngineFile& file, std::vector<Sample>& samples);
  void find_faults(PlanComparison& comparison, const Plan& reduced, const Sample& sample,
                   Round& round);
  void add(const std::set<std::string>& layers, const std::string& why, Round& round) const;
  std::string sentence(const Round& round) const;
  std::string outcome(const Round& round, size_t samples) const;

  const Graph& model_;
  const GraphBuildOptions& options_;
  const SelfCheckOptions& check_;
  PrecisionOptions precision_;
  std::string target_;  // of the plan that runs
  bool stands_in_ = false;
  std::optional<EngineFile> exact_file_;
  std::unique_ptr<WatchedEngine> exact_;
  std::unique_ptr<JudgedValues> judged_;
  std::map<std::string, std::string> reverted_;
  std::string left_out_;
  double work_ = 0;
};

GraphBuildOptions Checker::silent(const std::string& target) const {
  GraphBuildOptions options = options_;
  options.targets = {target};
  options.timing = {};
  options.after_pass = {};
  options.allow_fallback = true;
  return options;
}

EngineFile Checker::build_for(const std::string& target, const PrecisionOptions& precision) const {
  GraphBuildOptions options = silent(target);
  options.passes.precision = precision;
  options.progress = [](std::string_view) {};
  return build(model_.clone(), options);
}

const Plan* plan_for(const EngineFile& file, const std::string& target) {
  for (const Plan& plan : file.plans)
    if (plan.target == target) return &plan;
  return nullptr;
}

// Chooses the plan that runs here, or else says that one for the CPU stands in.
bool Checker::open(const EngineFile& file) {
  for (const Plan& plan : file.plans) {
    if (!plan.target.starts_with("cpu")) continue;
    target_ = plan.target;
    return true;
  }
  target_ = "cpu";
  stands_in_ = true;
  return false;
}

bool Checker::may_run(const std::vector<Tensor>& inputs, const std::string& what) {
  std::vector<Dims> dims;
  for (const Tensor& input : inputs) dims.push_back(input.dims());
  const double work = 2 * run_work(exact_file_->plans[0], exact_file_->weights, dims);
  if (work_ + work <= check_.most_work) {
    work_ += work;
    return true;
  }
  left_out_ += fmt::format("{}{} would need {:.2g} multiply-adds", left_out_.empty() ? "" : "; ",
                           what, work);
  return false;
}

void Checker::leave_out(const std::string& what, const Error& error) {
  if (error.code() != Code::kInvalidArgument) throw error;
  left_out_ += fmt::format("{}{}: {}", left_out_.empty() ? "" : "; ", what, error.what());
}

std::vector<Checker::Sample> Checker::samples() {
  std::vector<Sample> result;
  for (size_t i = 0; i < std::min(check_.samples.size(), kMostCheckedSamples); ++i) {
    Sample sample{.what = fmt::format("sample {}", i + 1), .inputs = {}};
    for (size_t k = 0; k < check_.samples[i].size(); ++k)
      sample.inputs.push_back(with_rows(check_.samples[i][k], exact_->ports()[k]));
    try {
      if (may_run(sample.inputs, sample.what)) result.push_back(std::move(sample));
    } catch (const Error& error) {
      leave_out(sample.what, error);
    }
  }
  if (!check_.samples.empty()) return result;
  std::vector<std::vector<Dims>> known;
  const auto try_dims = [&](const std::optional<std::vector<Dims>>& dims, std::string what) {
    if (!dims || std::ranges::find(known, *dims) != known.end()) return;
    known.push_back(*dims);
    try {
      const CalibrationTable* ranges = options_.passes.precision.ranges.get();
      auto inputs = draw_inputs(model_, *dims, ranges, known.size());
      if (may_run(inputs, what)) result.push_back({std::move(what), std::move(inputs)});
    } catch (const Error& error) {
      leave_out(what, error);
    }
  };
  for (const DrawnSizes sizes : kAllDrawnSizes)
    try_dims(dims_at(model_, sizes, 0),
             fmt::format("drawn inputs of the {} sizes", to_string(sizes)));
  for (const int64_t size : kOpenSizes)
    if (const auto dims = dims_at(model_, DrawnSizes::kLargest, size); dims && is_cheap(*dims)) {
      try_dims(dims, fmt::format("drawn inputs with open sizes of {}", size));
      break;
    }
  return result;
}

// Of sizes that nobody asked for: whether a run takes little beside the build, which rounds the
// weights.
bool Checker::is_cheap(const std::vector<Dims>& dims) const {
  double weights = 0;
  for (const Tensor& weight : exact_file_->weights) weights += static_cast<double>(weight.count());
  try {
    return 2 * run_work(exact_file_->plans[0], exact_file_->weights, dims) <=
           std::max(kCheapWork, kCheapWorkOfAWeight * weights);
  } catch (const Error&) {
    return false;  // these sizes do not go together
  }
}

void Checker::add(const std::set<std::string>& layers, const std::string& why, Round& round) const {
  for (const std::string& layer : layers)
    if (!reverted_.contains(layer)) round.faults.emplace(layer, why);
}

void Checker::find_faults(PlanComparison& comparison, const Plan& reduced, const Sample& sample,
                          Round& round) {
  comparison.keep_all();
  EightBitFaults eight_bits(*exact_, reduced, precision_);
  if (eight_bits.has_any()) {
    const PlanLayers layers(model_, exact_->plan());
    for (const Fault& fault : eight_bits.find(comparison, sample.inputs)) {
      for (const std::string& step : layers.products_of(fault.value)) {
        if (round.layer.empty()) round.layer = step;
        add(layers.of_step(step),
            fmt::format("8 bits by the range in the table cost \"{}\", which it reads, {} of its "
                        "root mean square, and most of a difference from f32 comes from there",
                        fault.value, percent(fault.difference)),
            round);
      }
    }
    if (!round.faults.empty()) return;
  }
  const PlanLayers layers(model_, reduced);
  for (const Fault& fault : comparison.faults()) {
    if (round.layer.empty()) round.layer = fault.step;
    const std::string why =
        fault.is_lost ? fmt::format("\"{}\" is not finite in {}, and reaches {:.3g} in f32",
                                    fault.value, names_of(precision_), fault.largest)
                      : fmt::format(
                            "most of a difference from f32 arises where it makes \"{}\", {} of its "
                            "root mean square",
                            fault.value, percent(fault.difference));
    add(layers.of_step(fault.step), why, round);
    for (const std::string& input : layers.inputs_of(fault.step))
      if (comparison.is_rounded(input))
        for (const std::string& maker : layers.makers(input))
          add(layers.of_step(maker),
              fmt::format("\"{}\" reads \"{}\", of which it needs all digits", fault.step, input),
              round);
    if (!fault.is_lost) continue;
    for (const std::string& step : layers.products_of(fault.value))
      add(layers.of_step(step), why, round);
  }
}

Checker::Round Checker::compare(const EngineFile& file, std::vector<Sample>& samples) {
  const Plan& plan = *plan_for(file, target_);
  WatchedEngine reduced(file, plan);
  PlanComparison comparison(*exact_, reduced, *judged_, unit_of(precision_));
  Round round;
  for (Sample& sample : samples) {
    Finding found;
    try {
      if (!sample.is_refused) found = comparison.compare(sample.inputs);
    } catch (const Error& error) {
      leave_out(sample.what, error);
      sample.is_refused = true;
    }
    if (sample.is_refused) continue;
    if (std::pair(found.is_lost, found.excess) >
            std::pair(round.worst.is_lost, round.worst.excess) ||
        round.sample.empty()) {
      round.worst = found;
      round.sample = sample.what;
    }
    if (found.is_bad()) find_faults(comparison, plan, sample, round);
  }
  return round;
}

std::string Checker::outcome(const Round& round, size_t samples) const {
  std::string text = fmt::format("f32 and {}{} ran side by side on {}", names_of(precision_),
                                 stands_in_ ? fmt::format(", as the CPU computes it in place of {}",
                                                          fmt::format("{}", options_.targets[0]))
                                            : "",
                                 samples == 1 ? round.sample : fmt::format("{} inputs", samples));
  if (round.worst.value.empty())
    text += ": no difference";
  else if (!round.worst.is_told())
    text +=
        fmt::format(": \"{}\" differs most, by {}, where {} is explained", round.worst.value,
                    percent(round.worst.difference), percent(kToldFrom * round.worst.explained));
  if (!left_out_.empty()) text += "; left out: " + left_out_;
  return text;
}

std::string Checker::sentence(const Round& round) const {
  const Finding& worst = round.worst;
  const std::string how =
      worst.is_lost
          ? fmt::format("\"{}\" is not finite in {}, but in f32", worst.value, names_of(precision_))
      : worst.is_count
          ? fmt::format("{} of the integers \"{}\" differ between {} and f32",
                        percent(worst.difference), worst.value, names_of(precision_))
          : fmt::format("\"{}\" in {} differs from f32 by {}, and rounding explains {}",
                        worst.value, names_of(precision_), percent(worst.difference),
                        percent(kToldFrom * worst.explained));
  return fmt::format("{} ({}); most of it arises in layer \"{}\"", how, round.sample, round.layer);
}

void Checker::run(EngineFile& file, SelfCheckReport& report) {
  precision_ = options_.passes.precision;
  PrecisionOptions f32;
  f32.ranges = precision_.ranges;
  f32.symmetric = precision_.symmetric;
  std::optional<EngineFile> stand_in;
  if (!open(file)) stand_in = build_for(target_, precision_);
  exact_file_ = build_for(target_, f32);
  exact_ = std::make_unique<WatchedEngine>(*exact_file_, exact_file_->plans[0]);
  judged_ = std::make_unique<JudgedValues>(exact_->plan());
  std::vector<Sample> inputs = samples();
  Round round;
  if (!inputs.empty()) round = compare(stand_in ? *stand_in : file, inputs);
  std::erase_if(inputs, [](const Sample& sample) { return sample.is_refused; });
  if (inputs.empty()) {
    report.outcome =
        "it was not compared with f32: " +
        (left_out_.empty() ? std::string("nothing says what its inputs are like") : left_out_);
    return;
  }
  const Finding first = round.worst;
  const Round as_built = round;
  std::optional<EngineFile> rebuilt;
  for (int count = 0; count < kMostRebuilds && round.worst.is_bad() && !round.faults.empty();
       ++count) {
    const Finding before = round.worst;
    for (const auto& [layer, why] : round.faults) {
      reverted_.emplace(layer, why);
      precision_.layers.push_back({pattern_of(layer), Precision::kF32});
    }
    rebuilt = build_for(target_, precision_);
    round = compare(*rebuilt, inputs);
    if (round.worst.is_lost == before.is_lost && round.worst.excess > kWorthAnother * before.excess)
      break;
  }
  if (round.worst.is_bad() && round.worst.is_lost == first.is_lost &&
      round.worst.excess > kWorthIt * first.excess) {
    reverted_.clear();
    round = as_built;
  }
  if (round.layer.empty()) {
    const PlanLayers layers(model_, exact_->plan());
    const std::set<std::string> makers = layers.makers(round.worst.value);
    round.layer = makers.empty() ? round.worst.value : *makers.begin();
  }
  report.is_compared = true;
  report.outcome = outcome(round, inputs.size());
  if (round.worst.is_told()) report.warning = sentence(round);
  if (reverted_.empty()) return;
  for (const auto& [layer, why] : reverted_) report.back_to_f32.push_back({layer, why});
  check_.before_rebuild();
  GraphBuildOptions again = options_;
  again.passes.precision = precision_;
  file = build(model_.clone(), again);
}

}  // namespace

SelfCheckOptions self_check_options(const BuildOptions& options) {
  return {.run = options.self_check,
          .most_work = options.self_check_work,
          .samples = options.self_check_samples};
}

CheckedBuild build_checked(Graph graph, const GraphBuildOptions& options,
                           const SelfCheckOptions& check) {
  if (!check.run || !is_lower(options.passes.precision))
    return {build(std::move(graph), options), {}};
  CheckedBuild made{build(graph.clone(), options), {}};
  SelfCheckReport& report = made.check;
  options.progress("comparing with f32");
  const auto start = Clock::now();
  try {
    Checker(graph, options, check).run(made.file, report);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
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
