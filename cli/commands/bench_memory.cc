#include "anneal/cli/commands/bench_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/model/inspect_text.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/picture_file.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/core/version.h"

namespace anneal {
namespace {

// What the system can give to new programs without swapping; 0: it does not say.
uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    uint64_t kilobytes = 0;
    file >> kilobytes;
    if (name == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return 0;
}

struct Report {
  std::string path, target, size;
  bool is_batch = false;
  bool has_declared_sizes = false;
  bool has_bodies = false;
  bool is_for_gpu = false;
  size_t profiles = 1;                                            // of the engine
  int profile = 0;                                                // of them
  std::vector<std::pair<std::string, int64_t>> other_sizes = {};  // names and values
  std::vector<std::string> growing_sizes = {};
  std::vector<int64_t> probes;
  uint64_t weights = 0;
  MemoryFormula formula;
  std::optional<FormulasByBatch> by_batch = {};
  std::vector<BatchMemory> batches = {};
  int contexts = 1;
  uint64_t limit = 0;  // 0: not known
  std::optional<int64_t> largest = {};
  int64_t most = 0;  // that the profile takes

  // "the engine", or "profile 1 of the engine".
  std::string owner() const {
    return profiles == 1 ? "the engine" : fmt::format("profile {} of the engine", profile);
  }
};

double difference(const BatchMemory& each) {
  const auto measured = static_cast<double>(each.measured.sum());
  return measured == 0 ? 0 : static_cast<double>(each.predicted.sum()) / measured - 1;
}

// Of rounding, no sign.
std::string difference_text(const BatchMemory& each) {
  const double percent = 100 * difference(each);
  return fmt::format("{:+.1f} %", std::abs(percent) < 0.05 ? 0 : percent);
}

std::string slices_text(const RowCut& cut) {
  if (cut.is_whole()) return "whole";
  if (cut.rows_alone == 0) return fmt::format("{}", cut.together);
  return cut.together == 0 ? fmt::format("{} per thread", cut.alone)
                           : fmt::format("{} per thread, then {}", cut.alone, cut.together);
}

std::string table_of(const Report& report) {
  Rows rows = {{report.size, "slices", "inputs", "arenas", "workspaces", "staging", "other",
                "predicted", "measured", "difference"}};
  if (report.is_for_gpu) rows[0].insert(rows[0].end() - 3, {"on GPU", "on host"});
  for (const BatchMemory& each : report.batches) {
    const HeldMemory& held = each.predicted;
    rows.push_back({fmt::format("{}", each.batch), slices_text(each.cut), bytes_text(each.inputs),
                    bytes_text(held.arenas), bytes_text(held.workspaces), bytes_text(held.ports),
                    bytes_text(held.late + held.shapes), bytes_text(held.sum()),
                    bytes_text(each.measured.sum()), difference_text(each)});
    if (report.is_for_gpu)
      rows.back().insert(rows.back().end() - 3,
                         {bytes_text(held.on_gpu()), bytes_text(held.sum() - held.on_gpu())});
  }
  std::vector<bool> right(rows[0].size(), true);
  right[1] = false;
  return table_text(rows, right);
}

std::string largest_text(const Report& report) {
  if (report.limit == 0) return "";
  const std::string room =
      fmt::format("{} for the weights and {}{}", bytes_text(report.limit),
                  count_text(static_cast<uint64_t>(report.contexts), "context"),
                  report.is_for_gpu ? " on the GPU" : ", each with its inputs");
  if (!report.largest) return fmt::format("no {} fits into {}\n", report.size, room);
  return fmt::format("largest {} that fits into {}: {}{}\n", report.size, room, *report.largest,
                     *report.largest == report.most ? ", the most of " + report.owner() : "");
}

std::string bytes_of_batch(const BatchFormula& formula) {
  return fmt::format("{}{} bytes", formula.is_exact ? "" : "at most ", formula.text);
}

void print_report(const Report& report) {
  const auto line = [](std::string_view name, const std::string& text) {
    fmt::print("{:<8} {}\n", name, printable(text));
  };
  line("model", fmt::format("{}, for {}; {} is {}", report.path, report.target, report.size,
                            report.is_batch ? "the batch" : "an open size, no batch"));
  line("weights", bytes_text(report.weights) + ", once for all contexts");
  std::vector<std::string> others;
  for (const auto& [name, value] : report.other_sizes)
    others.push_back(fmt::format("{} = {}", name, value));
  for (const std::string& name : report.growing_sizes)
    others.push_back(fmt::format("{} grows with {}", name, report.size));
  if (!others.empty()) line("at", fmt::format("{}", fmt::join(others, ", ")));
  const bool has_slices = std::ranges::any_of(
      report.batches, [](const BatchMemory& each) { return !each.cut.is_whole(); });
  for (const ActivationFormula& each : report.formula.activations)
    line(
        "formula",
        fmt::format("arena of {} in bytes: at least {}{}, at {}", each.device, each.bytes,
                    has_slices ? fmt::format(", where {} is the rows of a slice", report.size) : "",
                    each.step));
  if (report.has_bodies && !report.formula.activations.empty())
    line("", "bodies of control flow have arenas of their own, which it does not count");
  if (!report.formula.inputs.empty())
    line("", fmt::format("inputs: {} bytes, outputs: {} bytes", report.formula.inputs,
                         report.formula.outputs));
  line(report.formula.inputs.empty() ? "formula" : "",
       report.formula.staging.empty() ? "staging: numbers"
                                      : fmt::format("staging: {} bytes", report.formula.staging));
  if (report.by_batch) {
    const auto& [arenas, workspaces] = *report.by_batch;
    line("in all",
         fmt::format("arenas: {}, workspaces: {}, for {} from {} to {}", bytes_of_batch(arenas),
                     bytes_of_batch(workspaces), report.size, arenas.first, arenas.last));
  }
  line("probes",
       fmt::format("{} were measured at {} = {}",
                   report.formula.staging.empty() ? "staging and late values" : "late values",
                   report.size, fmt::join(report.probes, ", ")));
  if (report.has_declared_sizes)
    line("sizes", "declared at build: a context has room for the largest one at any batch");
  const std::string largest = largest_text(report);
  fmt::print("\n{}{}{}", table_of(report), largest.empty() ? "" : "\n", largest);
}

Json held_json(const HeldMemory& held) {
  return {{"arenas", held.arenas}, {"workspaces", held.workspaces},
          {"staging", held.ports}, {"late_values", held.late},
          {"shapes", held.shapes}, {"all", held.sum()},
          {"gpu", held.on_gpu()},  {"host", held.sum() - held.on_gpu()}};
}

Json by_batch_json(const BatchFormula& formula) {
  return {{"bytes", formula.text},
          {"is_exact", formula.is_exact},
          {"first", formula.first},
          {"last", formula.last}};
}

Json memory_report_json(const Report& report) {
  Json json = {{"anneal", version()},           {"file", report.path},
               {"target", report.target},       {"size", report.size},
               {"is_batch", report.is_batch},   {"probes", report.probes},
               {"weight_bytes", report.weights}};
  json["other_sizes"] = Json::object();
  for (const auto& [name, value] : report.other_sizes) json["other_sizes"][name] = value;
  json["growing_sizes"] = report.growing_sizes;
  json["formula"] = {
      {"inputs", report.formula.inputs},
      {"outputs", report.formula.outputs},
      {"staging", report.formula.staging.empty() ? Json(nullptr) : Json(report.formula.staging)}};
  json["by_batch"] = nullptr;
  if (report.by_batch)
    json["by_batch"] = {{"arenas", by_batch_json(report.by_batch->arenas)},
                        {"workspaces", by_batch_json(report.by_batch->workspaces)}};
  json["formula"]["activations"] = Json::array();
  for (const ActivationFormula& each : report.formula.activations)
    json["formula"]["activations"].push_back(
        {{"device", each.device}, {"bytes", each.bytes}, {"step", each.step}});
  json["batches"] = Json::array();
  for (const BatchMemory& each : report.batches)
    json["batches"].push_back({{"batch", each.batch},
                               {"slice", each.cut.is_whole()       ? each.batch
                                         : each.cut.rows_alone > 0 ? each.cut.alone
                                                                   : each.cut.together},
                               {"predicted_bytes", held_json(each.predicted)},
                               {"measured_bytes", held_json(each.measured)},
                               {"input_bytes", each.inputs},
                               {"difference", difference(each)}});
  json["contexts"] = report.contexts;
  json["limit_bytes"] = report.limit == 0 ? Json(nullptr) : Json(report.limit);
  json["largest_batch"] = report.largest ? Json(*report.largest) : Json(nullptr);
  return json;
}

// "x:2x3,y:7", as --shapes has it.
std::string shapes_text(const Engine& engine, const std::vector<std::optional<Dims>>& dims) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i])
      texts.push_back(fmt::format("{}:{}", engine.inputs()[i].name,
                                  fmt::join(dims[i]->begin(), dims[i]->end(), "x")));
  return fmt::format("{}", fmt::join(texts, ","));
}

