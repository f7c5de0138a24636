#include "anneal/engine/builder/inputs/input_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>

#include "anneal/core/dtype_kinds.h"
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
constexpr int64_t kLargestSize = 1024, kLargestCount = 1 << 16;
constexpr int64_t kMostSizes = 16;  // of an input
constexpr size_t kMostChoices = 6;  // one for each demand of the model

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
    if (number > 0 && number <= kLargestCount && numbers.size() < kMostNumbers &&
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
    if (fault == std::errc() && product > 0 && product <= kLargestCount) product *= number;
    if (fault != std::errc::invalid_argument) at = static_cast<size_t>(end - text.data()) - 1;
  }
  return numbers;
}

// Integers of any type.
template <class F>
Tensor integers(DataType dtype, const Dims& dims, F&& number_at) {
  auto made = allocate_tensor(dtype, dims);
  for (int64_t i = 0, n = made.tensor.count(); i < n; ++i) {
    const int64_t number = number_at(i, n);
    std::memcpy(made.data.data() + i * static_cast<int64_t>(size_of(dtype)), &number,
                size_of(dtype));
  }
  return made.tensor;
}

int64_t integer_at(const Tensor& tensor, int64_t i) {
  const size_t width = size_of(tensor.dtype());
  int64_t number = 0;
  std::memcpy(&number, tensor.bytes().data() + static_cast<size_t>(i) * width, width);
  const int unused = 64 - 8 * static_cast<int>(width);
  return is_signed_integer(tensor.dtype()) ? number << unused >> unused : number;
}

// Element i of n of parts that add up.
int64_t part_of(int64_t sum, int64_t i, int64_t n) {
  return i + 1 < n ? sum / n : sum - sum / n * (n - 1);
}

// The drawn integers, of which `count` are the marker, from element `first` on.
Tensor marked(const Tensor& drawn, const Dims& dims, const InputRange& range, int64_t marker,
              int64_t first, int64_t count) {
  const int64_t other = range.low != marker ? range.low : range.high;
  return integers(drawn.dtype(), dims, [&](int64_t i, int64_t) {
    const int64_t number = integer_at(drawn, i);
    return i >= first && i < first + count ? marker : number == marker ? other : number;
  });
}

