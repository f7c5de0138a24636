// `anneal bench`: how fast an engine is, and what memory it takes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/compare/built_apart.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/memory_flag.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/flags/timing_flags.h"
#include "anneal/cli/measure/measure.h"
#include "anneal/cli/measure/profile_table.h"
#include "anneal/cli/measure/shape_changes.h"
#include "anneal/cli/model/model_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/core/version.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProfiledRuns = 10;

struct BenchFlags {
  EngineSource source;
  PrecisionFlags precision;
  std::vector<std::string> inputs, changes;
  std::string warmup = "200ms", json;
  double duration = 3;
  int iterations = 0, threads = 0, contexts = 1;
  int64_t micro_batch = 0;
  bool spin = false, profile = false, verbose = false;
};

// Everything that is told, as text and as JSON.
struct Bench {
  std::string machine;
  std::optional<double> build_milliseconds;
  double load_milliseconds = 0;
  ResidentMemory before;  // loading
  uint64_t peak_bytes = 0;
  PlanFacts plan;
  Measurement measured;
  Latency latency{};
  double per_second = 0;
  std::vector<Tensor> inputs;
  ProfileTable profile;
  std::vector<std::vector<Tensor>> sets;  // of inputs, beginning with `inputs`, if shapes change
  std::vector<ShapeTimes> changes;        // of each
};

std::string input_text(const TensorInfo& port, const Tensor& tensor) {
  return fmt::format("{}: {}{}", port.name, to_string(tensor.dtype()), to_string(tensor.dims()));
}

std::string others_text(const MachineLoad& load) {
  std::string text = fmt::format(
      "other processes used {:.2f} of {}, runs waited {:.1f} % of their time", load.other_cores,
      count_text(static_cast<uint64_t>(load.cores), "core"), 100 * load.waited_share);
  if (load.busy()) text += ": BUSY, the times above are too long";
  return text;
}

// The inputs, and those of each --change-to.
std::vector<std::vector<Tensor>> input_sets(const BenchFlags& flags, const Engine& engine,
                                            const std::vector<Tensor>& inputs) {
  std::vector<std::vector<Tensor>> sets = {inputs};
  for (const std::string& shapes : flags.changes) {
    sets.push_back(sample_inputs(engine, flags.inputs, shapes, "--change-to").tensors);
    const auto is_like_last = [&](const std::vector<Tensor>& set) {
      return std::equal(set.begin(), set.end(), sets.back().begin(),
                        [](const Tensor& a, const Tensor& b) { return a.dims() == b.dims(); });
    };
    if (std::any_of(sets.begin(), sets.end() - 1, is_like_last))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("--change-to {}: inputs have these shapes already; name others, of inputs "
                       "that are random",
                       shapes));
  }
  return sets;
}

std::string changes_text(const Engine& engine, const Bench& bench) {
  Rows rows = {{"shapes", "steady", "returning", "", "new", "", "prepare", "prepared", ""}};
  for (size_t k = 0; k < bench.sets.size(); ++k) {
    const ShapeTimes& times = bench.changes[k];
    std::string shapes;
    for (size_t i = 0; i < bench.sets[k].size(); ++i)
      shapes += fmt::format("{}{}: {}", shapes.empty() ? "" : ", ", engine.inputs()[i].name,
                            to_string(bench.sets[k][i].dims()));
    const auto ratio = [&](double value) { return fmt::format("{:.2f}x", value / times.steady); };
    rows.push_back({shapes, milliseconds_text(times.steady), milliseconds_text(times.returning),
                    ratio(times.returning), milliseconds_text(times.fresh), ratio(times.fresh),
                    milliseconds_text(times.prepare), milliseconds_text(times.prepared),
                    ratio(times.prepared)});
  }
  return table_text(rows, {false, true, true, true, true, true, true, true, true});
}

