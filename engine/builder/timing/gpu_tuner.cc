#include "anneal/engine/builder/timing/gpu_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "anneal/core/error.h"
#include "anneal/core/parallel.h"
#include "anneal/core/version.h"
#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/engine/builder/timing/choose_by_times.h"
#include "anneal/engine/builder/timing/sampled_times.h"
#include "anneal/engine/builder/timing/timed_step.h"
#include "anneal/engine/builder/timing/timing_text.h"
#include "anneal/engine/slot_alignment.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

constexpr uint32_t kAligned = 64;  // as weights and the arena are
constexpr size_t kMostKeptTactics = 3;
constexpr int kLevelOfAll = 5;

TimingKey key_of(const std::string& machine, const std::string& layer) {
  return {std::string(version()), machine, 1, layer};
}

// The machine part of a key names the architecture of a card.
bool is_of_target(const std::string& machine, const std::string& target) {
  return (machine + ",").find(fmt::format(", {},", target)) != std::string::npos;
}

std::unique_ptr<Kernel> made_on(const TimedCandidate& candidate, const TimedStep& step,
                                Device& device) {
  Request request = step.request(device);
  request.tactic = candidate.tactic;
  KernelResult made = candidate.entry->make(request);
  return made ? *std::move(made) : nullptr;
}

}  // namespace

// A step with a choice. Layers of one text share their times.
struct GpuTuner::Layer {
  size_t index;  // of the step
  std::string name;
  std::unique_ptr<TimedStep> step = {};
  std::string text = {}, why_not = {};
  std::vector<TimedCandidate> candidates = {};
  std::vector<std::unique_ptr<Kernel>> kernels = {};  // on the card; null: it refuses
  std::optional<KernelTimes> times = {};
  std::string machine = {};  // of the times, if it is another one
};

TimedCandidate GpuTuner::heuristic_of(const TimedStep& step, const GpuPlace& place) const {
  Request request = step.request(place.device);
  request.ignore_speed_heuristics = false;
  const KernelChoice chosen = choose_kernel(place.backend, request, options_.kernels);
  const KernelEntry* entry = chosen.entry;
  Tactic tactic = chosen.kernel ? chosen.kernel->tactic() : step.step.tactic;
  if (entry == nullptr) entry = find_kernel(place.backend, step.step.kernel);
  // What follows from the layer alone is no choice.
  if (entry->tactics == nullptr && entry->source == KernelSource::kOwn) tactic.clear();
  std::string name = timing_name(entry->name, tactic, entry->source);
  return {entry, std::move(tactic), std::move(name)};
}

// Times of this machine; of a device to build for, those of the first card of its kind.
void GpuTuner::find_times(Layer& layer, const GpuPlace& place) const {
  if (const auto found = known_.layers.find(key_of(timed_machine_, layer.text));
      found != known_.layers.end()) {
    layer.times = found->second;
    return;
  }
  if (place.card != nullptr) return;
  const std::string target = place.device.target();
  for (const auto& [key, times] : known_.layers)
    if (key.anneal == version() && key.layer == layer.text && is_of_target(key.machine, target)) {
      layer.times = times;
      layer.machine = key.machine;
      return;
    }
}

// Making every kernel to list its tactics takes long: layers of one text and one heuristic share
// the list. known: the first layer of each text.
void GpuTuner::list_candidates(Layer& layer, const std::vector<Layer>& layers,
                               const std::map<std::string, size_t, std::less<>>& known,
                               const GpuPlace& place) const {
  const TimedCandidate heuristic = heuristic_of(*layer.step, place);
  const auto same = known.find(layer.text);
  if (same != known.end() && layers[same->second].candidates[0] == heuristic) {
    layer.candidates = layers[same->second].candidates;
    return;
  }
  const bool measures = options_.measure && place.card != nullptr;
  const int level = measures ? options_.level : layer.times ? kLevelOfAll : 0;
  layer.candidates = candidates_of(place.backend, layer.step->request(place.device),
                                   options_.kernels, heuristic, most_tactics(level));
  if (layer.times)
    add_known_tactics(place.backend, layer.step->step.op.index(), options_.kernels, known_,
                      *layer.times, layer.candidates);
}

