// `anneal bench`: the latency, throughput and memory of an engine.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "anneal/cli/ablation/ablation_options.h"
#include "anneal/cli/commands/bench_decode.h"
#include "anneal/cli/commands/bench_memory.h"
#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/memory_flag.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/flags/timing_flags.h"
#include "anneal/cli/flags/weights_flag.h"
#include "anneal/cli/measure/measure.h"
#include "anneal/cli/measure/measured_forms.h"
#include "anneal/cli/measure/profile_table.h"
#include "anneal/cli/measure/shape_changes.h"
#include "anneal/cli/model/built_apart.h"
#include "anneal/cli/model/inspect_text.h"
#include "anneal/cli/model/model_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/picture_file.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/stopwatch.h"
#include "anneal/cli/roofline/roofline_run.h"
#include "anneal/core/version.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

constexpr int kProfiledRuns = 10;
// A roofline takes more runs: its medians should show the steps, and not other processes.
constexpr int kRooflineRuns = 50;
constexpr double kRooflineSeconds = 2;

struct BenchFlags {
  EngineSource source;
  PrecisionFlags precision;
  std::vector<std::string> inputs, changes;
  std::vector<int64_t> decode;  // lengths
  std::string warmup = "200ms", json, picture;
  double duration = 3;
  int iterations = 0, threads = 0, contexts = 1;
  int64_t micro_batch = 0;
  int profile_index = -1;
  bool spin = false, profile = false, verbose = false, ablation = false;
  BenchMemoryFlags memory;
  RooflineFlags roofline;
};

// Everything that is reported, as text and as JSON.
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
  std::optional<Roofline> roofline;
  std::vector<std::vector<Tensor>> sets;  // of inputs, beginning with `inputs`, if shapes change
  std::vector<ShapeTimes> changes;        // of each
};