// The step that an error names.
StepFailure failure_of(const std::string& text, const Plan& plan) {
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (text.find(fmt::format("\"{}\" ({})", plan.steps[i].name, to_string(plan.steps[i].op))) !=
        std::string::npos)
      return StepFailure{i, text};
  return StepFailure{0, text};
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

InputTrials::InputTrials(const Engine& engine, std::vector<TrialInput> inputs, int threads)
    : engine_(std::shared_ptr<void>(), &engine), inputs_(std::move(inputs)), threads_(threads) {}

bool InputTrials::is_late() const { return std::chrono::steady_clock::now() - begin_ > kMostTime; }

std::optional<StepFailure> InputTrials::run(std::span<const Dims> dims) {
  const std::vector<InputRange> ranges = ranges_at(dims);
  bool is_any_integer = false;
  for (size_t i = 0; i < inputs_.size(); ++i)
    is_any_integer |= !inputs_[i].given && !is_float(engine_->inputs()[i].dtype);
  std::vector<Way> ways = {{}};
  if (is_any_integer)
    for (const double value : {1.0, -kMost, kMost}) ways.push_back({value, {}});
  std::optional<StepFailure> first;
  for (const Way& way : ways) {
    if (is_late()) break;
    const auto failure = run_once(draw(dims, ranges, way));
    if (!failure) {
      way_ = way;
      return std::nullopt;
    }
    if (!first) first = failure;
  }
  return first ? follow(dims, ranges, *first)
               : StepFailure{0, "not run: other runs have taken all the time"};
}

// Tries what errors name, from the first way's on. The failure that came furthest.
std::optional<StepFailure> InputTrials::follow(std::span<const Dims> dims,
                                               std::span<const InputRange> ranges,
                                               StepFailure failure) {
  Way way;
  for (bool is_further = true; is_further && way.choices.size() < kMostChoices;) {
    is_further = false;
    for (const Choice& choice : choices_for(failure.text, dims, ranges, way)) {
      if (is_late()) return failure;
      Way next = way;
      next.choices.push_back(choice);
      auto now = run_once(draw(dims, ranges, next));
      if (!now) {
        way_ = std::move(next);
        return std::nullopt;
      }
      if (now->step <= failure.step) continue;
      way = std::move(next);
      failure = std::move(*now);
      is_further = true;
      break;
    }
  }
  return failure;
}

// Whether its numbers may be sizes: few, and no indices.
bool InputTrials::may_decide(size_t input, std::span<const Dims> dims,
                             std::span<const InputRange> ranges) const {
  if (inputs_[input].given || !is_integer(engine_->inputs()[input].dtype)) return false;
  const InputRole role = ranges[input].role;
  return role == InputRole::kSize || (role == InputRole::kNumber && dims[input].rank() <= 1 &&
                                      count(dims[input]) <= kMostSizes);
}

// All inputs that may decide sizes together, then each by itself; each marker. No part is empty.
std::vector<InputTrials::Choice> InputTrials::choices_for(const std::string& error,
                                                          std::span<const Dims> dims,
                                                          std::span<const InputRange> ranges,
                                                          const Way& way) const {
  std::vector<Choice> choices;
  std::vector<std::optional<size_t>> deciding;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (may_decide(i, dims, ranges)) deciding.emplace_back(i);
  if (deciding.size() > 1) deciding.insert(deciding.begin(), std::nullopt);
  const auto elements = [&](const std::optional<size_t>& input) {
    int64_t total = 0;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (input ? *input == i : may_decide(i, dims, ranges)) total += count(dims[i]);
    return total;
  };
  const auto is_chosen = [&](size_t input, int64_t marker) {
    return std::ranges::any_of(way.choices, [&](const Choice& choice) {
      return choice.input == input && choice.content == Content::kCount && choice.marker == marker;
    });
  };
  for (const int64_t number : numbers_in(error)) {
    for (const auto& input : deciding)
      for (const Content content : {Content::kSum, Content::kAlike, Content::kLast})
        if (content == Content::kSum ? number >= elements(input) : number <= kLargestSize)
          choices.push_back({input, content, number, 0});
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].given || number > count(dims[i])) continue;
      if (engine_->inputs()[i].dtype == DataType::kBool || ranges[i].role == InputRole::kMask)
        choices.push_back({i, Content::kCount, number, 1});
      for (const int64_t marker : ranges[i].markers)
        if (!is_chosen(i, marker)) choices.push_back({i, Content::kCount, number, marker});
    }
  }
  return choices;
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
    if (given)
      tensors.push_back(*given);
    else if (!way.value)
      tensors.push_back(draw_input(dtype, dims[i], ranges[i], seed));
    else
      tensors.push_back(alike_input(dtype, dims[i], ranges[i], seed, *way.value));
  }
  std::vector<int64_t> marked_of(tensors.size());  // elements, by input
  for (const Choice& choice : way.choices) {
    if (choice.content != Content::kCount) {
      choose(choice, dims, ranges, tensors);
      continue;
    }
    const size_t i = *choice.input;
    const InputRange range = tensors[i].dtype() == DataType::kBool ? InputRange{0, 1} : ranges[i];
    tensors[i] = marked(tensors[i], dims[i], range, choice.marker, marked_of[i], choice.number);
    marked_of[i] += choice.number;
  }
  return tensors;
}

void InputTrials::choose(const Choice& choice, std::span<const Dims> dims,
                         std::span<const InputRange> ranges, std::vector<Tensor>& tensors) const {
  const auto is_of = [&](size_t i) {
    return choice.input ? *choice.input == i : may_decide(i, dims, ranges);
  };
  int64_t all = 0, before = 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (is_of(i)) all += count(dims[i]);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_of(i)) continue;
    tensors[i] = integers(tensors[i].dtype(), dims[i], [&](int64_t at, int64_t n) {
      if (choice.content == Content::kAlike) return choice.number;
      if (choice.content == Content::kSum) return part_of(choice.number, before + at, all);
      return at + 1 < n ? int64_t{1} : choice.number;
    });
    before += count(dims[i]);
  }
}

const Plan& InputTrials::plan_for(std::span<const Dims> dims) const {
  const std::vector<std::optional<Dims>> wanted(dims.begin(), dims.end());
  return plan_of(*engine_, profile_for(*engine_, wanted));
}

// For dims that do not bind nothing is known; the run reports the fault.
std::vector<InputRange> InputTrials::ranges_at(std::span<const Dims> dims) const {
  try {
    return input_ranges(plan_for(dims), weights_of(*engine_), dims);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return std::vector<InputRange>(dims.size(), InputRange{0, 9});
  }
}

std::optional<StepFailure> InputTrials::run_once(const std::vector<Tensor>& tensors) {
  ContextOptions options;
  options.threads = threads_;
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
    std::vector<Dims> dims;
    for (const Tensor& tensor : tensors) dims.push_back(tensor.dims());
    return failure_of(error.what(), plan_for(dims));
  }
  return std::nullopt;
}

}  // namespace anneal