Json changes_json(const Engine& engine, const Bench& bench) {
  Json json = Json::array();
  for (size_t k = 0; k < bench.sets.size(); ++k) {
    const ShapeTimes& times = bench.changes[k];
    Json inputs = Json::array();
    for (size_t i = 0; i < bench.sets[k].size(); ++i)
      inputs.push_back(input_text(engine.inputs()[i], bench.sets[k][i]));
    json.push_back({{"inputs", std::move(inputs)},
                    {"steady_milliseconds", times.steady},
                    {"returning_milliseconds", times.returning},
                    {"new_milliseconds", times.fresh},
                    {"prepare_milliseconds", times.prepare},
                    {"prepared_milliseconds", times.prepared}});
  }
  return json;
}

void print_bench(const BenchFlags& flags, const Engine& engine, const Bench& bench) {
  const auto ms = [](double value) { return milliseconds_text(value); };
  const auto line = [](std::string_view name, const std::string& text) {
    fmt::print("{:<11} {}\n", name, printable(text));
  };
  line("model", fmt::format("{}, {} for {}", flags.source.path,
                            count_text(bench.plan.steps, "step"), bench.plan.target));
  line("machine", bench.machine);
  for (size_t i = 0; i < bench.inputs.size(); ++i)
    line("input", input_text(engine.inputs()[i], bench.inputs[i]));
  if (bench.build_milliseconds) line("build", ms(*bench.build_milliseconds));
  line("load",
       fmt::format("{}, first inference {}", ms(bench.load_milliseconds),
                   ms(bench.measured.context_milliseconds + bench.measured.first_milliseconds)));
  line("latency",
       fmt::format("median {}, mean {}, min {}, max {}", ms(bench.latency.median),
                   ms(bench.latency.mean), ms(bench.latency.min), ms(bench.latency.max)));
  line("", fmt::format("p90 {}, p95 {}, p99 {}", ms(bench.latency.p90), ms(bench.latency.p95),
                       ms(bench.latency.p99)));
  line("", fmt::format("{} in {:.3g} s after {} to warm up; {}, at most {} each",
                       count_text(bench.measured.milliseconds.size(), "run"),
                       bench.measured.seconds, bench.measured.warmup_runs,
                       count_text(static_cast<uint64_t>(flags.contexts), "context"),
                       count_text(static_cast<uint64_t>(thread_count(flags.threads)), "thread")));
  line("throughput", fmt::format("{} inferences/s", rate_text(bench.per_second)));
  line("memory", fmt::format("peak {} resident, {} of it before the engine was loaded",
                             bytes_text(bench.peak_bytes), bytes_text(bench.before.now)));
  line("",
       fmt::format("weights {}, {} per context, of it {} planned for activations",
                   bytes_text(bench.plan.weight_bytes), bytes_text(bench.measured.context_bytes),
                   bytes_text(bench.measured.arena_bytes)));
  line("others", others_text(bench.measured.load));
  if (!bench.changes.empty()) fmt::print("\n{}", changes_text(engine, bench));
  if (flags.profile) fmt::print("\n{}", bench.profile.text());
}