// The inputs, and those of each --change-to.
std::vector<std::vector<Tensor>> input_sets(const BenchFlags& flags, const Engine& engine,
                                            const std::vector<Tensor>& inputs) {
  std::vector<std::vector<Tensor>> sets = {inputs};
  for (const std::string& shapes : flags.changes) {
    sets.push_back(
        sample_inputs(engine, flags.inputs, shapes, flags.profile_index, "--change-to").tensors);
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
  line("others", load_text(bench.measured.load));
  if (!bench.changes.empty()) fmt::print("\n{}", changes_text(engine, bench));
  if (flags.profile) fmt::print("\n{}", bench.profile.text());
  if (bench.roofline) fmt::print("\n{}", roofline_text(*bench.roofline));
}

Json bench_json(const BenchFlags& flags, const Engine& engine, const Bench& bench) {
  Json inputs = Json::array();
  for (size_t i = 0; i < bench.inputs.size(); ++i)
    inputs.push_back(input_text(engine.inputs()[i], bench.inputs[i]));
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
  json["latency_milliseconds"] = latency_json(bench.latency);
  json["memory_bytes"] = {{"peak_resident", bench.peak_bytes},
                          {"resident_before_load", bench.before.now},
                          {"weights", bench.plan.weight_bytes},
                          {"per_context", bench.measured.context_bytes},
                          {"planned_arena", bench.measured.arena_bytes}};
  json["machine_load"] = load_json(bench.measured.load);
  if (!bench.changes.empty()) json["shape_changes"] = changes_json(engine, bench);
  json["remarks"] = Json::array();
  for (const std::string& remark : bench.measured.context->run_warnings())
    json["remarks"].push_back(remark);
  if (flags.profile) json["profile"] = bench.profile.json();
  if (bench.roofline) json["roofline"] = roofline_json(*bench.roofline);
  return json;
}

ProfileTable profile_of(ExecutionContext& context, bool is_roofline) {
  ProfileTable table;
  const Stopwatch watch;
  for (int i = 0; i < kProfiledRuns ||
                  (is_roofline && i < kRooflineRuns && watch.seconds() < kRooflineSeconds);
       ++i)
    table.add(profile_counted(context));
  return table;
}

MeasureOptions measure_options(const BenchFlags& flags) {
  MeasureOptions options{.warmup = parse_amount(flags.warmup, "--warmup"),
                         .measured = {std::nullopt, flags.duration},
                         .threads = flags.threads,
                         .contexts = flags.contexts,
                         .micro_batch = flags.micro_batch,
                         .profile = flags.profile_index,
                         .max_memory = flags.source.build.max_memory,
                         .spin = flags.spin};
  if (flags.iterations > 0) options.measured = {flags.iterations, 0};
  return options;
}

void set_build_options(BenchFlags& flags) {
  flags.source.build.precision = precision_options(flags.precision);
  set_self_check(flags.precision, flags.source.build);
  flags.source.build.threads = flags.threads;
}

// Whether the model has no open size, so that there is a batch to open.
bool has_fixed_sizes(const EngineSource& source) {
  BuildOptions options = source.build;
  set_shapes_for_inputs(source.path, source.shapes, source.inputs, options);
  return std::ranges::all_of(
      onnx_inputs(OnnxModel(source.path), options), [](const DataInput& input) {
        return std::ranges::all_of(input.dims, [](int64_t size) { return size >= 0; });
      });
}

// on_built: from then on there may be threads.
int bench(BenchFlags flags, const std::function<void()>& on_built) {
  check_output_file(flags.json);
  if (!flags.picture.empty() && !flags.memory.is_set && !flags.roofline.wanted)
    refuse_argument("--picture is for --ablation, --memory-by-batch and --roofline: give one");
  check_picture_path(flags.picture, "--picture");
  check_different_files({{"--json", flags.json}, {"--picture", flags.picture}});
  flags.roofline.picture = flags.picture;
  check_roofline_flags(flags.roofline);
  if (flags.memory.is_set && flags.roofline.wanted)
    refuse_argument("--roofline needs the times that --memory-by-batch leaves out: give one");
  const MeasureOptions options = measure_options(flags);
  ProgressLine progress(flags.verbose);

  Bench result;
  std::optional<BuiltApart> built;
  set_build_options(flags);
  check_timing_cache(flags.source.build);
  if (!is_engine(flags.source.path)) {
    progress.say("building");
    flags.source.inputs = flags.inputs;
    EngineSource source = flags.source;
    if (flags.memory.is_set) source.shapes.shapes.clear();  // they are sizes of the runs
    built.emplace([&] {
      if (flags.memory.is_set) source.shapes.open_batch |= has_fixed_sizes(source);
      return build_source(source).bytes;
    });
    result.build_milliseconds = built->milliseconds();
  }
  on_built();
  if (flags.inputs.empty()) flags.inputs = {"random"};
  forget_peak_memory();
  result.before = resident_memory();
  const Stopwatch watch;
  const EngineOptions loading{.device = device_for(flags.source.target),
                              .map = flags.source.map,
                              .threads = flags.threads,
                              .debug = &flags.source.debug,
                              .libraries = flags.source.shapes.libraries,
                              .weights = flags.source.weights};
  const auto engine =
      built ? built->open(flags.source.path, loading) : open_engine(flags.source.path, loading);
  result.load_milliseconds = watch.milliseconds();
  if (flags.memory.is_set) {
    progress.clear();
    bench_memory(engine, {flags.source.path, flags.inputs, flags.source.shapes.shapes},
                 flags.memory,
                 {.threads = flags.threads,
                  .max_memory = options.max_memory,
                  .micro_batch = flags.micro_batch,
                  .profile = flags.profile_index},
                 flags.contexts, {flags.json, flags.picture});
    return kSuccess;
  }
  if (!flags.decode.empty()) {
    progress.clear();
    bench_decode(engine, {flags.source.path, flags.json}, flags.decode,
                 {.threads = flags.threads,
                  .max_memory = options.max_memory,
                  .profile = flags.profile_index},
                 options.measured);
    return kSuccess;
  }
  result.machine = engine->device();

  const SampleInputs samples =
      sample_inputs(*engine, flags.inputs, flags.source.shapes.shapes, flags.profile_index);
  result.inputs = samples.tensors;
  if (!flags.changes.empty()) result.sets = input_sets(flags, *engine, result.inputs);
  result.measured = with_samples(flags.source.path, samples, [&] {
    return measure(engine, result.inputs, options,
                   [&](std::string_view what) { progress.say(what); });
  });
  result.plan = plan_facts(*result.measured.context);
  result.peak_bytes = resident_memory().peak;
  result.latency = latency_of(result.measured.milliseconds);
  result.per_second =
      static_cast<double>(result.measured.milliseconds.size()) / result.measured.seconds;
  if (flags.profile || flags.roofline.wanted)
    result.profile = profile_of(*result.measured.context, flags.roofline.wanted);
  if (flags.roofline.wanted) {
    progress.say("finding the roofline");
    result.roofline = measured_roofline(*engine, *result.measured.context, result.inputs,
                                        flags.threads, result.profile, flags.roofline);
    write_roofline_picture(*result.roofline, flags.source.path, flags.roofline);
  }
  if (!result.sets.empty()) {
    progress.say("changing shapes");
    result.changes = measure_changes(engine, result.sets,
                                     {.threads = flags.threads,
                                      .micro_batch = flags.micro_batch,
                                      .profile = flags.profile_index},
                                     options.measured);
  }
  progress.clear();
  print_remarks(result.measured.context->run_warnings());

  if (!flags.json.empty()) write_json(flags.json, bench_json(flags, *engine, result));
  print_bench(flags, *engine, result);
  return kSuccess;
}

// The flags given that anneal build takes as well, each after a blank.
std::string flags_of_build(const CLI::App& command) {
  const CLI::App& build = *command.get_parent()->get_subcommand("build");
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || !name.starts_with("--") || name == "--verbose" ||
        build.get_option_no_throw(name) == nullptr)
      continue;
    for (const std::string& value : option->results()) {
      text += " " + name;
      if (option->get_items_expected_max() > 0) text += " " + quoted(value);
    }
  }
  return text;
}

