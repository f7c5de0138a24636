#include "anneal/engine/run/step_timer.h"

#include "anneal/kernels/cuda/backend.h"

namespace anneal {

void StepTimer::start() {
  spent_.assign(run_.plan.steps.size(), {});
  spent_in_all_ = 0;
  for (size_t i = 0; i <= run_.host(); ++i) take_counts(run_.stream(i));  // of earlier runs
  for (StepTimer* const body : bodies_) body->start();
}

void StepTimer::stop() {
  spent_.clear();
  for (StepTimer* const body : bodies_) body->stop();
}

double StepTimer::spent_in_bodies(size_t step) const {
  double sum = 0;
  for (const BodyUse& use : bodies_of(run_.plan.steps[step].op))
    sum += bodies_[static_cast<size_t>(use.body)]->spent_in_all_;
  return sum;
}

void StepTimer::run(size_t step, FunctionRef<void()> work) {
  const double before = spent_in_bodies(step);
  DeviceStream& on = run_.stream(run_.plan.steps[step].device);
  const double took = on.microseconds([&] { work(); });
  add_counts(spent_[step].functions, take_counts(on));
  spent_[step].microseconds += took - (spent_in_bodies(step) - before);
  ++spent_[step].times;
  spent_in_all_ += took;
}

void StepTimer::add_to(std::vector<CountedStep>& times) const {
  for (size_t i = 0; i < spent_.size(); ++i) {
    const Step& step = run_.plan.steps[i];
    times.push_back(
        {{step.name, step.kernel, spent_[i].microseconds, spent_[i].times}, spent_[i].functions});
    for (const BodyUse& use : bodies_of(step.op))
      bodies_[static_cast<size_t>(use.body)]->add_to(times);
  }
}

}  // namespace anneal
