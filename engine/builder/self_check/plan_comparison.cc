#include "anneal/engine/builder/self_check/plan_comparison.h"
#include "anneal/core/dtype_kinds.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "anneal/core/error.h"

namespace anneal {
namespace {

// Rounding errors add up as a random walk does: this many times unit * sqrt(depth) is explained.
constexpr double kGenerous = 4;
// A single element may be this much further off, relative to the largest.
constexpr double kSingleElement = 8;
// The share of integers made of floats that may differ, because the floats are at a tie.
constexpr double kDifferingIntegers = 0.02;
// The limit on f32 values kept for the comparison; judged values are kept in any case.
constexpr size_t kMostKept = size_t{1} << 30;
// A step dominates if, without its error, at most this part of the later difference is left.
// Without one of two equal steps, 0.71 is left.
constexpr double kDominates = 0.75;
// The error that one step may make from exact operands without being a fault, in units.
constexpr double kOrdinaryStep = 16;
// How far a value moves that f32 rounds in another way: kernels and orders of sums differ.
constexpr float kLastPlaces = 0x1p-22F;

// Up or down by the place of the element, so that equal elements come apart. Integers and other
// numbers of few digits stay: f32 does not round them, and they may be sizes or end a loop.
void move_last_places(const TensorView& value) {
  std::vector<float> elements = floats_of(value), rounded = elements;
  round_to(DataType::kF16, rounded);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (rounded[i] == elements[i] || std::trunc(elements[i]) == elements[i]) continue;
    const bool is_up = std::popcount(i * 0x9e3779b97f4a7c15) % 2 == 0;
    elements[i] *= 1 + (is_up ? kLastPlaces : -kLastPlaces);
  }
  write_floats(value, elements);
}

}  // namespace

std::vector<float> PlanComparison::exact_value(const std::string& value) const {
  const auto found = kept_.find({value, 1});
  return found == kept_.end() ? std::vector<float>() : found->second.row_major();
}

void PlanComparison::keep(bool all) {
  kept_.clear();
  size_t bytes = 0;
  exact_.run([&](const ValueKey& key, const Observation& observed) {
    const bool is_looked_at = judged_.is_looked_at(key.first);
    if (!is_looked_at && (!all || !is_float(observed.value.dtype))) return;
    const size_t size = static_cast<size_t>(count(observed.value.dims)) * sizeof(float);
    if (!is_looked_at && bytes + size > kMostKept) return;
    bytes += size;
    kept_.emplace(key, KeptValue(observed.value));
  });
}

Finding PlanComparison::compare(const std::vector<Tensor>& inputs) {
  values_.clear();
  places_.clear();
  noise_.clear();
  exact_.set_inputs(inputs);
  reduced_.set_inputs(inputs);
  keep(false);
  count_ = {};
  behind_selection_ = {};
  const Finding found = run(reduced_, Pass::kJudge, 0);
  judged_in_last_ = count_;
  if (!found.is_bad() || found.is_lost || found.is_count) return found;
  measure_noise();
  return run(reduced_, Pass::kJudge, 0);
}

// After a selection that differs, later values have other causes to differ. If the model refuses
// its own values so moved, nothing is known.
void PlanComparison::measure_noise() try {
  bool has_chosen_otherwise = false;
  exact_.run([&](const ValueKey& key, const Observation& observed) {
    const auto found = kept_.find(key);
    if (found != kept_.end() && found->second.dims() == observed.value.dims) {
      const ValueError error = found->second.error_of(observed.value);
      if (judged_.is_selection(key.first) && error.differing > 0) has_chosen_otherwise = true;
      if (judged_.is_judged(key.first) && is_float(observed.value.dtype) &&
          !(has_chosen_otherwise && judged_.follows_selection(key.first)))
        noise_[key] = static_cast<float>(kGenerous * error.away);
    }
    if (!observed.step.empty() && observed.value.dtype == DataType::kF32)
      move_last_places(observed.value);
  });
} catch (const Error& error) {
  if (error.code() == ErrorCode::kCancelled) throw;
  noise_.clear();
}

float PlanComparison::noise_of(const ValueKey& key) const {
  const auto found = noise_.find(key);
  return found == noise_.end() ? 0 : found->second;
}

