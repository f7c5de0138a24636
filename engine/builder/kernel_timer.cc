#include "anneal/engine/builder/kernel_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/core/error.h"
#include "anneal/core/version.h"
#include "anneal/engine/builder/timed_operands.h"
#include "anneal/graph/program/program.h"

namespace anneal {
namespace {

constexpr double kMostMicroseconds = 30'000;  // of a kernel's timed runs
constexpr int kFewestRounds = 3, kMostRounds = 25;
constexpr double kHopeless = 4;  // times as long as the fastest: is not timed further
constexpr double kNoise = 0.02;  // a kernel that is faster by less is not chosen

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// As a cache has it, so that what is decided by it now is decided by it again.
double rounded(double microseconds) { return std::round(microseconds * 100) / 100; }

std::string sizes_text(const SizeTable& sizes, const Shape& shape) {
  std::string text;
  for (const Size size : shape)
    text += fmt::format("{}{}{}", text.empty() ? "" : ",", size.known() ? "" : "?",
                        opt_size(sizes, size));
  return text;
}

std::string operand_text(const SizeTable& sizes, const Operand& operand) {
  if (!operand.present) return "-";
  return fmt::format("{}{}[{}]{{{}}}", operand.constant != nullptr ? "const " : "",
                     to_string(operand.type.dtype), sizes_text(sizes, operand.type.shape),
                     sizes_text(sizes, operand.strides));
}

bool has_open_sizes(const Request& request) {
  const auto is_open = [](const Operand& operand) {
    return operand.present && !(known(operand.type.shape) && known(operand.strides));
  };
  return std::any_of(request.inputs.begin(), request.inputs.end(), is_open) ||
         std::any_of(request.outputs.begin(), request.outputs.end(), is_open);
}

// Strings of an op may hold anything.
std::string without_control_characters(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

}  // namespace

std::string timing_text(const Request& request) {
  std::string text = to_string(request.op, request.sizes) + " (";
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (i > 0) text += static_cast<int>(i) == request.op_input_count ? "; " : ", ";
    text += operand_text(request.sizes, request.inputs[i]);
  }
  text += ") -> ";
  for (size_t i = 0; i < request.outputs.size(); ++i)
    text += (i > 0 ? ", " : "") + operand_text(request.sizes, request.outputs[i]);
  for (const Program& epilogue : request.epilogues)
    text += fmt::format(" epilogue \"{}\"", to_string(epilogue));
  return without_control_characters(std::move(text));
}

// A kernel that can run the layer, and its runs.
struct KernelTimer::Candidate {
  const KernelEntry* entry = nullptr;
  bool is_heuristic = false;
  std::unique_ptr<Kernel> kernel;
  std::unique_ptr<PreparedKernel> prepared = {};
  std::unique_ptr<Buffer> workspace = {};
  std::vector<double> runs = {};  // microseconds
  bool is_hopeless = false;

  double best() const { return *std::min_element(runs.begin(), runs.end()); }
};

KernelTimes KernelTimer::measure(const Request& request, std::vector<Candidate>& candidates) const {
  ThreadTeam team(options_.threads);
  TimedOperands operands(request, options_.threads);
  const auto run = [&](Candidate& candidate) {
    operands.lie_as_in_a_network(team);
    return operands.stream().microseconds([&] {
      candidate.kernel->launch({operands.inputs(), operands.outputs(), candidate.prepared.get(),
                                candidate.workspace->data(), operands.stream(), team});
    });
  };
  for (Candidate& each : candidates) {
    each.prepared = each.kernel->prepare(operands.inputs(), operands.outputs(), options_.threads);
    each.workspace = request.device.allocate(std::max<size_t>(each.prepared->workspace_bytes, 1));
    run(each);
  }
  const auto take_turns = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (Candidate& each : candidates)
        if (!each.is_hopeless) each.runs.push_back(run(each));
      std::ranges::reverse(candidates);  // none always runs behind the same one
    }
  };
  take_turns(kFewestRounds);
  double fastest = std::numeric_limits<double>::infinity(), slowest = 1;
  for (const Candidate& each : candidates) fastest = std::min(fastest, each.best());
  for (Candidate& each : candidates) {
    // Three runs that others disturbed must not cost the heuristic's kernel its place.
    each.is_hopeless = !each.is_heuristic && each.best() > kHopeless * fastest;
    if (!each.is_hopeless) slowest = std::max(slowest, each.best());
  }
  take_turns(static_cast<int>(std::min(kMostMicroseconds / slowest, double{kMostRounds})) -
             kFewestRounds);
  KernelTimes times;
  for (const Candidate& each : candidates)
    times.emplace(each.entry->name, rounded(median(each.runs)));
  return times;
}