int bench_families(BenchFlags flags, const CLI::App& command,
                   const std::function<void()>& on_built) {
  set_build_options(flags);
  return bench_ablation({.source = flags.source,
                         .inputs = flags.inputs,
                         .measured = measure_options(flags),
                         .flags = flags_of_build(command),
                         .json = flags.json,
                         .picture = flags.picture,
                         .verbose = flags.verbose,
                         .on_built = on_built});
}

constexpr const char* kBenchFooter = R"(Examples:
  anneal bench model.engine                        three seconds on random inputs
  anneal bench model.onnx --shapes x:8x3x224x224   builds it first, in memory
  anneal bench model.engine --threads 1 --contexts 4 --duration 10
  anneal bench model.engine --input cat.npy --profile --roofline --picture roofline.svg
  anneal bench model.onnx --memory-by-batch --fit-memory 8GB
  anneal bench model.onnx --ablation --picture gains.svg   what each optimization gains

Latency is the time of one run as its caller sees it; NN % of the runs take at most pNN.
Throughput is the runs of all contexts, divided by the time from the first start to the last end.
"first inference" includes making a context. "peak" is of the process; a model is built in another.
If the line "others" says BUSY, other processes used the cores: measure again later.
Exit status: 0 measured; 2 wrong arguments or files; 3 the model is not supported; 4 the device is
missing or failed.)";

}  // namespace