std::vector<GpuTuner::Layer> GpuTuner::layers_of(const EngineFile& file, const Plan& plan,
                                                 const GpuPlace& place, bool all) {
  std::vector<Layer> layers;
  std::map<std::string, size_t, std::less<>> known;  // by text: of layers
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const KernelEntry* const entry = find_kernel(place.backend, step.kernel);
    if (step.device != 0 || entry == nullptr || entry->op != step.op.index() ||
        !can_be_timed(plan, step))
      continue;
    Layer layer{.index = i, .name = step.name};
    layer.step = std::make_unique<TimedStep>(file, plan, step);
    try {
      layer.text = layer.step->text(place.device);
      find_times(layer, place);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      layer.why_not = error.what();
    }
    list_candidates(layer, layers, known, place);
    if (layer.candidates.size() < 2 && !all) continue;
    known.try_emplace(layer.text, layers.size());
    layers.push_back(std::move(layer));
  }
  return layers;
}

void GpuTuner::measure(std::vector<Layer>& layers, const GpuPlace& place) {
  std::map<std::string_view, Layer*> wanted;  // by text
  for (Layer& layer : layers) {
    const bool is_complete =
        layer.times && std::ranges::all_of(layer.candidates, [&](const TimedCandidate& each) {
          return layer.times->contains(each.name);
        });
    if (is_complete || !layer.why_not.empty()) continue;
    layer.times.reset();
    if (!wanted.emplace(layer.text, &layer).second) continue;
    for (const TimedCandidate& each : layer.candidates) {
      layer.kernels.push_back(made_on(each, *layer.step, *place.card));
      const std::vector<uint32_t> inputs(layer.step->operands.inputs.size(), kAligned),
          outputs(layer.step->operands.outputs.size(), kAligned);
      if (layer.kernels.back()) know_alignments(*layer.kernels.back(), inputs, outputs);
    }
  }
  if (wanted.empty()) return;
  options_.progress("compiling kernels to time");
  compile_in_parallel(*place.card, hardware_threads());
  place.card->prepare_code({});
  size_t count = 0;
  for (Layer& layer : layers) {
    const auto first = wanted.find(layer.text);
    if (first == wanted.end() || layer.times) continue;
    if (first->second == &layer) {
      options_.progress(fmt::format("timing kernels of layer {} of {}", ++count, wanted.size()));
      measure(layer, place);
      layer.kernels.clear();
    } else {
      layer.times = first->second->times;
      layer.why_not = first->second->why_not;
    }
  }
}

void GpuTuner::measure(Layer& layer, const GpuPlace& place) {
  if (options_.seconds > 0 && machine_.seconds() >= options_.seconds) {
    layer.why_not = fmt::format("the limit of {} seconds is reached", options_.seconds);
    return;
  }
  KernelTimes times;
  try {
    const auto bench = machine_.bench(*layer.step, *place.card);
    std::vector<size_t> added;  // the candidate of each kernel on the bench
    for (size_t i = 0; i < layer.candidates.size(); ++i) {
      if (!layer.kernels[i]) {
        times[layer.candidates[i].name] = kWrongResult;
        continue;
      }
      try {
        bench->add(*layer.kernels[i]);
        added.push_back(i);
      } catch (const Error&) {
        if (i == 0) throw;
        times[layer.candidates[i].name] = kWrongResult;
      }
    }
    const std::vector<double> taken =
        sampled_times(*bench, added.size(), [&] { return machine_.clock_mhz(*place.card); });
    for (size_t k = 0; k < added.size(); ++k) times[layer.candidates[added[k]].name] = taken[k];
    // Kernels that may be chosen, here or by the cache, must compute what the heuristic's computes.
    for (size_t k = 1; k < added.size(); ++k)
      if (taken[k] < taken[0] && !bench->difference(k).empty())
        times[layer.candidates[added[k]].name] = kWrongResult;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kCancelled) throw;
    layer.why_not = error.what();
    return;
  }
  const TimingKey key = key_of(timed_machine_, layer.text);
  measured_.layers[key] = known_.layers[key] = times;
  layer.times = std::move(times);
  keep_tactics(layer);
}

