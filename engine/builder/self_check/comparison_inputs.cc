#include "anneal/engine/builder/self_check/comparison_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/builder/inputs/input_trials.h"
#include "anneal/engine/builder/self_check/run_work.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

constexpr uint64_t kSeedOfLargeFloats = 1024;
// The limit of iterations and other sizes that an input decides, in a draw at optional sizes.
constexpr int64_t kMoreDecidedSteps = 64;
// The assumed limit of an integer that no layer limits, such as a position.
constexpr int64_t kMostPosition = 8191;
// Elements that are drawn within a second or two.
constexpr double kMostDrawnElements = 1 << 26;
// Work that is little beside the build, which rounds the weights.
constexpr double kCheapWork = 1e8, kCheapWorkOfAWeight = 100;

constexpr SizeChoice kDrawnSizes[] = {SizeChoice::kOptimal, SizeChoice::kLargest,
                                      SizeChoice::kSmallest, SizeChoice::kLarger};

std::string_view name_of(SizeChoice sizes) {
  switch (sizes) {
    case SizeChoice::kOptimal:
      return "optimal";
    case SizeChoice::kLargest:
      return "largest";
    case SizeChoice::kSmallest:
      return "smallest";
    case SizeChoice::kLarger:
      break;
  }
  return "larger open";
}

// Tensors of one row for an engine that was built for more: rows again from the first.
Tensor with_rows(const Tensor& tensor, const TensorInfo& port) {
  const Dims& dims = tensor.dims();
  if (dims.rank() == 0 || dims.rank() != port.dims.rank() || dims[0] < 1) return tensor;
  const int64_t rows = std::max(port.dims[0] == -1 ? port.min_dims[0] : port.dims[0], dims[0]);
  if (rows == dims[0] || rows % dims[0] != 0) return tensor;
  Dims whole = dims;
  whole[0] = rows;
  const NewTensor fresh = allocate_tensor(tensor.dtype(), whole);
  for (size_t at = 0; at < fresh.data.size(); at += tensor.bytes().size())
    std::ranges::copy(tensor.bytes(), fresh.data.begin() + static_cast<ptrdiff_t>(at));
  return fresh.tensor;
}

Tensor widely_drawn(const Slot& slot, const Dims& dims, InputRange range,
                    const ComparisonInputs::FloatRanges& ranges, uint64_t seed) {
  const DataType dtype = slot.type.dtype;
  if (is_float(dtype)) {
    if (ranges.table)
      if (const auto known = ranges.table->tensors.find(slot.name);
          known != ranges.table->tensors.end()) {
        const auto [low, high] = std::pair(known->second.seen_min, known->second.seen_max);
        return ranges.spread == ComparisonInputs::Spread::kNormal
                   ? normal_sample(dtype, dims, low, high, seed)
                   : uniform_sample(dtype, dims, low, high, seed);
      }
    return normal_sample(dtype, dims, -4, 4, seed);
  }
  if (range.role == InputRole::kNumber && is_integer(dtype) && !is_8bit(dtype))
    return integer_sample(dtype, dims, range.low, std::max(range.high, kMostPosition), seed,
                          RangeEnds::kHigh);
  return draw_input(dtype, dims, range, seed, true);
}

std::vector<Dims> dims_of(const ComparisonInput& input) {
  std::vector<Dims> dims;
  for (const Tensor& tensor : input.tensors) dims.push_back(tensor.dims());
  return dims;
}

}  // namespace

void ComparisonInputs::note(const std::string& what, const std::string& why) {
  left_out_ += fmt::format("{}{}: {}", left_out_.empty() ? "" : "; ", what, why);
}

void ComparisonInputs::leave_out(ComparisonInput& input, const std::string& why) {
  input.is_refused = true;
  if (!input.is_extra) note(input.what, why);
}

bool ComparisonInputs::may_run(std::span<const Dims> dims, const std::string& what) {
  const double work = 2 * run_work(plan_, weights_, dims);
  if (work_ + work <= most_work_) {
    work_ += work;
    return true;
  }
  note(what, fmt::format("{:.2g} multiply-adds are more than --self-check-work allows", work));
  return false;
}

void ComparisonInputs::take(const std::vector<std::vector<Tensor>>& samples,
                            std::span<const TensorInfo> ports) {
  for (const std::vector<Tensor>& sample : samples) {
    ComparisonInput input{.what = fmt::format("sample {}", inputs_.size() + 1), .tensors = {}};
    std::vector<Dims> dims;
    for (size_t i = 0; i < sample.size(); ++i) {
      input.tensors.push_back(with_rows(sample[i], ports[i]));
      dims.push_back(input.tensors.back().dims());
    }
    try {
      if (may_run(dims, input.what)) inputs_.push_back(std::move(input));
    } catch (const Error& error) {
      if (!refuses_arguments(error)) throw;
      note(input.what, error.what());
    }
  }
}

void ComparisonInputs::draw(const FloatRanges& ranges) {
  if (const std::string why = why_not_drawn(); !why.empty()) return note("drawn inputs", why);
  for (const SizeChoice sizes : kDrawnSizes) try_sizes(sizes, ranges);
  draw_longer();
  if (ranges.may_overflow && !ranges.table) draw_large_floats();
}

