// `anneal build`: ONNX file -> engine file.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/commands/tune_model.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/flags/memory_flag.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/flags/timing_flags.h"
#include "anneal/cli/model/import_model.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/core/file.h"
#include "anneal/core/milliseconds.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/builder/checked_build.h"
#include "anneal/engine/run/memory/activation_memory.h"
#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/engine/run/pack_weights.h"
#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct BuildFlags {
  std::string model, output, report, dump_graph, dump_passes;
  ShapeFlags shapes;
  BuildOptions build;  // but for the precision and the bounds of inputs
  PrecisionFlags precision;
  DataFlags data;  // to calibrate with; none: no path
  std::optional<double> max_drop;
  bool pack = false, verbose = false, quiet = false;
};

// Before the work, not after it.
void check_outputs(const BuildFlags& flags, const std::string& output) {
  for (const std::string& path : {output, flags.report, flags.dump_graph}) check_output_file(path);
  check_timing_cache(flags.build.timing);
  std::error_code error;
  if (fs::equivalent(flags.model, output, error))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("-o {} is the model itself; give the engine another name", output));
}

// How many of a plan's steps run on its device, and what does not and why.
struct Fallbacks {
  size_t steps = 0, on_device = 0, transfers = 0;
  Json layers = Json::array();
};
Fallbacks fallbacks_of(const Plan& plan) {
  Fallbacks result;
  for (const Step& step : plan.steps) {
    if (step.kernel == kTransfer) {
      ++result.transfers;
      continue;
    }
    ++result.steps;
    result.on_device += step.device + 1u < plan.devices.size() ? 1 : 0;
  }
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kFallback)
      result.layers.push_back({{"layer", decision.subject}, {"why", decision.text}});
  return result;
}

void print_fallbacks(const Plan& plan) {
  if (plan.devices.size() == 1) return;
  const Fallbacks fallbacks = fallbacks_of(plan);
  fmt::print("  {}: {} of {} run on the GPU, with {}; machine code {}\n", plan.target,
             fallbacks.on_device, count_text(fallbacks.steps, "step"),
             count_text(fallbacks.transfers, "copy step"), bytes_text(plan.code.size()));
  for (const Json& layer : fallbacks.layers)
    fmt::print("    on the CPU: \"{}\": {}\n", printable(layer["layer"].get<std::string>()),
               printable(layer["why"].get<std::string>()));
}

uint64_t weight_bytes(const EngineFile& file) {
  uint64_t bytes = 0;
  for (const Tensor& weight : file.weights) bytes += weight.bytes().size();
  return bytes;
}

// The pass after which the graph is as it will be built.
std::string_view last_pass(const PassOptions& options) {
  std::string_view last;
  for (const Pass& pass : default_pipeline())
    if (why_left_out(pass, options).empty()) last = pass.name;
  return last;
}

// The graph as text after each pass that changed something: DIR/TARGETS/03-fold_constants.txt.
class PassDump {
 public:
  PassDump(std::string folder, const Graph& imported) : folder_(std::move(folder)) {
    if (!folder_.empty()) write(folder_ + "/00-imported.txt", imported);
  }
  void add(const PassEvent& event, std::string_view targets) {
    if (folder_.empty()) return;
    const auto passes = default_pipeline();
    const auto number =
        std::find_if(passes.begin(), passes.end(),
                     [&](const Pass& pass) { return pass.name == event.pass.name; }) -
        passes.begin() + 1;
    write(fmt::format("{}/{}/{:02}-{}.txt", folder_, targets, number, event.pass.name),
          event.graph);
  }

 private:
  static void write(const std::string& path, const Graph& graph) {
    make_output_folder(fs::path(path).parent_path().string());
    const std::string text = to_string(graph);
    write_file_atomically(path, std::as_bytes(std::span(text)));
  }
  std::string folder_;
};

// For the self-check, as many as it looks at.
std::vector<std::vector<Tensor>> first_samples(const Graph& model, const Dataset& samples) {
  std::vector<std::vector<Tensor>> first;
  const auto most = std::min<int64_t>(samples.size(), kMostCheckedSamples);
  for (int64_t i = 0; i < most; ++i) {
    const std::vector<SampleTensor> sample = samples.read(i);
    std::vector<Tensor>& inputs = first.emplace_back();
    for (const ValueId input : model.inputs()) {
      const auto found = std::ranges::find(sample, model.value(input).name, &SampleTensor::input);
      const auto& default_value = model.value(input).default_value;
      if (found == sample.end() && !default_value) return {};
      inputs.push_back(found != sample.end() ? found->tensor : *default_value);
    }
  }
  return first;
}

