// Builds and runs random graphs, and reports those that fail.
//
//   random_graphs --first 1000 --count 5000 --kind open --jobs 2 --save /tmp/failures
//   random_graphs --count 2000 --stream > graphs.bin    for random_graphs_test.py
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <set>

#include "anneal/core/parallel.h"
#include "anneal/tests/random/apart.h"
#include "anneal/tests/random/model_text.h"
#include "anneal/tests/random/reduce.h"
#include "anneal/tests/random/report.h"

namespace anneal::random_graphs {
namespace {

constexpr int kSeconds = 60;  // for one graph

struct Flags {
  uint64_t first = 0, count = 100;
  std::string kind = {}, save = {};
  JudgeOptions judge;
  bool show = false, stream = false, as_it_is = false, operators = false;
};

std::string packed(const std::optional<Failure>& failure) {
  return failure ? failure->way + '\0' + failure->sort + '\0' + failure->text : "";
}
std::optional<Failure> unpacked(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const size_t first = text.find('\0'), second = text.find('\0', first + 1);
  return Failure{text.substr(0, first), text.substr(first + 1, second - first - 1),
                 text.substr(second + 1)};
}

// A crash, or an endless loop, is reported like an internal error.
std::optional<Failure> judge_apart(const RandomModel& model, const JudgeOptions& options) {
  std::optional<Failure> found;
  for (const std::string& way :
       options.ways.empty() ? all_ways(model, options.thorough) : options.ways) {
    const Ended ended = run_apart([&] { return packed(judge(model, {.ways = {way}})); }, kSeconds);
    found = ended.whole ? unpacked(ended.text) : Failure{way, "internal error", ended.text};
    if (found) break;
  }
  return found;
}

Recipe recipe_of(const Flags& flags, uint64_t seed) {
  Recipe recipe{.seed = seed};
  const auto kind = kind_from_name(flags.kind);
  recipe.kind = kind ? *kind : kAllKinds[seed % std::size(kAllKinds)];
  return recipe;
}

void tell(const Flags& flags, const Recipe& recipe, const Failure& failure) {
  const Recipe smaller = flags.as_it_is ? recipe : reduced(recipe, failure, judge_apart);
  const RandomModel model = random_model(smaller);
  const auto again = judge_apart(model, {.ways = {failure.way}});
  const std::string text = report(recipe, again ? *again : failure, model);
  fmt::print("{}\n", text);
  std::fflush(stdout);
  if (flags.save.empty()) return;
  const std::string folder = fmt::format(
      "{}/{}_{}_{}_{}", flags.save, failure.sort == "internal error" ? "internal" : failure.sort,
      to_string(recipe.kind), recipe.seed, failure.way);
  const Ended ended = run_apart(
      [&] {
        save_case(folder, model, text);
        return std::string();
      },
      kSeconds);
  static_cast<void>(ended);
}

void put(uint64_t number) { std::fwrite(&number, sizeof number, 1, stdout); }
void put(const std::string& bytes) {
  put(bytes.size());
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

// Seed, kind, model; for each run inputs, outputs of the reference, and by how much these may
// differ.
void stream(const RandomModel& model, const Recipe& recipe) {
  const Results results = reference_results(model);
  const Allowances allowed = allowances(model, results);
  put(recipe.seed);
  put(std::string(to_string(recipe.kind)));
  put(model.proto.SerializeAsString());
  put(kBindings);
  for (size_t b = 0; b < kBindings; ++b) {
    put(model.inputs.size());
    for (size_t i = 0; i < model.inputs.size(); ++i)
      put(tensor_proto(model.inputs[i].name, model.data[b][i]).SerializeAsString());
    put(results[b].size());
    for (size_t o = 0; o < results[b].size(); ++o) {
      put(tensor_proto(model.proto.graph().output(static_cast<int>(o)).name(), results[b][o])
              .SerializeAsString());
      put(fmt::format("{}", allowed[b][o]));
    }
  }
}

// Many graphs in one process; what ends it is found one by one.
std::string judge_some(const Flags& flags, uint64_t from, uint64_t to) {
  std::string failed;
  for (uint64_t seed = from; seed < to; ++seed) {
    const RandomModel model = random_model(recipe_of(flags, seed));
    if (const auto failure = judge(model, flags.judge)) failed += fmt::format("{} ", seed);
  }
  return failed;
}

int run(const Flags& flags) {
  set_worker_budget(0);
  std::map<std::string, int> operators, sorts;
  uint64_t failures = 0;
  const uint64_t end = flags.first + flags.count;
  constexpr uint64_t kChunk = 50;
  for (uint64_t from = flags.first; from < end; from += kChunk) {
    const uint64_t to = std::min(end, from + kChunk);
    std::set<uint64_t> suspects;
    if (flags.show || flags.stream || flags.operators) {
      for (uint64_t seed = from; seed < to; ++seed) {
        const RandomModel model = random_model(recipe_of(flags, seed));
        if (flags.show) fmt::print("{}", model_text(model.proto));
        if (flags.stream) try {
            stream(model, recipe_of(flags, seed));
          } catch (const std::exception& error) {
            fmt::print(stderr, "{}: {}\n", seed, error.what());
          }
        const auto count = [&](auto&& self, const anneal_onnx::GraphProto& graph) -> void {
          for (const auto& node : graph.node()) {
            ++operators[node.op_type()];
            for (const auto& each : node.attribute())
              if (each.has_g()) self(self, each.g());
          }
        };
        count(count, model.proto.graph());
      }
      continue;
    }
    const Ended ended = run_apart([&] { return judge_some(flags, from, to); },
                                  kSeconds + 2 * static_cast<int>(kChunk));
    if (ended.whole) {
      size_t at = 0;
      while (at < ended.text.size()) {
        const size_t space = ended.text.find(' ', at);
        suspects.insert(std::stoull(ended.text.substr(at, space - at)));
        at = space + 1;
      }
    } else {
      for (uint64_t seed = from; seed < to; ++seed) suspects.insert(seed);
    }
    for (const uint64_t seed : suspects) {
      const Recipe recipe = recipe_of(flags, seed);
      const auto failure = judge_apart(random_model(recipe), flags.judge);
      if (!failure) continue;
      ++failures;
      ++sorts[failure->sort];
      tell(flags, recipe, *failure);
    }
  }
  if (flags.operators) {
    fmt::print("{} operators:", operators.size());
    for (const auto& [name, times] : operators) fmt::print(" {} {}", name, times);
    fmt::print("\n");
  }
  if (!flags.stream && !flags.show && !flags.operators) {
    fmt::print("{} graphs, {} failed", flags.count, failures);
    for (const auto& [sort, times] : sorts) fmt::print("; {}: {}", sort, times);
    fmt::print("\n");
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace anneal::random_graphs

int main(int argc, char** argv) {
  using anneal::random_graphs::Flags;
  Flags flags;
  CLI::App app("Builds and runs random graphs, and reports those that fail");
  app.add_option("--first", flags.first, "The first seed");
  app.add_option("--count", flags.count, "How many graphs");
  app.add_option("--kind", flags.kind,
                 "fixed, open, range, control, half, quantized; none: all in turn");
  app.add_option("--ways", flags.judge.ways,
                 "How to build: default, skip_all, exact, reference_kernels, avx2, fixed, range, "
                 "range_skip_all, f16, bf16, f16_samples, bf16_samples, emulated")
      ->delimiter(',');
  app.add_flag("--thorough", flags.judge.thorough, "All ways, else two of them");
  app.add_option("--save", flags.save, "Write reduced graphs that fail to this folder");
  app.add_flag("--as-it-is", flags.as_it_is, "Do not reduce");
  app.add_flag("--show", flags.show, "Print the graphs, run nothing");
  app.add_flag("--operators", flags.operators, "Count the operators, run nothing");
  app.add_flag(
      "--stream", flags.stream,
      "Write the graphs with the reference's results to stdout, for random_graphs_test.py");
  CLI11_PARSE(app, argc, argv);
  try {
    return anneal::random_graphs::run(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
