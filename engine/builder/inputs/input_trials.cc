#include "anneal/engine/builder/inputs/input_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/make_engine.h"

namespace anneal {
namespace {

constexpr auto kMostTime = std::chrono::seconds(10);
constexpr size_t kMostMemory = size_t{2} << 30;  // of all runs but the first
constexpr double kMost = std::numeric_limits<double>::infinity();
constexpr size_t kMostNumbers = 8;
constexpr int64_t kLargestSize = 1024;

bool reads_indices(const Op& op) {
  return std::holds_alternative<Gather>(op) || std::holds_alternative<GatherElements>(op) ||
         std::holds_alternative<GatherND>(op) || std::holds_alternative<ScatterElements>(op) ||
         std::holds_alternative<ScatterND>(op);
}

bool reads_tuples(const Op& op) {
  return std::holds_alternative<GatherND>(op) || std::holds_alternative<ScatterND>(op);
}

// The sizes that an error names, behind the name of its step, and the products of those that it
// gives as dims.
std::vector<int64_t> numbers_in(std::string_view text) {
  if (const size_t step = text.rfind("): "); step != std::string_view::npos)
    text.remove_prefix(step);
  std::vector<int64_t> numbers;
  const auto add = [&](int64_t number) {
    if (number > 0 && number <= kLargestSize && numbers.size() < kMostNumbers &&
        std::ranges::find(numbers, number) == numbers.end())
      numbers.push_back(number);
  };
  int64_t product = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') product = 1;
    if (text[at] == ']') add(product);
    int64_t number = 0;
    const auto [end, fault] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    if (fault == std::errc()) add(number);
    if (fault == std::errc() && product > 0 && product <= kLargestSize) product *= number;
    if (fault != std::errc::invalid_argument) at = static_cast<size_t>(end - text.data()) - 1;
  }
  return numbers;
}

// Integers of which the last is `value` and the others are 1.
Tensor ones_and(DataType dtype, const Dims& dims, double value) {
  auto made = allocate_tensor(dtype, dims);
  for (int64_t i = 0, n = made.tensor.count(); i < n; ++i) {
    const int64_t number = i + 1 < n ? 1 : static_cast<int64_t>(value);
    std::memcpy(made.data.data() + i * static_cast<int64_t>(size_of(dtype)), &number,
                size_of(dtype));
  }
  return made.tensor;
}

}  // namespace

bool refuses_arguments(const Error& error) {
  return is_of_caller(error.code()) || error.code() == ErrorCode::kInvalidModel ||
         error.code() == ErrorCode::kUnsupported;
}

bool may_refuse_values(const Plan& plan) {
  const auto is_late = [](const Slot& slot) { return slot.storage == Storage::kDataDependent; };
  if (!plan.bodies.empty() || std::ranges::any_of(plan.slots, is_late)) return true;
  return std::ranges::any_of(plan.steps, [&](const Step& step) {
    if (std::holds_alternative<Require>(step.op)) return true;
    if (!reads_indices(step.op)) return false;
    const Storage storage = plan.slots[base_of(plan, step.inputs[1])].storage;
    return storage != Storage::kWeight && (storage != Storage::kInput || reads_tuples(step.op));
  });
}

InputTrials::InputTrials(const Engine& engine, std::vector<TrialInput> inputs)
    : engine_(std::shared_ptr<void>(), &engine), inputs_(std::move(inputs)) {}

std::optional<StepFailure> InputTrials::run(std::span<const Dims> dims) {
  const std::vector<InputRange> ranges = ranges_at(dims);
  bool is_any_integer = false, is_any_size = false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].given || is_float(engine_->inputs()[i].dtype)) continue;
    is_any_integer = true;
    is_any_size |= ranges[i].role == InputRole::kSize;
  }
  std::vector<Way> ways = {{}};
  if (is_any_integer)
    for (const double value : {1.0, -kMost, kMost}) ways.push_back({value});
  std::optional<StepFailure> first;
  for (size_t i = 0; i < ways.size(); ++i) {
    if (std::chrono::steady_clock::now() - begin_ > kMostTime) break;
    const auto failure = run_once(draw(dims, ranges, ways[i]));
    if (!failure) {
      way_ = ways[i];
      return std::nullopt;
    }
    if (first) continue;
    first = failure;
    if (is_any_size)
      for (const int64_t number : numbers_in(first->text))
        for (const Sizes sizes : {Sizes::kAlike, Sizes::kLast})
          ways.push_back({static_cast<double>(number), sizes});
  }
  return first ? first : StepFailure{0, "not run: other runs have taken all the time"};
}

std::vector<Tensor> InputTrials::draw(std::span<const Dims> dims) const {
  return draw(dims, ranges_at(dims), way_);
}

std::vector<Tensor> InputTrials::draw(std::span<const Dims> dims,
                                      std::span<const InputRange> ranges, const Way& way) const {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto& [given, seed] = inputs_[i];
    const DataType dtype = engine_->inputs()[i].dtype;
    const bool is_size = is_integer(dtype) && ranges[i].role == InputRole::kSize;
    if (given)
      tensors.push_back(*given);
    else if (!way.value || (way.sizes != Sizes::kAsOthers && !is_size))
      tensors.push_back(draw_input(dtype, dims[i], ranges[i], seed));
    else if (way.sizes == Sizes::kAlike)
      tensors.push_back(alike_sample(dtype, dims[i], *way.value));
    else if (way.sizes != Sizes::kAsOthers)
      tensors.push_back(ones_and(dtype, dims[i], *way.value));
    else
      tensors.push_back(alike_input(dtype, dims[i], ranges[i], seed, *way.value));
  }
  return tensors;
}

// For dims that do not bind nothing is known; the run reports the fault.
std::vector<InputRange> InputTrials::ranges_at(std::span<const Dims> dims) const {
  try {
    return input_ranges(plan_of(*engine_), weights_of(*engine_), dims);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return std::vector<InputRange>(dims.size(), InputRange{0, 9});
  }
}

std::optional<StepFailure> InputTrials::run_once(const std::vector<Tensor>& tensors) {
  ContextOptions options;
  options.threads = 0;
  options.shape_cache_size = 1;
  options.prewarm_profiles = false;
  if (runs_++ > 0) options.max_memory = kMostMemory;
  try {
    ExecutionContext context(engine_, options);
    for (size_t i = 0; i < tensors.size(); ++i)
      context.set_input(engine_->inputs()[i].name, tensors[i].view());
    context.run();
  } catch (const Error& error) {
    if (!refuses_arguments(error)) throw;
    return failure_of(error.what());
  }
  return std::nullopt;
}

std::optional<StepFailure> InputTrials::failure_of(const std::string& text) const {
  const Plan& plan = plan_of(*engine_);
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (text.find(fmt::format("\"{}\" ({})", plan.steps[i].name, to_string(plan.steps[i].op))) !=
        std::string::npos)
      return StepFailure{i, text};
  return StepFailure{0, text};
}

}  // namespace anneal