// Sets the ranges of tensors to what the samples of --calibrate say; returns some of these.
std::vector<std::vector<Tensor>> calibrate_with(const BuildFlags& flags, const Graph& model,
                                                PassOptions& passes, Progress& progress) {
  if (passes.precision.ranges)
    fail(ErrorCode::kInvalidArgument,
         "--calibrate and --calibration contradict each other: one makes ranges, one has them");
  CalibrationOptions options;
  options.passes = passes;
  options.data_threads = flags.data.threads;
  options.range.symmetric = passes.precision.symmetric;
  options.progress = [&](int64_t done, int64_t all) {
    progress.say(fmt::format("calibrating: {} of {} samples", done, all));
  };
  const auto samples = open_data(flags.data, calibration_inputs(model));
  Calibration found = calibrate(model, samples, options);
  passes.precision.ranges = std::make_shared<const CalibrationTable>(std::move(found.table));
  progress.clear();
  for (const std::string& remark : found.remarks)
    if (!flags.quiet) fmt::print(stderr, "anneal: {}\n", printable(remark));
  return first_samples(model, *samples);
}

// What the self-check did, and its share of the time since the model was imported.
Json self_check_json(const SelfCheckReport& check, double milliseconds) {
  Json layers = Json::array();
  for (const auto& [name, why] : check.back_to_f32)
    layers.push_back({{"name", name}, {"why", why}});
  return {{"compared", check.is_compared},      {"outcome", check.outcome},
          {"warning", check.warning},           {"back_to_f32", std::move(layers)},
          {"milliseconds", check.milliseconds}, {"share", check.milliseconds / milliseconds}};
}

void print_self_check_line(const SelfCheckReport& check, double milliseconds) {
  constexpr size_t kNamesShown = 4;
  if (check.outcome.empty()) return;
  fmt::print("  self-check: {} ({}, {:.0f} % of the build)\n", printable(check.outcome),
             milliseconds_text(check.milliseconds), 100 * check.milliseconds / milliseconds);
  if (check.back_to_f32.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(check.back_to_f32.size(), kNamesShown); ++i)
    names += (names.empty() ? "\"" : ", \"") + check.back_to_f32[i].name + "\"";
  if (check.back_to_f32.size() > kNamesShown) names += ", ...";
  fmt::print("  back to f32: {}: {}; anneal inspect --decisions has the reasons\n",
             count_text(check.back_to_f32.size(), "layer"), printable(names));
}

// A model whose activations this machine could not hold.
void print_memory_note(const EngineFile& file) {
  const auto machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const Plan& plan : file.plans) {
    uint64_t bytes = 0;
    try {
      const ActivationMemory memory = activation_memory(plan, file.weights);
      bytes = memory.arena_bytes + memory.port_bytes;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;  // the opt sizes do not go together
    }
    if (bytes > machine)
      fmt::print(
          "note: a run of the plan for {} needs {} besides its weights, this machine has {}; "
          "--max-memory refuses such models\n",
          printable(plan.target), bytes_text(bytes), bytes_text(machine));
  }
}

// `--max-drop`: what `anneal tune` does.
int tune_instead(const BuildFlags& flags, const std::string& output) {
  if (flags.data.data.empty())
    fail(ErrorCode::kInvalidArgument,
         "--max-drop wants samples to judge by: give --calibrate SAMPLES");
  const PrecisionFlags& precision = flags.precision;
  if (precision.f16 || precision.bf16 || precision.int8 || precision.best ||
      !precision.layers.empty() || !precision.mix.empty() ||
      precision.max_layer_error != PrecisionFlags().max_layer_error)
    fail(ErrorCode::kInvalidArgument,
         "--max-drop chooses precisions itself: leave out the flags for them");
  const BuildOptions& build = flags.build;
  if (build.targets.size() != 1 || !build.allow_fallback || build.max_memory != 0 || flags.pack ||
      build.timing.measure || !build.timing.cache.empty() || !flags.report.empty() ||
      !flags.dump_graph.empty() || !flags.dump_passes.empty())
    fail(ErrorCode::kInvalidArgument,
         "--max-drop is for one target, without --no-fallback, --max-memory, --pack, "
         "--time-kernels, --report and dumps: build again with --mix for those");
  TuneFlags tune;
  tune.model = flags.model;
  tune.output = output;
  tune.shapes = flags.shapes;
  tune.data = flags.data;
  tune.build = build;
  tune.max_drop = flags.max_drop;
  tune.calibration = precision.calibration;
  tune.symmetric = precision.symmetric;
  tune.verbose = flags.verbose;
  tune.quiet = flags.quiet;
  return tune_model(tune);
}

