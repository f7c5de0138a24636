// `anneal run`: an engine over one set of inputs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/compare/engine_source.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/name_pattern.h"
#include "anneal/cli/measure/profile_table.h"
#include "anneal/cli/model/classify.h"
#include "anneal/cli/model/observe.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/tensor_files.h"
#include "anneal/cli/output/tensor_summary.h"
#include "anneal/engine/run/debug.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostSamplesShown = 8;

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

void print_top(const Tensor& output, const ScoreLayout& layout,
               const std::vector<std::string>& labels, int64_t k) {
  if (!labels.empty() && static_cast<int64_t>(labels.size()) != layout.classes)
    fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--labels has {} lines, the output has {} classes; give a file with a line for "
                    "each class",
                    labels.size(), layout.classes));
  for (int64_t sample = 0; sample < std::min(layout.samples, kMostSamplesShown); ++sample) {
    if (layout.samples > 1) fmt::print("  sample {}\n", sample);
    Rows rows;
    for (const RankedClass& ranked : best_classes(output, layout, sample, k))
      rows.push_back({"  ", number_text(ranked.score, 4), fmt::format("{}", ranked.index),
                      labels.empty() ? "" : labels[static_cast<size_t>(ranked.index)]});
    fmt::print("{}", table_text(rows, {false, true, true, false}));
  }
  if (layout.samples > kMostSamplesShown)
    fmt::print("  and {} more samples\n", layout.samples - kMostSamplesShown);
}

std::string tensor_text(const std::string& name, const Tensor& tensor) {
  return fmt::format("{}: {}{}", printable(name), anneal::to_string(tensor.dtype()),
                     to_string(tensor.dims()));
}

// A model is built in f32 and in memory, for this run.
std::shared_ptr<const Engine> engine_for(const RunFlags& flags, const EngineOptions& options) {
  if (!std::string_view(flags.engine).ends_with(".onnx")) return open_engine(flags.engine, options);
  const std::string& target = flags.engine_options.device;
  return engine_from({.path = flags.engine,
                      .target = target == "auto" ? "cpu" : target,
                      .shapes = flags.model_shapes,
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
  const auto labels = flags.labels.empty() ? std::vector<std::string>() : read_labels(flags.labels);
  const SampleInputs samples = sample_inputs(*engine, flags.inputs, flags.shapes);
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
      if (!samples.is_default[i]) context.set_input(engine->inputs()[i].name, inputs[i].view());
  });

  ProgressLine progress(flags.verbose);
  const int warmup = flags.warmup >= 0 ? flags.warmup : flags.iterations > 1 ? 2 : 0;
  std::vector<double> milliseconds;
  ProfileTable profile;
  auto said = Clock::now();
  for (int i = -warmup; i < flags.iterations; ++i) {
    const auto start = Clock::now();
    if (start - said > std::chrono::seconds(1)) {
      progress.say(fmt::format("run {} of {}", i + warmup + 1, flags.iterations + warmup));
      said = start;
    }
    with_samples(flags.engine, samples, [&] {
      if (flags.profile && i >= 0) {
        profile.add(profile_counted(context));
      } else {
        context.run();
      }
    });
    if (i >= 0) milliseconds.push_back(milliseconds_since(start));
  }
  progress.clear();
  print_remarks(context.run_warnings());

  for (size_t i = 0; i < inputs.size(); ++i)
    fmt::print("input    {}  {}{}\n", tensor_text(engine->inputs()[i].name, inputs[i]),
               summary_text(inputs[i]), samples.is_default[i] ? ", the default value" : "");
  for (const TensorInfo& port : engine->outputs()) {
    const Tensor output = dense_copy(context.output(port.name));
    fmt::print("output   {}  {}\n", tensor_text(port.name, output), summary_text(output));
    const auto layout = score_layout(output.dtype(), output.dims());
    if (layout && flags.top > 0) print_top(output, *layout, labels, flags.top);
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
  if (pattern) observe_run(*engine, context, *pattern, files ? &*files : nullptr);
  return kSuccess;
}

constexpr const char* kRunFooter = R"(Examples:
  anneal run model.engine --input random            every input gets random numbers
  anneal run model.engine --input cat.npy --labels imagenet.txt
  anneal run model.engine --input ids=ids.npy --input mask=random:7 --save out
                                                    out/NAME.npy for each output
  anneal run model.onnx --input x=x.npy --input w=w.npy
                                                    built in memory, in f32; w may be an initializer
                                                    that the model lists among its inputs
  anneal run model.engine --input x=x.raw --shapes x:1x3x224x224
                                                    raw little-endian numbers
  anneal run model.engine --input random --iterations 100 --profile
  anneal run model.engine --input random --observe 'conv[12]' --save out
                                                    tensors inside the engine whose names match

A file is .npy, .pb (an ONNX TensorProto), idx (by its name: *-ubyte, *.idx) or else raw bytes.
Random floats are in [0,1), random integers in the range that their readers accept.
Inputs with a default value keep it unless they are named.
Exit status: 0 ran; 2 wrong arguments, or an input or engine that is damaged or does not fit; 3 the
model needs what is not supported; 4 the device is not here, failed, or has too little memory.)";

}  // namespace

void add_run_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("run", "Run an engine on data");
  auto flags = std::make_shared<RunFlags>();
  command
      ->add_option("engine", flags->engine, "The engine file, or a model.onnx to build in memory")
      ->type_name("MODEL.engine")
      ->required();
  command
      ->add_option("-i,--input", flags->inputs,
                   "What an input is fed; NAME= may be left out with one input, and with random")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE|random[:SEED]");
  command->add_option("--shapes", flags->shapes, "Shapes of raw files and random inputs")
      ->type_name("NAME:1x3x224x224,...");
  command->add_option("--save", flags->save_folder, "Write each output to FOLDER/NAME.npy")
      ->type_name("FOLDER");
  command->add_option("--save-inputs", flags->inputs_folder, "Write each input to FOLDER/NAME.npy")
      ->type_name("FOLDER");
  command
      ->add_option("--observe", flags->observe,
                   "Show the tensors inside whose names match somewhere, each after its step, in a "
                   "run of their own; --save writes them too")
      ->type_name("REGEX");
  command->add_option("--labels", flags->labels, "Names of the classes, one per line")
      ->type_name("FILE");
  command->add_option("--top", flags->top, "Classes to show where an output looks like scores")
      ->capture_default_str()
      ->check(at_least(0));
  add_device_flags(*command, flags->engine_options);
  add_context_flags(*command, flags->context_options, flags->debug);
  add_slot_flags(*command, flags->debug);
  command->add_option("--threads", flags->threads, "Most threads to use; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--iterations", flags->iterations, "Runs to measure")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--warmup", flags->warmup, "Runs before them (default: 2, of one run: none)")
      ->check(at_least(0));
  command->add_flag("--profile", flags->profile,
                    "Show the time of each step; on the emulated device also "
                    "what each line of its functions does to memory");
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->footer(kRunFooter);
  command->callback([&action, flags] { action = [flags] { return run_engine(*flags); }; });
}

}  // namespace anneal
