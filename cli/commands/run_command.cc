// `anneal run`: an engine over one set of inputs.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/library_flag.h"
#include "anneal/cli/flags/name_pattern.h"
#include "anneal/cli/flags/weights_flag.h"
#include "anneal/cli/measure/profile_table.h"
#include "anneal/cli/model/classes.h"
#include "anneal/cli/model/observe.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/open_or_build.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/stopwatch.h"
#include "anneal/cli/output/tensor_files.h"
#include "anneal/cli/output/tensor_summary.h"
#include "anneal/engine/run/debug.h"

namespace anneal {
namespace {

struct RunFlags {
  EngineOptions engine_options;
  ContextOptions context_options;
  DebugOptions debug;  // of both
  std::string engine, shapes, observe, save_folder, inputs_folder, labels;
  std::vector<std::string> inputs;
  ShapeFlags model_shapes;
  int threads = 0, iterations = 1, warmup = -1, top = 5;
  bool profile = false, verbose = false;
};

std::string tensor_text(const std::string& name, const Tensor& tensor) {
  return fmt::format("{}: {}{}", printable(name), anneal::to_string(tensor.dtype()),
                     to_string(tensor.dims()));
}

// A model is built in f32 and in memory, for this run.
std::shared_ptr<const Engine> engine_for(const RunFlags& flags, const EngineOptions& options) {
  if (!std::string_view(flags.engine).ends_with(".onnx")) return open_engine(flags.engine, options);
  ShapeFlags shapes = flags.model_shapes;
  shapes.libraries = options.libraries;
  const std::string& target = flags.engine_options.device;
  return open_or_build({.path = flags.engine,
                        .target = target == "auto" ? "cpu" : target,
                        .shapes = shapes,
                        .inputs = flags.inputs,
                        .threads = flags.threads,
                        .debug = flags.debug});
}

int run_engine(const RunFlags& flags) {
  std::optional<NamePattern> pattern;
  if (!flags.observe.empty()) pattern.emplace(flags.observe, "--observe");
  EngineOptions engine_options = flags.engine_options;
  engine_options.threads = flags.threads;
  engine_options.debug = &flags.debug;
  if (flags.profile && engine_options.device == "emulated")
    engine_options.device = "emulated:counting";
  const auto engine = engine_for(flags, engine_options);
  const auto labels =
      flags.labels.empty() ? std::vector<std::string>() : read_class_names(flags.labels);
  const SampleInputs samples =
      sample_inputs(*engine, flags.inputs, flags.shapes, flags.context_options.profile, "--shapes",
                    StateInputs::kKept);
  const std::vector<Tensor>& inputs = samples.tensors;
  // Before the run: one that fails is worth repeating, too.
  if (!flags.inputs_folder.empty()) {
    TensorFiles files(flags.inputs_folder);
    for (size_t i = 0; i < inputs.size(); ++i)
      files.write(engine->inputs()[i].name, inputs[i].view());
  }
  ContextOptions options = flags.context_options;
  options.threads = flags.threads;
  options.debug = &flags.debug;
  ExecutionContext context(engine, options);
  with_samples(flags.engine, samples, [&] {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!samples.is_default[i] && !samples.state_dims[i])
        context.set_input(engine->inputs()[i].name, inputs[i].view());
  });
  // So that the results do not depend on the number of runs.
  const auto begin_states = [&] {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (samples.state_dims[i])
        context.set_input(engine->inputs()[i].name,
                          {inputs[i].dtype(), *samples.state_dims[i], {}, nullptr});
  };

  ProgressLine progress(flags.verbose);
  const int warmup = flags.warmup >= 0 ? flags.warmup : flags.iterations > 1 ? 2 : 0;
  std::vector<double> milliseconds;
  ProfileTable profile;
  Stopwatch since_said;
  for (int i = -warmup; i < flags.iterations; ++i) {
    if (since_said.seconds() > 1) {
      progress.say(fmt::format("run {} of {}", i + warmup + 1, flags.iterations + warmup));
      since_said = {};
    }
    with_samples(flags.engine, samples, begin_states);
    const Stopwatch watch;
    with_samples(flags.engine, samples, [&] {
      if (flags.profile && i >= 0) {
        profile.add(profile_counted(context));
      } else {
        context.run();
      }
    });
    if (i >= 0) milliseconds.push_back(watch.milliseconds());
  }
  progress.clear();
  print_remarks(context.run_warnings());