int build_engine(const BuildFlags& flags) {
  if (flags.model.empty())
    fail(ErrorCode::kInvalidArgument,
         "build needs a model: anneal build model.onnx -o model.engine");
  std::error_code error;
  if (flags.output.empty() && fs::is_fifo(flags.model, error))
    fail(ErrorCode::kInvalidArgument,
         "a model from a pipe gives the engine no name: name it with -o");
  const std::string output =
      flags.output.empty() ? fs::path(flags.model).stem().string() + ".engine" : flags.output;
  check_outputs(flags, output);
  if (flags.max_drop) return tune_instead(flags, output);

  const auto start = Clock::now();
  Progress progress(flags.verbose);
  progress.say(fmt::format("reading {}", flags.model));
  ImportResult imported = import_model(flags.model, flags.shapes);
  Json report = {{"model", flags.model}, {"engine", output}, {"targets", flags.build.targets}};
  report["import_milliseconds"] = milliseconds_since(start);
  report["imported_layers"] = imported.graph.layer_count();

  std::string graph_text;
  Json passes = Json::array();
  GraphBuildOptions options = graph_options(flags.build);
  const std::string_view last = last_pass(options.passes);
  if (!flags.dump_graph.empty() && last.empty()) graph_text = to_string(imported.graph);
  PassDump dump(flags.dump_passes, imported.graph);
  options.passes.precision =
      precision_options(flags.precision, flags.build.targets, !flags.data.data.empty());
  BuildOptions checking = flags.build;
  set_self_check(flags.precision, checking);
  SelfCheckOptions check = self_check_options(checking);
  if (!flags.data.data.empty())
    check.samples = calibrate_with(flags, imported.graph, options.passes, progress);
  check.before_rebuild = [&] { passes = Json::array(); };
  options.progress = [&](std::string_view what) { progress.say(what); };
  options.after_pass = [&](const PassEvent& event, std::string_view targets) {
    progress.say(event.pass.name);
    passes.push_back({{"name", event.pass.name},
                      {"targets", targets},
                      {"exact", event.pass.exact},
                      {"changed", event.changed},
                      {"rewrites", event.rewrites},
                      {"milliseconds", event.milliseconds},
                      {"layers", event.graph.layer_count()}});
    if (!flags.dump_graph.empty() && event.pass.name == last) graph_text = to_string(event.graph);
    if (event.changed) dump.add(event, targets);
  };
  const auto build_start = Clock::now();
  auto [file, checked] =
      with_context([&] { return printable(flags.model); },
                   [&] { return build_checked(std::move(imported.graph), options, check); });
  if (flags.pack) {
    ThreadTeam team(hardware_threads());
    pack_weights(file, team);
  }
  report["passes"] = std::move(passes);
  report["build_milliseconds"] = milliseconds_since(build_start);

  // The engine last: what fails before leaves no engine.
  const std::vector<std::byte> bytes = save(file);
  if (!flags.dump_graph.empty())
    write_file_atomically(flags.dump_graph, std::as_bytes(std::span(graph_text)));
  Json plans = Json::array();
  for (const Plan& plan : file.plans) {
    Fallbacks fallbacks = fallbacks_of(plan);
    plans.push_back({{"target", plan.target},
                     {"steps", plan.steps.size()},
                     {"arena_bytes", fixed_arena_bytes(plan, file.weights)},
                     {"code_bytes", plan.code.size()},
                     {"transfers", fallbacks.transfers},
                     {"on_the_cpu", std::move(fallbacks.layers)}});
  }
  report["plans"] = std::move(plans);
  report["weight_bytes"] = weight_bytes(file);
  report["engine_bytes"] = bytes.size();
  const double total_milliseconds = milliseconds_since(start);
  report["total_milliseconds"] = total_milliseconds;
  if (!checked.outcome.empty()) report["self_check"] = self_check_json(checked, total_milliseconds);
  if (!flags.report.empty()) write_json(flags.report, report);
  progress.say(fmt::format("writing {}", output));
  const bool is_replaced = flags.output.empty() && fs::exists(output);
  write_file_atomically(output, bytes);

  progress.clear();
  print_self_check(checked);
  if (flags.quiet) return kSuccess;
  std::vector<std::string> made;
  for (const Plan& plan : file.plans)
    made.push_back(fmt::format("{} for {}", count_text(plan.steps.size(), "step"), plan.target));
  fmt::print("{}{}: {}, weights {}, file {}, built in {}\n", output,
             is_replaced ? " (replaced)" : "", fmt::join(made, ", "),
             bytes_text(weight_bytes(file)), bytes_text(bytes.size()),
             milliseconds_text(milliseconds_since(start)));
  print_self_check_line(checked, total_milliseconds);
  for (const Plan& plan : file.plans) print_fallbacks(plan);
  for (const std::string& note :
       precision_notes(flags.precision, options.passes.precision, flags.build.targets))
    fmt::print("note: {}\n", printable(note));
  if (flags.build.timing.measure && std::ranges::all_of(file.plans, [](const Plan& plan) {
        return !plan.target.starts_with("cpu");
      }))
    fmt::print("note: --time-kernels measures kernels of the CPU, and no plan is for the CPU\n");
  print_memory_note(file);
  return kSuccess;
}