Json bench_json(const BenchFlags& flags, const Engine& engine, const Bench& bench) {
  Json inputs = Json::array();
  for (size_t i = 0; i < bench.inputs.size(); ++i)
    inputs.push_back(input_text(engine.inputs()[i], bench.inputs[i]));
  const Latency& latency = bench.latency;
  const MachineLoad& load = bench.measured.load;
  Json json = {{"anneal", version()},
               {"machine", bench.machine},
               {"file", flags.source.path},
               {"target", bench.plan.target},
               {"steps", bench.plan.steps},
               {"inputs", std::move(inputs)},
               {"threads", thread_count(flags.threads)},
               {"contexts", flags.contexts}};
  json["build_milliseconds"] =
      bench.build_milliseconds ? Json(*bench.build_milliseconds) : Json(nullptr);
  json["load_milliseconds"] = bench.load_milliseconds;
  json["context_milliseconds"] = bench.measured.context_milliseconds;
  json["first_inference_milliseconds"] = bench.measured.first_milliseconds;
  json["warmup_runs"] = bench.measured.warmup_runs;
  json["runs"] = bench.measured.milliseconds.size();
  json["seconds"] = bench.measured.seconds;
  json["inferences_per_second"] = bench.per_second;
  json["latency_milliseconds"] = {{"min", latency.min},       {"mean", latency.mean},
                                  {"median", latency.median}, {"p90", latency.p90},
                                  {"p95", latency.p95},       {"p99", latency.p99},
                                  {"max", latency.max}};
  json["memory_bytes"] = {{"peak_resident", bench.peak_bytes},
                          {"resident_before_load", bench.before.now},
                          {"weights", bench.plan.weight_bytes},
                          {"per_context", bench.measured.context_bytes},
                          {"planned_arena", bench.measured.arena_bytes}};
  json["machine_load"] = {{"other_cores", load.other_cores},
                          {"waited_share", load.waited_share},
                          {"cores", load.cores},
                          {"busy", load.busy()}};
  if (!bench.changes.empty()) json["shape_changes"] = changes_json(engine, bench);
  json["remarks"] = Json::array();
  for (const std::string& remark : bench.measured.context->run_warnings())
    json["remarks"].push_back(remark);
  if (flags.profile) json["profile"] = bench.profile.json();
  return json;
}

int bench(BenchFlags flags) {
  check_output_file(flags.json);
  MeasureOptions options{.warmup = parse_amount(flags.warmup, "--warmup"),
                         .measured = {std::nullopt, flags.duration},
                         .threads = flags.threads,
                         .contexts = flags.contexts,
                         .micro_batch = flags.micro_batch,
                         .max_memory = flags.source.build.max_memory,
                         .spin = flags.spin};
  if (flags.iterations > 0) options.measured = {flags.iterations, 0};
  ProgressLine progress(flags.verbose);

  Bench result;
  std::optional<BuiltApart> built;
  flags.source.build.precision =
      precision_options(flags.precision, std::span(&flags.source.target, 1));
  set_self_check(flags.precision, flags.source.build);
  flags.source.build.threads = flags.threads;
  check_timing_cache(flags.source.build);
  std::string path = flags.source.path;
  if (!is_engine(path)) {
    progress.say("building");
    flags.source.inputs = flags.inputs;
    built.emplace(flags.source);
    path = built->engine_path();
    result.build_milliseconds = built->milliseconds();
  }
  forget_peak_memory();
  result.before = resident_memory();
  const auto start = Clock::now();
  const auto engine = open_engine(path, {.device = device_for(flags.source.target),
                                         .map = flags.source.map,
                                         .threads = flags.threads,
                                         .debug = &flags.source.debug});
  result.load_milliseconds = milliseconds_since(start);
  result.machine = engine->device();
  result.plan = plan_facts(*engine);

  if (flags.inputs.empty()) flags.inputs = {"random"};
  const SampleInputs samples = sample_inputs(*engine, flags.inputs, flags.source.shapes.shapes);
  result.inputs = samples.tensors;
  if (!flags.changes.empty()) result.sets = input_sets(flags, *engine, result.inputs);
  result.measured = with_samples(flags.source.path, samples, [&] {
    return measure(engine, result.inputs, options,
                   [&](std::string_view what) { progress.say(what); });
  });
  result.peak_bytes = resident_memory().peak;
  result.latency = latency_of(result.measured.milliseconds);
  result.per_second =
      static_cast<double>(result.measured.milliseconds.size()) / result.measured.seconds;
  for (int i = 0; flags.profile && i < kProfiledRuns; ++i)
    result.profile.add(profile_counted(*result.measured.context));
  if (!result.sets.empty()) {
    progress.say("changing shapes");
    result.changes = measure_changes(engine, result.sets, flags.threads, options.measured);
  }
  progress.clear();
  print_remarks(result.measured.context->run_warnings());

  if (!flags.json.empty()) write_json(flags.json, bench_json(flags, *engine, result));
  print_bench(flags, *engine, result);
  return kSuccess;
}