double PlanComparison::blind_share() const {
  double most = 0;
  for (const auto& [key, value] : kept_) {
    if (!judged_.is_judged(key.first) || value.elements().empty()) continue;
    const auto lost = std::ranges::count_if(value.elements(),
                                            [](float element) { return !std::isfinite(element); });
    most = std::max(most, static_cast<double>(lost) / static_cast<double>(value.elements().size()));
  }
  return most;
}

void PlanComparison::keep_all() { keep(true); }

double PlanComparison::explained(const ValueKey& key) const {
  const double depth = judged_.depth(key.first);
  return std::min(kGenerous * unit_ * std::sqrt(depth), most_explained_);
}

void PlanComparison::judge(const ValueKey& key, DataType dtype, const ValueError& error,
                           Finding& worst) const {
  const bool is_count = judged_.is_counted(key.first);
  Finding now{.value = key.first, .is_count = is_count};
  if (is_count) {
    // As many comparisons turn as the compared numbers are off.
    now.explained = dtype == DataType::kBool ? std::max(kDifferingIntegers, explained(key))
                                             : kDifferingIntegers;
    now.difference = error.differing;
    now.excess = error.differing / now.explained;
  } else {
    now.explained = explained(key);
    now.difference = std::max(error.relative, error.worst / kSingleElement);
    now.excess = now.difference / now.explained;
    if (now.difference > kUseless)
      now.excess = std::max(now.excess, kToldFrom * now.difference / kUseless);
    now.is_lost = error.lost > 0;
  }
  if (std::pair(now.is_lost, now.excess) > std::pair(worst.is_lost, worst.excess)) worst = now;
}

void PlanComparison::judge_in_order(const ValueKey& key, const KeptValue& kept,
                                    const Observation& observed, const ValueError& error,
                                    Finding& worst) {
  const DataType dtype = observed.value.dtype;
  const std::span<const float> elements = kept.elements();
  if (!observed.step.empty()) {
    count_.elements += elements.size();
    count_.numbers += static_cast<size_t>(
        std::ranges::count_if(elements, [](float element) { return std::isfinite(element); }));
  }
  ValueError counted = error;
  const bool is_quantized = is_8bit(dtype) || dtype == DataType::kI16 || dtype == DataType::kU16;
  if (is_quantized && !elements.empty()) {
    const auto [least, most] = std::ranges::minmax(elements);
    counted.differing =
        kept.share_apart(observed.value, std::max(1.0, explained(key) * (double{most} - least)));
  }
  // Inside the model a single comparison may be at a tie.
  const double one = elements.empty() ? 0 : 1.0 / static_cast<double>(elements.size());
  if (dtype == DataType::kBool && !judged_.is_output(key.first) && counted.differing <= one)
    counted.differing = 0;
  judge(key, dtype, counted, worst);
}

void PlanComparison::judge_numbers(const ValueKey& key, const KeptValue& kept,
                                   const TensorView& got, Finding& worst) const {
  const auto lost = [](float element) { return !std::isfinite(element); };
  const bool is_as_long = kept.dims() == got.dims;
  const auto before = std::ranges::count_if(kept.elements(), lost);
  if (!is_as_long && before > 0) return;
  const auto now = std::ranges::count_if(floats_of(got), lost);
  if (now > before) judge(key, got.dtype, ValueError{.lost = now - before}, worst);
}

void PlanComparison::note_behind_selection(const std::string& value, const ValueError& error) {
  const bool is_explained = error.relative <= kToldFrom * explained({value, 1});
  if (!judged_.is_output(value) || is_explained || error.relative <= behind_selection_.difference)
    return;
  behind_selection_ = {value, error.relative};
}

void PlanComparison::write_exact(const Value& value, const Observation& observed) const {
  if (observed.step.empty()) return;  // memory of the caller, or weights
  const KeptValue& kept = kept_.at(value.key);
  if (!is_half(value.stored) || !judged_.is_looked_at(value.key.first))
    return kept.write_to(observed.value);
  KeptValue rounded = kept;
  rounded.round_to(value.stored);
  rounded.write_to(observed.value);
}