void add_bench_command(CLI::App& application, Action& action,
                       const std::function<void()>& on_built) {
  CLI::App* command = application.add_subcommand("bench", "Measure latency, throughput and memory");
  auto flags = std::make_shared<BenchFlags>();
  EngineSource& source = flags->source;
  command->add_option("file", source.path, "Engine file, or ONNX model to build in memory")
      ->required()
      ->group(often(help::kFiles));
  add_input_flag(*command, flags->inputs);
  command->add_option("--json", flags->json, "Write the results as JSON")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command
      ->add_option("--picture", flags->picture,
                   "Draw --roofline, --memory-by-batch or --ablation, .svg or .png")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  CLI::Option* duration =
      command->add_option("--duration", flags->duration, "Seconds to measure, at least three runs")
          ->capture_default_str()
          ->check(at_least(0))
          ->type_name("SECONDS")
          ->group(often(help::kMeasuring));
  command
      ->add_option("--iterations", flags->iterations, "Runs of each context, instead of a duration")
      ->check(at_least(1))
      ->excludes(duration)
      ->group(often(help::kMeasuring));
  command->add_option("--warmup", flags->warmup, "Runs before the measured ones, or a time: 10, 1s")
      ->capture_default_str()
      ->type_name("AMOUNT")
      ->group(often(help::kMeasuring));
  command->add_option("--contexts", flags->contexts, "Contexts that run at the same time")
      ->capture_default_str()
      ->check(between(1, 1024))
      ->group(often(help::kMeasuring));
  command
      ->add_option("--change-to", flags->changes,
                   "Also measure the cost of changing to these shapes; repeatable")
      ->allow_extra_args(false)
      ->type_name("SHAPES")
      ->group(often(help::kMeasuring));
  add_bench_memory_flags(*command, flags->memory);
  for (const char* of_times : {"--change-to", "--duration", "--iterations", "--warmup"})
    command->get_option("--memory-by-batch")->excludes(command->get_option(of_times));
  command->add_flag("--profile", flags->profile, "Print the time of each step, over ten more runs")
      ->group(often(help::kMeasuring));
  command->get_option("--memory-by-batch")->excludes(command->get_option("--profile"));
  add_roofline_flag(*command, help::kMeasuring, flags->roofline);
  CLI::Option* decode =
      command
          ->add_option("--decode", flags->decode,
                       "Time prompts of these lengths and the token behind: 128,1024")
          ->delimiter(',')
          ->check(between(1, 1 << 20))
          ->type_name("LENGTHS")
          ->group(often(help::kMeasuring));
  for (const char* other : {"--change-to", "--profile", "--contexts", "--memory-by-batch",
                            "--roofline", "--input", "--warmup"})
    decode->excludes(command->get_option(other));
  CLI::Option* ablation =
      command
          ->add_flag("--ablation", flags->ablation,
                     "Measure a model with each family of optimizations added in turn")
          ->group(often(help::kMeasuring));
  for (const char* other :
       {"--change-to", "--profile", "--contexts", "--memory-by-batch", "--roofline", "--decode"})
    ablation->excludes(command->get_option(other));
  command
      ->add_option("--target,--device", source.target,
                   "A model: cpu, cpu:ISA, sm_90, emulated; an engine: also auto, cuda,\n"
                   "cuda:N")
      ->capture_default_str()
      ->type_name("TARGET")
      ->group(often(help::kRun));
  command
      ->add_option("--threads", flags->threads,
                   "Maximum number of threads of a context (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(often(help::kRun));
  add_memory_flag(*command, source.build.max_memory, "Limit of a context (a model: plus weights)")
      ->group(often(help::kRun));
  add_map_flag(*command, source.map);
  add_weights_flag(*command, source.weights);
  add_spin_flag(*command, flags->spin);
  add_rows_flag(*command, flags->micro_batch);
  add_profile_flag(*command, flags->profile_index);
  add_slot_flags(*command, flags->source.debug);
  add_shape_flags(*command, source.shapes);
  decode->excludes(command->get_option("--shapes"));
  add_precision_flags(*command, flags->precision);
  add_pass_flags(*command, source.build);
  add_timing_flags(*command, source.build);
  add_kernel_flags(*command, source.build);
  command->footer(kBenchFooter);
  command->callback([&action, &on_built, flags, command] {
    action = [&on_built, flags, command] {
      refuse_model_flags(*command, {flags->source.path});
      return flags->ablation ? bench_families(*flags, *command, on_built) : bench(*flags, on_built);
    };
  });
}

}  // namespace anneal
