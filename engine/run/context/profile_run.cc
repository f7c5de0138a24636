#include "anneal/engine/run/context/profile_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"

namespace anneal {

ProfileRun::ProfileRun(std::span<const LoadedPlan> plans, const RunResources& resources,
                       int64_t micro_batch, std::optional<size_t> only)
    : plans_(plans), resources_(resources), micro_batch_(micro_batch), only_(only) {
  if (only && *only >= plans.size())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("there is no profile {}: this engine has {}, counted from 0", *only,
                     plans.size()));
  const size_t inputs = plans[0].plan->inputs.size();
  inputs_.resize(inputs);
  outputs_.resize(plans[0].plan->outputs.size());
  input_dims_.resize(inputs);
  wanted_dims_.resize(inputs);
  runs_.resize(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    make_run(i);
    ranges_.push_back(range_of(*plans[i].plan));
  }
  now_ = only.value_or(0);
}

void ProfileRun::make_run(size_t profile) {
  OneRun& made = runs_[profile];
  made.run.reset();  // its memory is free first
  made.run = std::make_unique<SplitRun>(plans_[profile], resources_, micro_batch_);
  made.new_inputs.clear();
  for (const auto& input : inputs_) made.new_inputs.push_back(input.has_value());
  made.new_outputs.clear();
  for (const auto& output : outputs_) made.new_outputs.push_back(output.has_value());
  made.remarks = 0;
  if (observer_) made.run->observe(observer_);
}

void ProfileRun::set_input(size_t index, const TensorView& memory) {
  inputs_[index] = memory;
  for (OneRun& each : runs_) each.new_inputs[index] = true;
  has_run_ = false;
}

void ProfileRun::set_output(size_t index, const TensorView& memory) {
  outputs_[index] = memory;
  for (OneRun& each : runs_) each.new_outputs[index] = true;
  has_run_ = false;
}

void ProfileRun::clear_output(size_t index) {
  outputs_[index].reset();
  for (OneRun& each : runs_) each.new_outputs[index] = true;
  has_run_ = false;
}

size_t ProfileRun::choose(std::span<const Dims> input_dims) {
  if (only_) return *only_;
  if (runs_.size() == 1) return 0;
  std::ranges::copy(input_dims, wanted_dims_.begin());
  if (const auto chosen = choose_profile(ranges_, wanted_dims_)) return *chosen;
  const Plan& plan = runs_[0].run->plan();
  std::string text = "no profile of this engine takes inputs of these shapes:";
  for (size_t i = 0; i < input_dims.size(); ++i) {
    text += fmt::format("\n  input \"{}\" {}; the profiles take", plan.slots[plan.inputs[i]].name,
                        to_string(input_dims[i]));
    for (size_t k = 0; k < ranges_.size(); ++k)
      text += fmt::format("{} {}", k == 0 ? "" : ",", to_string(ranges_[k], i));
  }
  fail(ErrorCode::kInvalidArgument, text);
}

template <class Body>
void ProfileRun::within_limit(size_t profile, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kLimit || runs_.size() == 1) throw;
  }
  for (size_t i = 0; i < runs_.size(); ++i)
    if (i != profile) make_run(i);
  body();
}

void ProfileRun::bind() {
  for (size_t i = 0; i < inputs_.size(); ++i) input_dims_[i] = inputs_[i]->dims;
  const size_t chosen = choose(input_dims_);
  within_limit(chosen, [&] { bind(chosen); });
  now_ = chosen;
}

void ProfileRun::bind(size_t profile) {
  OneRun& next = runs_[profile];
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (next.new_inputs[i]) next.run->set_input(i, *inputs_[i]);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!next.new_outputs[i]) continue;
    if (outputs_[i])
      next.run->set_output(i, *outputs_[i]);
    else
      next.run->clear_output(i);
  }
  next.new_inputs.assign(inputs_.size(), false);
  next.new_outputs.assign(outputs_.size(), false);
  next.run->bind();
}

bool ProfileRun::may_update(size_t input, size_t output) const {
  const PortPair wanted{static_cast<uint32_t>(input), static_cast<uint32_t>(output)};
  return std::ranges::count(plans_[now_].plan->updated_ports, wanted) > 0;
}

bool ProfileRun::may_append(size_t input, size_t output) const {
  return std::ranges::any_of(plans_[now_].plan->appended_ports, [&](const AppendedPorts& ports) {
    return ports.input == input && ports.output == output;
  });
}

void ProfileRun::prepare(std::span<const Dims> input_dims) {
  has_run_ = false;
  const size_t chosen = choose(input_dims);
  within_limit(chosen, [&] { runs_[chosen].run->prepare(input_dims); });
}

std::optional<Dims> ProfileRun::only_dims(size_t index) const {
  if (!only_ && runs_.size() > 1) return std::nullopt;
  const ProfileRange& range = ranges_[only_.value_or(0)];
  if (range.min[index] != range.max[index]) return std::nullopt;
  return range.max[index];
}

void ProfileRun::start(ThreadTeam& team, const std::function<void()>* inputs_read) {
  has_run_ = false;
  runs_[now_].run->start(team, inputs_read);
}

void ProfileRun::finish(ThreadTeam& team) {
  runs_[now_].run->finish(team);
  has_run_ = true;
  add_remarks();
}

void ProfileRun::profile(ThreadTeam& team, std::vector<CountedStep>& times) {
  has_run_ = false;
  runs_[now_].run->profile(team, times);
  has_run_ = true;
  add_remarks();
}

void ProfileRun::observe(const Observer& observer) {
  observer_ = observer;
  for (const OneRun& each : runs_) each.run->observe(observer);
}

void ProfileRun::add_remarks() {
  OneRun& now = runs_[now_];
  const auto remarks = now.run->remarks();
  for (; now.remarks < remarks.size(); ++now.remarks) remarks_.push_back(remarks[now.remarks]);
}

HeldMemory ProfileRun::memory() const {
  HeldMemory held;
  for (const OneRun& each : runs_) held += each.run->memory();
  return held;
}

}  // namespace anneal