Finding PlanComparison::run(WatchedEngine& engine, Pass pass, size_t exact_before,
                            const WatchedEngine::Told* told) {
  Finding worst;
  bool has_chosen_otherwise = false;
  engine.run([&](const ValueKey& key, const Observation& observed) {
    if (told) (*told)(key, observed);
    const auto found = kept_.find(key);
    if (found == kept_.end()) return;
    if (found->second.dims() != observed.value.dims) {
      if (pass != Pass::kAlone && judged_.is_judged(key.first) && is_float(observed.value.dtype))
        judge_numbers(key, found->second, observed.value, worst);
      has_chosen_otherwise = has_chosen_otherwise || judged_.is_selection(key.first);
      return;
    }
    const auto place = places_.find(key);
    if (pass == Pass::kExactBefore && place != places_.end() && place->second < exact_before)
      return write_exact(values_[place->second], observed);
    const bool is_looked_at = judged_.is_looked_at(key.first);
    if (pass != Pass::kAlone && !is_looked_at) return;
    const ValueError error = found->second.error_of(observed.value, noise_of(key));
    if (pass == Pass::kAlone) {
      Value value{.key = key,
                  .step = std::string(observed.step),
                  .alone = error,
                  .is_float = is_float(observed.value.dtype)};
      if (value.is_float && narrowest(found->second.elements()) == DataType::kF32)
        value.stored = narrowest(floats_of(observed.value));
      if (!is_looked_at) found->second.round_to(value.stored);
      write_exact(value, observed);
      places_.emplace(key, values_.size());
      values_.push_back(std::move(value));
      return;
    }
    const bool counts = !has_chosen_otherwise || !judged_.follows_selection(key.first);
    if (counts && (judged_.is_judged(key.first) || judged_.is_counted(key.first)))
      judge_in_order(key, found->second, observed, error, worst);
    else if (judged_.is_judged(key.first) && is_float(observed.value.dtype)) {
      judge_numbers(key, found->second, observed.value, worst);
      note_behind_selection(key.first, error);
    }
    if (judged_.is_selection(key.first) && error.differing > 0) has_chosen_otherwise = true;
  });
  return worst;
}

Finding PlanComparison::disturbed(const WatchedEngine::Told& told) {
  return run(exact_, Pass::kJudge, 0, &told);
}

bool PlanComparison::is_rounded(const std::string& value) const {
  const auto found = places_.find({value, 1});
  return found == places_.end() || is_half(values_[found->second].stored);
}

Fault PlanComparison::fault_of(const Value& value) {
  return {.value = value.key.first,
          .step = value.step,
          .is_lost = value.alone.lost > 0,
          .largest = value.alone.largest,
          .difference = value.alone.relative};
}

std::vector<Fault> PlanComparison::faults() {
  run(reduced_, Pass::kAlone, 0);
  std::vector<Fault> found;
  for (const Value& value : values_)
    if (value.is_float && value.alone.lost > 0 && !value.step.empty())
      found.push_back(fault_of(value));
  if (!found.empty()) return found;
  const auto left = [&](size_t exact_before) {
    const Finding now = run(reduced_, Pass::kExactBefore, exact_before);
    return now.is_lost ? std::numeric_limits<double>::infinity() : now.excess;
  };
  size_t good = values_.size(), bad = 0;  // values before these are exact
  double of_good = left(good), of_bad = left(bad);
  const double wanted = std::max(1.0, of_bad / 2);
  if (good == 0 || of_good > wanted) return {};
  while (bad + 1 < good) {
    const size_t middle = bad + (good - bad) / 2;
    const double now = left(middle);
    (now > wanted ? bad : good) = middle;
    (now > wanted ? of_bad : of_good) = now;
  }
  if (of_good > kDominates * of_bad) return {};
  const Value& last = values_[good - 1];
  if (last.step.empty()) return {};
  found.push_back(fault_of(last));
  for (const Value& value : values_)
    if (&value != &last && value.is_float && !value.step.empty() &&
        value.alone.relative > kOrdinaryStep * unit_ &&
        value.alone.relative > last.alone.relative / 2)
      found.push_back(fault_of(value));
  return found;
}

}  // namespace anneal