std::vector<int64_t> batches_of(const BenchMemoryFlags& flags, const MemoryByBatch& memory) {
  if (!flags.batches.empty()) return flags.batches;
  std::vector<int64_t> batches;
  for (const int64_t usual : {1, 4, 16}) {
    const int64_t taken = std::clamp<int64_t>(usual, memory.least(), memory.most());
    if (batches.empty() || batches.back() != taken) batches.push_back(taken);
  }
  return batches;
}

}  // namespace

void add_bench_memory_flags(CLI::App& command, BenchMemoryFlags& flags) {
  CLI::Option* by_batch = command
                              .add_flag("--memory-by-batch", flags.is_set,
                                        "Print the memory of a context by batch, instead of times")
                              ->group(often(help::kMeasuring));
  command
      .add_option("--batches", flags.batches,
                  "Batches to measure with --memory-by-batch (default: 1,4,16)")
      ->delimiter(',')
      ->check(at_least(0))
      ->needs(by_batch)
      ->type_name("N,N...")
      ->group(rarely(help::kMeasuring));
  CLI::Validator size = CLI::AsSizeValue(false);
  command
      .add_option("--fit-memory", flags.limit,
                  "Find the largest batch for this much memory: 512MB, 2GB (1024-based;\n"
                  "default: what the machine has available)")
      ->transform(size.description(""))
      ->check(at_least(1))
      ->needs(by_batch)
      ->type_name("BYTES")
      ->group(rarely(help::kMeasuring));
}