std::vector<KernelTimer::Candidate> KernelTimer::candidates(const Backend& backend, Request request,
                                                            KernelChoice& chosen) const {
  request.ignore_speed_heuristics = true;
  std::vector<Candidate> found;
  for (const KernelFamily family : backend.families) {
    for (const KernelEntry& entry : family()) {
      if (entry.op != request.op.index() || !why_left_out(entry, options_.kernels).empty())
        continue;
      if (&entry == chosen.entry) {
        found.push_back(
            {.entry = &entry, .is_heuristic = true, .kernel = std::move(chosen.kernel)});
      } else if (!is_reference(backend, entry)) {
        KernelResult made = entry.make(request);
        if (made) found.push_back({.entry = &entry, .kernel = *std::move(made)});
      }
    }
  }
  return found;
}

const KernelTimes* KernelTimer::times_of(const Request& request,
                                         std::vector<Candidate>& candidates) {
  const TimingKey key{std::string(version()), request.device.machine(), options_.threads,
                      timing_text(request)};
  const auto known = known_.find(key);
  const bool complete =
      known != known_.end() && std::ranges::all_of(candidates, [&](const Candidate& each) {
        return known->second.contains(each.entry->name);
      });
  if (complete) return &known->second;
  if (!options_.measure) return nullptr;
  const KernelTimes& times = measured_[key] = measure(request, candidates);
  return &(known_[key] = times);
}

std::optional<Decision> KernelTimer::choose(const Backend& backend, const Request& request,
                                            const std::string& layer, KernelChoice& chosen) {
  std::vector<Candidate> found = candidates(backend, request, chosen);
  const auto take = [&](const KernelEntry* entry) {
    const auto winner = std::ranges::find(found, entry, &Candidate::entry);
    chosen.entry = entry;
    chosen.kernel = std::move(winner->kernel);
  };
  const KernelEntry* const heuristic = chosen.entry;
  if (found.size() < 2) {
    take(heuristic);
    return std::nullopt;
  }
  const KernelTimes* times = nullptr;
  std::string why_not = "the timing cache has no times of it";
  try {
    times = times_of(request, found);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    why_not = error.what();
  }
  if (times == nullptr) {
    take(heuristic);
    return Decision{std::string(kTiming), layer, fmt::format("is not timed: {}", why_not), true};
  }
  const auto time_of = [&](const Candidate& each) { return times->find(each.entry->name)->second; };
  std::ranges::sort(found, [&](const Candidate& a, const Candidate& b) {
    return std::pair(time_of(a), a.entry->name) < std::pair(time_of(b), b.entry->name);
  });
  const double limit = (1 - kNoise) * times->find(heuristic->name)->second;
  const bool is_better = time_of(found[0]) < limit;
  std::string text = is_better
                         ? fmt::format("{} instead of {}:", found[0].entry->name, heuristic->name)
                         : fmt::format("{} stays:", heuristic->name);
  for (const Candidate& each : found)
    text += fmt::format("{} {} {} us", &each == found.data() ? "" : ",", each.entry->name,
                        time_of(each));
  text += fmt::format(", with {} thread{}", options_.threads, options_.threads == 1 ? "" : "s");
  if (has_open_sizes(request)) text += ", at the sizes to optimize for";
  take(is_better ? found[0].entry : heuristic);
  return Decision{std::string(kTiming), layer, std::move(text), !is_better};
}

}  // namespace anneal