// Of the fastest kernels of libraries.
void GpuTuner::keep_tactics(const Layer& layer) {
  std::vector<std::pair<double, const TimedCandidate*>> found;
  for (const TimedCandidate& each : layer.candidates)
    if (each.entry->source != KernelSource::kOwn && layer.times->contains(each.name))
      found.emplace_back(layer.times->find(each.name)->second, &each);
  std::ranges::sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > kMostKeptTactics) found.resize(kMostKeptTactics);
  for (const auto& [time, each] : found) {
    if (each->tactic.empty() || time == kWrongResult) continue;
    measured_.tactics[tactic_digest(each->tactic)] = each->tactic;
    known_.tactics[tactic_digest(each->tactic)] = each->tactic;
  }
}

// Whether the step has another kernel now.
bool GpuTuner::choose(Plan& plan, Layer& layer, const GpuPlace& place, StepTimes* step_times) {
  const auto is_of_layer = [&](const Decision& each) {
    return each.stage == kTiming && each.subject == layer.name;
  };
  const auto decide = [&](std::string text, bool refused) {
    std::erase_if(plan.decisions, is_of_layer);
    plan.decisions.push_back({std::string(kTiming), layer.name, std::move(text), refused});
  };
  // The choice of an earlier tuning stays.
  const auto leave = [&](std::string why) {
    if (std::ranges::none_of(plan.decisions, is_of_layer)) decide("is not timed: " + why, true);
    return false;
  };
  if (layer.why_not.empty() && !layer.times) {
    if (options_.measure && !place.why_no_card.empty()) return false;  // the plan has a decision
    layer.why_not = "the timing cache has no times of it";
  }
  if (!layer.why_not.empty()) return leave(layer.why_not);
  std::string dropped;
  for (const auto& [name, time] : *layer.times)
    if (time == kWrongResult) dropped += fmt::format("; {} fails or has another result", name);
  // A kernel may refuse on the device that the plan is for.
  KernelTimes times = *std::move(layer.times);
  while (const auto choice = choose_by_times(layer.candidates, times)) {
    const TimedCandidate& chosen = layer.candidates[choice->chosen];
    const auto kernel = made_on(chosen, *layer.step, place.device);
    const Step& now = plan.steps[layer.index];
    if (!kernel ||
        !know_alignments(*kernel, alignments_of(plan, now.inputs), alignments_of(plan, now.outputs))
             .empty()) {
      times.erase(chosen.name);
      continue;
    }
    if (step_times != nullptr) step_times->emplace(layer.name, times.find(chosen.name)->second);
    std::string text = choice->text + dropped;
    if (!layer.machine.empty()) text += fmt::format("; on {}", layer.machine);
    if (has_open_sizes(layer.step->request(place.device))) text += "; at the sizes to optimize for";
    Step& step = plan.steps[layer.index];
    const Step before = step;
    step.kernel = chosen.entry->name;
    step.tactic = kernel->tactic();
    step.runner_up.clear();
    step.runner_up_tactic.clear();
    if (choice->runner_up) {
      const TimedCandidate& second = layer.candidates[*choice->runner_up];
      step.runner_up = second.entry->name;
      step.runner_up_tactic = second.tactic;
    }
    decide(std::move(text), choice->chosen == 0);
    return step.kernel != before.kernel || step.tactic != before.tactic ||
           step.runner_up != before.runner_up || step.runner_up_tactic != before.runner_up_tactic;
  }
  return leave("no kernel with a time takes it here");
}

size_t GpuTuner::tune(const EngineFile& file, Plan& plan, const GpuPlace& place, StepTimes* times) {
  const bool is_for_cards = place.why_no_card.empty() || place.device.target().starts_with("sm_");
  if (place.card == nullptr && !place.why_no_card.empty() && (options_.measure || !is_for_cards))
    plan.decisions.push_back(
        {std::string(kTiming), plan.name,
         fmt::format("kernels for {} are not timed: {}", place.device.target(), place.why_no_card),
         true});
  if (!is_for_cards) return 0;
  timed_machine_ = (place.card != nullptr ? *place.card : place.device).machine();
  std::vector<Layer> layers = layers_of(file, plan, place, times != nullptr);
  if (options_.measure && place.card != nullptr) measure(layers, place);
  size_t changed = 0;
  for (Layer& layer : layers) changed += choose(plan, layer, place, times);
  return changed;
}

}  // namespace anneal
