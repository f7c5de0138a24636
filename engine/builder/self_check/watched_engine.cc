#include "anneal/engine/builder/self_check/watched_engine.h"

#include <map>

#include "anneal/core/file.h"
#include "anneal/engine/run/make_engine.h"

namespace anneal {
namespace {

// The limit for one context. The same on every machine, as all decisions of the check are.
constexpr size_t kMostMemory = size_t{2} << 30;

std::shared_ptr<const Engine> engine_of(const EngineFile& file, const Plan& plan, int threads) {
  EngineFile one{.plans = {plan},
                 .weights = file.weights,
                 .producer = file.producer,
                 .model_name = file.model_name,
                 .packing = file.packing};
  return make_engine(std::move(one), {.device = plan.target, .threads = threads});
}

}  // namespace

WatchedEngine::WatchedEngine(const EngineFile& file, const Plan& plan, int threads)
    : engine_(engine_of(file, plan, threads)),
      context_(engine_,
               {.threads = threads, .max_memory = kMostMemory, .prewarm_profiles = false}) {
  if (!file.packing) return;
  const Plan& own = this->plan();
  for (const Step& step : own.steps)
    for (const uint32_t slot : step.inputs)
      if (slot != kNoSlot && own.slots[slot].storage == Storage::kWeight)
        in_file_[step.name].push_back(file.weights[own.slots[slot].offset]);
}

const Plan& WatchedEngine::plan() const { return plan_of(*engine_); }

void WatchedEngine::set_inputs(std::vector<Tensor> inputs) {
  inputs_ = std::move(inputs);
  for (size_t i = 0; i < inputs_.size(); ++i)
    context_.set_input(engine_->inputs()[i].name, inputs_[i].view());
}

void WatchedEngine::run(const Told& told) {
  std::map<std::string, int, std::less<>> times;
  observe(context_, [&](const Observation& observed) {
    auto found = times.find(observed.name);
    if (found == times.end()) found = times.emplace(std::string(observed.name), 0).first;
    told({found->first, ++found->second}, observed);
    if (const auto read = in_file_.find(observed.step); read != in_file_.end())
      for (const Tensor& weight : read->second) give_pages_back(weight);
  });
  try {
    context_.run();
  } catch (...) {
    observe(context_, {});
    throw;
  }
  observe(context_, {});
}

}  // namespace anneal
