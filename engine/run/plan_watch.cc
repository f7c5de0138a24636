// Who watches a run and its bodies: observers, and the times of steps.
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/plan_run.h"
#include "anneal/engine/run/watch.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {

void PlanRun::observe(const Observer& observer) {
  observer_ = observer;
  watched_ = observer ? slots_by_step(plan_) : decltype(watched_)();
  for (const auto& body : bodies_) {
    body->observe(observer);
    // What a body is given has no other step that would tell it: a loop's state, above all.
    if (observer)
      body->watched_[0].insert(body->watched_[0].begin(), body->plan_.inputs.begin(),
                               body->plan_.inputs.end());
  }
}

void PlanRun::tell_observer(size_t steps_done) {
  wait_for_devices();
  const Step* step = steps_done == 0 ? nullptr : &plan_.steps[steps_done - 1];
  for (const uint32_t slot : watched_[steps_done]) {
    // It was told where it comes from.
    if (step && step->kernel == kTransfer && slot == step->outputs[0]) continue;
    const TensorView here = on_host(slot);
    observer_({plan_.slots[slot].name, step ? std::string_view(step->name) : "",
               step ? std::string_view(step->kernel) : "", here, loops_});
    if (step && here.data != slots_[slot].data) give_back(slot, here);
  }
}

// The slot, or a copy of it that its observer can read.
TensorView PlanRun::on_host(uint32_t slot) {
  const size_t index = plan_.slots[slot].device;
  if (index == host()) return slots_[slot];
  TensorView view = slots_[slot];
  const auto bytes = static_cast<size_t>(extent(view.dims, view.strides)) * size_of(view.dtype);
  observed_.resize(std::max<size_t>(bytes, 1));
  if (bytes != 0) device(index).copy(observed_.data(), view.data, bytes, stream(index));
  stream(index).wait();
  view.data = observed_.data();
  return view;
}

// What an observer wrote into its copy.
void PlanRun::give_back(uint32_t slot, const TensorView& here) {
  const size_t index = plan_.slots[slot].device;
  const auto bytes = static_cast<size_t>(extent(here.dims, here.strides)) * size_of(here.dtype);
  if (bytes != 0) device(index).copy(slots_[slot].data, here.data, bytes, stream(index));
  stream(index).wait();
}

// iteration: of a Loop or Scan.
void PlanRun::run_body(PlanRun& body, const Step& step, std::optional<int64_t> iteration,
                       ThreadTeam& team) {
  if (observer_) {
    body.loops_ = loops_;
    if (iteration) body.loops_.push_back({step.name, *iteration});
  }
  body.run(team);
}

void PlanRun::profile(ThreadTeam& team, std::vector<StepTime>& times) {
  start_timing();
  try {
    run(team);
  } catch (...) {
    stop_timing();
    throw;
  }
  add_times(times);
  stop_timing();
}

void PlanRun::start_timing() {
  spent_.assign(plan_.steps.size(), {});
  spent_in_all_ = 0;
  for (size_t i = 0; i < plan_.devices.size(); ++i) take_counts(stream(i));  // of earlier runs
  for (const auto& body : bodies_) body->start_timing();
}

void PlanRun::stop_timing() {
  spent_.clear();
  for (const auto& body : bodies_) body->stop_timing();
}

void PlanRun::run_timed(size_t index, ThreadTeam& team) {
  const auto in_bodies = [&] {
    double sum = 0;
    for (const BodyUse& use : bodies_of(plan_.steps[index].op))
      sum += bodies_[static_cast<size_t>(use.body)]->spent_in_all_;
    return sum;
  };
  const double before = in_bodies();
  Stream& on = stream(plan_.steps[index].device);
  const double took = on.microseconds([&] { run_step(index, team); });
  add_counts(spent_[index].functions, take_counts(on));
  spent_[index].microseconds += took - (in_bodies() - before);
  ++spent_[index].times;
  spent_in_all_ += took;
}

void PlanRun::add_times(std::vector<StepTime>& times) const {
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    times.push_back(
        {step.name, step.kernel, spent_[i].microseconds, spent_[i].times, spent_[i].functions});
    for (const BodyUse& use : bodies_of(step.op))
      bodies_[static_cast<size_t>(use.body)]->add_times(times);
  }
}

}  // namespace anneal
