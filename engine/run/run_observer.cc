#include "anneal/engine/run/run_observer.h"

#include <algorithm>

#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/watch.h"

namespace anneal {
namespace {

size_t bytes_reached(const TensorView& view) {
  return static_cast<size_t>(extent(view.dims, view.strides)) * size_of(view.dtype);
}

}  // namespace

void RunObserver::set(const Observer& observer) {
  observer_ = observer;
  watched_ = observer ? slots_by_step(run_.plan) : decltype(watched_)();
}

void RunObserver::add_inputs() {
  const std::vector<uint32_t>& inputs = run_.plan.inputs;
  watched_[0].insert(watched_[0].begin(), inputs.begin(), inputs.end());
}

void RunObserver::enter(const RunObserver& outer, std::string_view step,
                        std::optional<int64_t> iteration) {
  loops_ = outer.loops_;
  if (iteration) loops_.push_back({step, *iteration});
}

void RunObserver::observe_until(size_t steps_done) {
  const Step* step = steps_done == 0 ? nullptr : &run_.plan.steps[steps_done - 1];
  for (const uint32_t slot : watched_[steps_done]) {
    if (step && step->kernel == kTransfer && slot == step->outputs[0] && is_known(*step)) continue;
    const TensorView here = on_host(slot);
    observer_({run_.plan.slots[slot].name, step ? std::string_view(step->name) : "",
               step ? std::string_view(step->kernel) : "", here, loops_});
    if (step && here.data != run_.slots[slot].data) give_back(slot, here);
  }
}

// Whether the result of a transfer was observed on the device that it comes from: an output of the
// model may have another name there.
bool RunObserver::is_known(const Step& transfer) const {
  const Slot& copy = run_.plan.slots[transfer.outputs[0]];
  return copy.storage != Storage::kOutput || copy.name == run_.plan.slots[transfer.inputs[0]].name;
}

// The slot, or a copy of it that the observer can read.
TensorView RunObserver::on_host(uint32_t slot) {
  const size_t index = run_.plan.slots[slot].device;
  if (index == run_.host()) return run_.slots[slot];
  TensorView view = run_.slots[slot];
  const size_t bytes = bytes_reached(view);
  copy_.resize(std::max<size_t>(bytes, 1));
  if (bytes != 0) run_.device(index).copy(copy_.data(), view.data, bytes, run_.stream(index));
  run_.stream(index).wait();
  view.data = copy_.data();
  return view;
}

// The elements that an observer wrote into its copy.
void RunObserver::give_back(uint32_t slot, const TensorView& here) {
  const size_t index = run_.plan.slots[slot].device;
  const size_t bytes = bytes_reached(here);
  if (bytes != 0)
    run_.device(index).copy(run_.slots[slot].data, here.data, bytes, run_.stream(index));
  run_.stream(index).wait();
}

}  // namespace anneal