// As pixels are, in place of the first inputs' floats.
void ComparisonInputs::draw_large_floats() {
  if (inputs_.empty()) return;
  ComparisonInput large = inputs_[0];
  large.what += ", floats from 0 to 256";
  large.is_large = true;
  const std::vector<Dims> dims = dims_of(large);
  bool any = false;
  for (size_t i = 0; i < large.tensors.size(); ++i) {
    Tensor& tensor = large.tensors[i];
    if (!is_float(tensor.dtype()) || default_value(plan_, weights_, i) != nullptr) continue;
    tensor = uniform_sample(tensor.dtype(), tensor.dims(), 0, 256, kSeedOfLargeFloats + i);
    any = true;
  }
  if (any && may_run(dims, large.what)) inputs_.push_back(std::move(large));
}

// More iterations, where an input decides how many there are.
void ComparisonInputs::draw_longer() {
  if (inputs_.empty()) return;
  ComparisonInput longer = inputs_[0];
  longer.what += ", more iterations";
  longer.is_extra = true;
  const std::vector<Dims> dims = dims_of(longer);
  const std::vector<InputRange> accepted = input_ranges(plan_, weights_, dims, kMoreDecidedSteps);
  bool any = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (accepted[i].role != InputRole::kSize || default_value(plan_, weights_, i) != nullptr)
      continue;
    longer.tensors[i] = alike_input(longer.tensors[i].dtype(), dims[i], accepted[i], 0,
                                    std::numeric_limits<double>::infinity());
    any = true;
  }
  if (!any || !is_cheap(dims) || work_ + 2 * run_work(plan_, weights_, dims) > most_work_) return;
  work_ += 2 * run_work(plan_, weights_, dims);
  inputs_.push_back(std::move(longer));
}

std::string ComparisonInputs::why_not_drawn() const {
  for (const uint32_t input : plan_.inputs) {
    const Slot& slot = plan_.slots[input];
    if (slot.type.container != Container::kTensor || slot.type.dtype == DataType::kString)
      return fmt::format("input \"{}\" is no tensor of numbers", slot.name);
  }
  return {};
}

void ComparisonInputs::try_sizes(SizeChoice sizes, const FloatRanges& ranges) {
  const std::string what = fmt::format("drawn inputs of the {} sizes", name_of(sizes));
  try {
    const std::vector<Dims> dims = choose_input_dims(plan_, weights_, sizes);
    if (std::ranges::find(tried_, dims) != tried_.end()) return;
    tried_.push_back(dims);
    // These sizes are optional.
    if (sizes == SizeChoice::kLarger && !is_cheap(dims)) return;
    double elements = 0;
    for (const Dims& each : dims) elements += static_cast<double>(count(each));
    if (elements > kMostDrawnElements)
      return note(what, fmt::format("{:.0f} elements are too many to draw", elements));
    if (!may_run(dims, what)) return;
    const std::vector<InputRange> accepted = input_ranges(plan_, weights_, dims);
    ComparisonInput input{
        .what = what, .tensors = {}, .is_drawn = true, .is_extra = sizes == SizeChoice::kLarger};
    for (size_t i = 0; i < dims.size(); ++i) {
      const Tensor* const value = default_value(plan_, weights_, i);
      input.tensors.push_back(value != nullptr && value->dims() == dims[i]
                                  ? *value
                                  : widely_drawn(plan_.slots[plan_.inputs[i]], dims[i], accepted[i],
                                                 ranges, 16 * tried_.size() + i));
    }
    inputs_.push_back(std::move(input));
  } catch (const Error& error) {
    if (!refuses_arguments(error)) throw;
    if (sizes != SizeChoice::kLarger) note(what, error.what());
  }
}

bool ComparisonInputs::is_cheap(std::span<const Dims> dims) const {
  double weights = 0;
  for (const Tensor& weight : weights_) weights += static_cast<double>(weight.count());
  return 2 * run_work(plan_, weights_, dims) <= std::max(kCheapWork, kCheapWorkOfAWeight * weights);
}

void ComparisonInputs::draw_plainer(ComparisonInput& input) const {
  std::vector<Tensor> plain = draw_inputs(plan_, weights_, dims_of(input), 1);
  input.is_plain = true;
  for (size_t i = 0; i < plain.size(); ++i)
    if (is_float(plain[i].dtype())) input.tensors[i] = std::move(plain[i]);
}

bool ComparisonInputs::draw_accepted(ComparisonInput& input, const Engine& f32, int threads) {
  const std::vector<Dims> dims = dims_of(input);
  const double work = run_work(plan_, weights_, dims);
  for (const bool keeps_floats : {true, false}) {
    if (work_ + work > most_work_ || (input.is_large && !keeps_floats)) return false;
    std::vector<TrialInput> tried;
    for (size_t i = 0; i < dims.size(); ++i) {
      const Tensor& tensor = input.tensors[i];
      const bool is_given = default_value(plan_, weights_, i) != nullptr ||
                            (keeps_floats && is_float(tensor.dtype()));
      tried.push_back({is_given ? std::optional(tensor) : std::nullopt, 1 + i});
    }
    InputTrials trials(f32, std::move(tried), threads);
    const bool is_accepted = !trials.run(dims);
    work_ += work * trials.runs();
    if (!is_accepted) continue;
    input.tensors = trials.draw(dims);
    input.is_plain = input.is_plain || !keeps_floats;
    return true;
  }
  return false;
}

}  // namespace anneal