void bench_memory(const std::shared_ptr<const Engine>& engine, const BenchMemorySource& source,
                  const BenchMemoryFlags& flags, const ContextOptions& options, int contexts,
                  const BenchMemoryFiles& files) {
  const auto inputs = [&](const std::string& shapes) {
    return sample_inputs(*engine, source.inputs, shapes, options.profile).tensors;
  };
  std::vector<Dims> dims;
  for (const Tensor& tensor : inputs(source.shapes)) dims.push_back(tensor.dims());
  const MemoryByBatch memory(engine, dims, options,
                             [&](const std::vector<std::optional<Dims>>& of_batch) {
                               return inputs(shapes_text(*engine, of_batch));
                             });
  const PlanFacts facts = plan_facts(*engine);
  Report report{.path = source.path,
                .target = facts.target,
                .size = memory.size(),
                .is_batch = memory.is_batch(),
                .has_declared_sizes = memory.has_declared_sizes(),
                .has_bodies = memory.has_bodies(),
                .is_for_gpu = memory.is_for_gpu(),
                .profiles = memory.profiles(),
                .profile = memory.profile(),
                .other_sizes = memory.other_sizes(),
                .growing_sizes = memory.growing_sizes(),
                .probes = memory.probes(),
                .weights = facts.weight_bytes,
                .formula = memory.formula(),
                .by_batch = memory.formulas_by_batch(),
                .contexts = contexts,
                .limit = flags.limit,
                .most = memory.most()};
  for (const int64_t batch : batches_of(flags, memory)) {
    if (batch < memory.least() || batch > memory.most())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("--batches {}: {} of {} is {} to {}", batch, memory.size(), report.owner(),
                       memory.least(), memory.most()));
    report.batches.push_back(memory.measure(batch));
  }
  // How much a GPU has available is not asked.
  if (report.limit == 0 && facts.target.starts_with("cpu")) report.limit = available_memory();
  if (report.limit != 0)
    report.largest = memory.largest(report.limit, report.weights, report.contexts);
  if (!files.json.empty()) write_json(files.json, memory_report_json(report));
  if (!files.picture.empty())
    write_picture(files.picture, memory_svg(source.path.substr(source.path.find_last_of('/') + 1),
                                            report.size, report.batches));
  print_report(report);
}

}  // namespace anneal