constexpr const char* kBuildFooter = R"(Examples:
  anneal build model.onnx                       writes model.engine here
  anneal build model.onnx -o fast.engine --shapes input:1x3x224x224
                                                the free sizes of an input are fixed
  anneal build model.onnx --min-shapes x:1x3x224x224 --opt-shapes x:8x3x224x224 \
                          --max-shapes x:32x3x224x224
                                                a range; of one input, what is left out of
                                                min and max is as in opt
  anneal build model.onnx --target sm_80,sm_90,cpu
                                                one file for two kinds of GPU and the CPU
  anneal build model.onnx --int8 --calibrate pictures --samples hash:100
                                                8 bits by the ranges that 100 of the samples show
  anneal build model.onnx --best --calibrate pictures
                                                8 bits, and 16 where those do not do
  anneal build model.onnx --calibrate pictures --max-drop 0.5
                                                as fast as that budget allows: anneal tune
  anneal build model.onnx --time-kernels --timing-cache here.timings --time-threads 1
                                                kernels by their times with one thread; built
                                                again with the file, nothing is timed
  anneal build model.onnx --skip-pass fuse_epilogue --dump-graph graph.txt
                                                leave a pass out, see the optimized graph

A name may be left out where the model has one input: --shapes 1x3x224x224.
Exit status: 0 built; 2 wrong arguments or a damaged model; 3 the model needs something that Anneal
does not support, all of it is listed; 4 a library for the target, like NVRTC, is missing or failed.
On failure the engine file is as it was before.)";

}  // namespace

void add_build_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("build", "Turn an ONNX model into an engine file");
  auto flags = std::make_shared<BuildFlags>();
  auto list_passes = std::make_shared<bool>(false);
  command->add_option("model", flags->model, "The ONNX model")->type_name("MODEL.onnx");
  command
      ->add_option("-o,--output", flags->output,
                   "The engine file (default: model's name + .engine)")
      ->type_name("FILE");
  command
      ->add_option("--target", flags->build.targets,
                   "What to build for, a list: cpu, cpu:baseline|avx2|avx512|full, sm_80 and the "
                   "like (no GPU "
                   "is needed), emulated (default: cpu)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  add_shape_flags(*command, flags->shapes);
  add_precision_flags(*command, flags->precision);
  add_data_flags(*command, flags->data, "--calibrate");
  command
      ->add_option("--max-drop", flags->max_drop,
                   "With --calibrate: the fastest mix of precisions that loses at most so many "
                   "points; anneal tune has more to set")
      ->check(at_least(0))
      ->type_name("POINTS");
  add_memory_flag(*command, flags->build.max_memory,
                  "The most memory for weights and activations together; a model that needs more "
                  "is refused");
  add_pass_flags(*command, flags->build);
  add_timing_flags(*command, flags->build.timing);
  command
      ->add_option("--time-threads", flags->build.timing.threads,
                   "Threads that the engine will run with, for --time-kernels; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  add_kernel_flags(*command, flags->build);
  command->add_option("--dump-graph", flags->dump_graph, "Write the optimized graph as text")
      ->type_name("FILE");
  command
      ->add_option("--dump-passes", flags->dump_passes,
                   "Write the graph as text after each pass that changed it, into this folder")
      ->type_name("DIR");
  command->add_option("--report", flags->report, "Write times of the build and its passes as JSON")
      ->type_name("FILE");
  command->add_flag(
      "--pack", flags->pack,
      "Store weights as this machine's CPU kernels read them, too, to be mapped at load");
  command->add_flag("!--no-fallback", flags->build.allow_fallback,
                    "Fail, naming each, if layers would run on the CPU though the target is a GPU");
  command->add_flag("--list-passes", *list_passes, "List the optimizer's passes and end");
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->add_flag("-q,--quiet", flags->quiet, "Print nothing on success");
  command->footer(kBuildFooter);
  command->callback([&action, flags, list_passes] {
    if (*list_passes) {
      action = list_all_passes;
      return;
    }
    action = [flags] { return build_engine(*flags); };
  });
}

}  // namespace anneal
