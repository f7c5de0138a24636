#include "anneal/engine/run/watch.h"

#include <algorithm>

#include "anneal/engine/plan_check.h"

namespace anneal {

std::vector<std::vector<uint32_t>> slots_by_step(const Plan& plan) {
  std::vector<std::vector<uint32_t>> slots(plan.steps.size() + 1);
  struct Written {
    uint32_t slot, step;
  };
  std::vector<std::vector<Written>> writers(plan.slots.size());  // by base
  std::vector<bool> has_step(plan.slots.size(), false);
  for (uint32_t step = 0; step < plan.steps.size(); ++step)
    for (const uint32_t output : plan.steps[step].outputs) {
      if (output == kNoSlot) continue;
      slots[step + 1].push_back(output);
      writers[base_of(plan, output)].push_back({output, step});
      has_step[output] = true;
    }
  // A base that steps write only in parts is complete after the last part, or after the last step
  // that overwrites all of it.
  for (uint32_t base = 0; base < plan.slots.size(); ++base) {
    if (plan.slots[base].storage == Storage::kView || has_step[base] || writers[base].empty())
      continue;
    uint32_t last = writers[base][0].step;
    for (size_t i = 1; i < writers[base].size(); ++i) {
      if (covers_base(plan, plan.slots[writers[base][i].slot])) break;
      last = writers[base][i].step;
    }
    slots[last + 1].push_back(base);
  }
  // Where a base is written over in place, a view is of the slot emitted last before it: slots lie
  // in the order in which their layers were emitted, but for ports, which come first.
  for (uint32_t view = 0; view < plan.slots.size(); ++view) {
    if (plan.slots[view].storage != Storage::kView || has_step[view]) continue;
    size_t told = 0;
    for (const Written& written : writers[plan.slots[view].base])
      if (written.slot < view || told == 0) told = written.step + 1;
    slots[told].push_back(view);
  }
  return slots;
}

}  // namespace anneal
