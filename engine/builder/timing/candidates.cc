#include "anneal/engine/builder/timing/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

constexpr char kBeforeDigest = '#';

// The text of a library may have any characters.
std::string plain(std::string text) {
  for (char& c : text)
    if (c == '{' || c == '}' || c == '=' || c == kBeforeDigest ||
        static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '_';
  return text;
}

void add(TimedCandidate candidate, std::vector<TimedCandidate>& candidates) {
  if (std::ranges::find(candidates, candidate.name, &TimedCandidate::name) == candidates.end())
    candidates.push_back(std::move(candidate));
}

}  // namespace

std::string timing_name(std::string_view kernel, const Tactic& tactic, KernelSource source) {
  if (tactic.empty()) return std::string(kernel);
  const std::string text = plain(tactic_text(kernel, tactic));
  if (source == KernelSource::kOwn) return fmt::format("{}{{{}}}", kernel, text);
  return fmt::format("{}{{{} {}{}}}", kernel, text, kBeforeDigest, tactic_digest(tactic));
}

size_t most_tactics(int level) {
  constexpr size_t kMost[] = {1, 1, 2, 4, 8};
  if (level < 0) return kMost[0];
  const auto index = static_cast<size_t>(level);
  return index < std::size(kMost) ? kMost[index] : std::numeric_limits<size_t>::max();
}

std::vector<TimedCandidate> candidates_of(const Backend& backend, const Request& request,
                                          const KernelOptions& options,
                                          const TimedCandidate& heuristic, size_t most) {
  std::vector<TimedCandidate> candidates = {heuristic};
  for (const KernelFamily family : backend.families) {
    for (const KernelEntry& entry : family()) {
      if (entry.op != request.op.index() || !why_left_out(entry, options).empty()) continue;
      if (entry.tactics == nullptr) {
        if (&entry != heuristic.entry && entry.make(request))
          add({&entry, {}, timing_name(entry.name, {}, entry.source)}, candidates);
        continue;
      }
      std::vector<Tactic> tactics = entry.tactics(request);
      if (tactics.size() > most) tactics.resize(most);
      for (Tactic& tactic : tactics) {
        std::string name = timing_name(entry.name, tactic, entry.source);
        add({&entry, std::move(tactic), std::move(name)}, candidates);
      }
    }
  }
  return candidates;
}

void add_known_tactics(const Backend& backend, size_t op, const KernelOptions& options,
                       const TimingCache& cache, const KernelTimes& times,
                       std::vector<TimedCandidate>& candidates) {
  for (const auto& [name, microseconds] : times) {
    const size_t at = name.find(kBeforeDigest);
    const KernelEntry* const entry = find_kernel(backend, name.substr(0, name.find('{')));
    if (at == std::string::npos || name.back() != '}' || entry == nullptr || entry->op != op ||
        entry->source == KernelSource::kOwn || !why_left_out(*entry, options).empty())
      continue;
    // The file may have been edited.
    const auto tactic = cache.tactics.find(name.substr(at + 1, name.size() - at - 2));
    if (tactic != cache.tactics.end() &&
        name == timing_name(entry->name, tactic->second, entry->source))
      add({entry, tactic->second, name}, candidates);
  }
}

}  // namespace anneal