constexpr const char* kBenchFooter = R"(Examples:
  anneal bench model.engine                        three seconds on random inputs
  anneal bench model.onnx --shapes x:8x3x224x224   build it first, in memory
  anneal bench model.engine --threads 1 --contexts 4 --duration 10
                                                   throughput of four at once on one engine
  anneal bench model.engine --iterations 100 --warmup 10 --json result.json
  anneal bench model.engine --input cat.npy --profile
                                                   what each step takes
  anneal bench model.onnx --change-to 1x3x64x64 --change-to 1x3x96x96
                                                   what changes between three shapes cost

Latency is the time of one run as its caller sees it; pNN is what NN % of the runs do not exceed.
Throughput is all runs of all contexts over the time from the first start to the last end.
"first inference" makes a context and runs it once: memory is placed and kernels are prepared.
Memory: the peak is of the whole process; a model is built in a process of its own and not in it.
With --change-to, each shape's run is timed after a run at the same shape ("steady"), when it returns
after another shape ("returning"), when a context meets it for the first time ("new"), and so after
the context was told to prepare for it ("prepared"; the telling took "prepare"); x: times "steady".
If the line "others" says BUSY, other processes took cores meanwhile: measure again when it is quiet.
Exit status: 0 measured; 2 wrong arguments, or files that are damaged or do not fit; 3 a model that
Anneal does not support.)";

}  // namespace

void add_bench_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("bench", "Measure latency, throughput and memory");
  auto flags = std::make_shared<BenchFlags>();
  EngineSource& source = flags->source;
  command->add_option("file", source.path, "An ONNX model, which is built first, or an engine")
      ->type_name("MODEL.onnx|MODEL.engine")
      ->required();
  command
      ->add_option(
          "--target,--device", source.target,
          "Build a model for, or run an engine on: cpu, cpu:ISA, sm_90 and the like, emulated; "
          "of an engine also auto, cuda, cuda:N")
      ->capture_default_str();
  add_shape_flags(*command, source.shapes);
  add_precision_flags(*command, flags->precision);
  add_pass_flags(*command, source.build);
  add_timing_flags(*command, source.build);
  add_kernel_flags(*command, source.build);
  add_memory_flag(*command, source.build.max_memory,
                  "The most memory of a context, without weights; of a model that is built: of "
                  "weights and activations");
  command->add_flag("!--no-mmap", source.map, "Read an engine file instead of mapping it");
  command->add_option("-i,--input", flags->inputs, "What an input is fed, as for anneal run")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE|random[:SEED]");
  command
      ->add_option("--change-to", flags->changes,
                   "Measure changes too, between the inputs' shapes and these; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME:1x3x224x224,...");
  command->add_option("--warmup", flags->warmup, "Runs before measuring, or a time (10, 200ms, 1s)")
      ->capture_default_str();
  CLI::Option* duration =
      command->add_option("--duration", flags->duration, "Seconds to measure, at least three runs")
          ->capture_default_str()
          ->check(at_least(0));
  command->add_option("--iterations", flags->iterations, "Runs to measure, of each context")
      ->check(at_least(1))
      ->excludes(duration);
  command->add_option("--threads", flags->threads, "Most threads of a context; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--contexts", flags->contexts, "Runs side by side on the one engine")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  add_spin_flag(*command, flags->spin);
  add_rows_flag(*command, flags->micro_batch);
  add_slot_flags(*command, flags->source.debug);
  command->add_flag("--profile", flags->profile, "Show the time of each step, of ten more runs");
  command->add_option("--json", flags->json, "Write the results as JSON")->type_name("FILE");
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->footer(kBenchFooter);
  command->callback([&action, flags, command] {
    action = [flags, command] {
      refuse_model_flags(*command, {flags->source.path});
      return bench(*flags);
    };
  });
}

}  // namespace anneal
