#include "anneal/cli/flags/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace anneal {
namespace {

struct Spelling {
  std::string_view trtexec, ours;
};
// docs/from_tensorrt.md has the same table.
constexpr Spelling kSpellings[] = {
    {"--onnx", "anneal build MODEL.onnx"},
    {"--saveEngine", "anneal build MODEL.onnx -o FILE"},
    {"--loadEngine", "anneal bench FILE"},
    {"--minShapes", "--min-shapes"},
    {"--optShapes", "--opt-shapes"},
    {"--maxShapes", "--max-shapes"},
    {"--warmUp", "--warmup 200ms"},
    {"--avgRuns", "--iterations RUNS of anneal bench"},
    {"--streams", "--contexts N of anneal bench"},
    {"--infStreams", "--contexts N of anneal bench"},
    {"--calib", "--calibrate SAMPLES or --calibration FILE of anneal build"},
    {"--layerPrecisions", "--layer-precision 'PATTERN=PRECISION'"},
    {"--precisionConstraints", "--layer-precision, which always holds"},
    {"--timingCacheFile", "--timing-cache FILE"},
    {"--tacticSources", "--skip-kernel NAME"},
    {"--builderOptimizationLevel", "--time-kernels or nothing"},
    {"--dumpProfile", "--profile of anneal bench"},
    {"--exportProfile", "--json FILE of anneal bench"},
    {"--exportTimes", "nothing yet: --json FILE of anneal bench has percentiles"},
    {"--exportOutput", "--save FOLDER of anneal run"},
    {"--dumpOutput", "--save FOLDER of anneal run"},
    {"--loadInputs", "--input NAME=FILE"},
    {"--loadRefOutputs", "anneal check FOLDER"},
    {"--exportLayerInfo", "anneal inspect ENGINE --json > FILE"},
    {"--dumpLayerInfo", "anneal inspect ENGINE"},
    {"--profilingVerbosity", "anneal inspect ENGINE --decisions, which needs no flag at build"},
    {"--useSpinWait", "--spin"},
    {"--memPoolSize", "--max-memory of anneal build, run and bench"},
    {"--workspace", "--max-memory of anneal build, run and bench"},
    {"--skipInference", "anneal build, which runs nothing"},
    {"--buildOnly", "anneal build, which runs nothing"},
    {"--useCudaGraph", "no flag: runs on a GPU are recorded as CUDA graphs by themselves"},
    {"--noTF32", "no flag: f32 is computed in f32"},
    {"--explicitBatch", "no flag: every size is what the model says"},
    {"--stronglyTyped", "no flag: the model's types are kept unless a precision is requested"},
    {"--plugins", "nothing: there are no plugins yet"},
    {"--refit", "nothing: weights cannot be changed after the build"},
    {"--useDLACore", "nothing: there is no backend for DLA"},
};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

std::string flag_of(const std::string& word) { return word.substr(0, word.find('=')); }

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const size_t steps = edit_distance(word, candidate);
    if (steps < least) {
      least = steps;
      best = candidate;
    }
  }
  return best;
}

std::string explain_words(const CLI::App& application, std::span<const std::string> words) {
  std::vector<std::string> commands;
  for (const CLI::App* command : application.get_subcommands({}))
    commands.push_back(command->get_name());
  const CLI::App* used = nullptr;
  for (const std::string& word : words) {
    if (std::ranges::find(commands, word) != commands.end()) {
      used = application.get_subcommand(word);
      break;
    }
  }
  const std::vector<std::string> flags = flags_of(used != nullptr ? *used : application);
  for (const std::string& word : words) {
    if (!word.starts_with("--") || std::ranges::find(flags, flag_of(word)) != flags.end()) continue;
    for (const Spelling& spelling : kSpellings)
      if (flag_of(word) == spelling.trtexec)
        return fmt::format("{} is a flag of trtexec; here it is {} (docs/from_tensorrt.md)",
                           spelling.trtexec, spelling.ours);
    if (used == nullptr) continue;
    const std::string near = nearest(flag_of(word), flags);
    return near.empty() ? fmt::format("anneal {} has no flag {}", used->get_name(), flag_of(word))
                        : fmt::format("anneal {} has no flag {}; did you mean {}?",
                                      used->get_name(), flag_of(word), near);
  }
  if (used != nullptr || words.empty() || words[0].starts_with("-")) return {};
  const std::string near = nearest(words[0], commands);
  if (!near.empty())
    return fmt::format("there is no command \"{}\"; did you mean {}?", words[0], near);
  return fmt::format("there is no command \"{}\"", words[0]);
}

}  // namespace anneal