  for (size_t i = 0; i < inputs.size(); ++i)
    fmt::print("input    {}  {}{}{}\n", tensor_text(engine->inputs()[i].name, inputs[i]),
               summary_text(inputs[i]), samples.is_default[i] ? ", the default value" : "",
               samples.state_dims[i] ? ", the first value of a state" : "");
  for (const TensorInfo& port : engine->outputs()) {
    const Tensor output = dense_copy(context.output(port.name));
    fmt::print("output   {}  {}\n", tensor_text(port.name, output), summary_text(output));
    if (flags.top > 0) fmt::print("{}", best_classes_text(output, labels, flags.top));
  }
  std::optional<TensorFiles> files;
  if (!flags.save_folder.empty()) files.emplace(flags.save_folder);
  if (files)
    for (const TensorInfo& port : engine->outputs())
      fmt::print("saved    {}\n", files->write(port.name, context.output(port.name)));
  if (milliseconds.size() == 1) {
    fmt::print("latency  {} (one run; --iterations 100 measures)\n",
               milliseconds_text(milliseconds[0]));
  } else {
    fmt::print("latency  median {}, min {}, p99 {} ({} runs after {} to warm up)\n",
               milliseconds_text(median(milliseconds)),
               milliseconds_text(*std::min_element(milliseconds.begin(), milliseconds.end())),
               milliseconds_text(percentile(milliseconds, 0.99)), milliseconds.size(), warmup);
  }
  fmt::print("memory   {} beside the weights\n", bytes_text(context.memory_bytes()));
  if (flags.profile) fmt::print("\n{}", profile.text());
  if (pattern) {
    begin_states();
    observe_run(*engine, context, *pattern, files ? &*files : nullptr);
  }
  return kSuccess;
}

constexpr const char* kRunFooter = R"(Examples:
  anneal run model.engine --input random            random numbers for all inputs
  anneal run model.engine --input cat.npy --labels imagenet.txt
  anneal run model.engine --input ids=ids.npy --input mask=random:7 --save out
  anneal run model.engine --input x=x.raw --shapes x:1x3x224x224
  anneal run model.engine --input random --iterations 100 --profile
  anneal run model.engine --input random --observe 'conv[12]' --save out

A file is .npy, .pb (an ONNX TensorProto), idx (*-ubyte, *.idx), else raw little-endian numbers.
Random floats are in [0,1), random integers in the range that the layers accept. Inputs with a
default value keep it unless they are named. States that the engine keeps begin anew in each run
unless they are named: --shapes gives their sizes. A model.onnx is built in memory, in f32; an
initializer that it lists as an input may be named, too.
Exit status: 0 ran; 2 wrong arguments, inputs or engine; 3 the model is not supported; 4 the device
is missing, failed, or has too little memory.)";

}  // namespace

void add_run_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("run", "Run an engine on data");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("engine", flags->engine, "Engine file, or model.onnx to build in memory")
      ->required()
      ->group(often(help::kFiles));
  add_input_flag(*command, flags->inputs);
  command
      ->add_option("--shapes", flags->shapes,
                   "Shapes of raw files and random inputs: NAME:1x3x224x224,...")
      ->type_name("SHAPES")
      ->group(often(help::kFiles));
  command->add_option("--save", flags->save_folder, "Write each output to FOLDER/NAME.npy")
      ->type_name("FOLDER")
      ->group(often(help::kFiles));
  command->add_option("--save-inputs", flags->inputs_folder, "Write each input to FOLDER/NAME.npy")
      ->type_name("FOLDER")
      ->group(often(help::kFiles));
  command->add_option("--labels", flags->labels, "Names of the classes, one per line")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_option("--top", flags->top, "Classes to print if an output looks like scores")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  add_library_flag(*command, flags->engine_options.libraries);
  add_weights_flag(*command, flags->engine_options.weights);
  add_device_flags(*command, flags->engine_options);
  add_context_flags(*command, flags->context_options, flags->debug);
  add_slot_flags(*command, flags->debug);
  command
      ->add_option("--threads", flags->threads, "Maximum number of threads (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(often(help::kRun));
  command->add_option("--iterations", flags->iterations, "Runs to measure")
      ->capture_default_str()
      ->check(at_least(1))
      ->group(often(help::kMeasuring));
  command
      ->add_option("--warmup", flags->warmup,
                   "Runs before the measured ones (default: 2; 0 for a single run)")
      ->check(at_least(0))
      ->group(often(help::kMeasuring));
  command
      ->add_flag("--profile", flags->profile,
                 "Print the time of each step; with --device emulated, also the\n"
                 "memory accesses of each line of its functions")
      ->group(often(help::kMeasuring));
  command
      ->add_option("--observe", flags->observe,
                   "Print internal tensors whose names match, in one more run; --save\n"
                   "writes them, too")
      ->type_name("REGEX")
      ->group(often(help::kDiagnosis));
  command->footer(kRunFooter);
  command->callback([&action, flags] { action = [flags] { return run_engine(*flags); }; });
}

}  // namespace anneal
