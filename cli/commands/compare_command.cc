// `anneal compare`: where two engines begin to differ.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/compare/engine_source.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/library_flag.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/flags/weights_flag.h"
#include "anneal/cli/model/model_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/compare/compare_engines.h"
#include "anneal/engine/onnx/comparison.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"

namespace anneal {
namespace {

struct CompareFlags {
  EngineSource a, b;
  std::string shapes, json;
  std::vector<std::string> inputs, libraries;
  BuildOptions build;
  PrecisionFlags precision;
  CompareOptions options;
  int top = 10;
  bool reference = false, map = true, verbose = false;
  DebugOptions debug;
};

void complete(CompareFlags& flags) {
  if (flags.b.path.empty()) {
    if (is_engine(flags.a.path))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} is an engine; say what to compare it with: anneal compare {} model.onnx",
                       flags.a.path, flags.a.path));
    flags.b.path = flags.a.path;
    if (flags.b.target.empty()) flags.reference = true;
  }
  if (flags.reference && !flags.b.target.empty() && flags.b.target != kReferenceTarget)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("--reference and --target-b {} contradict each other", flags.b.target));
  if (flags.reference) flags.b.target = kReferenceTarget;
  std::vector<std::string> targets;
  for (const EngineSource* side : {&flags.a, &flags.b})
    targets.push_back(
        side->target.empty() || side->target.starts_with(kReferenceTarget) ? "cpu" : side->target);
  flags.build.precision = precision_options(flags.precision);
  flags.build.targets = targets;  // both sides get the best precision of both
  flags.build.precision = resolved_precision(flags.build);
  set_self_check(flags.precision, flags.build);
  if (flags.build.precision.allows(Precision::kF16)) flags.options.coarsest = DataType::kF16;
  if (flags.build.precision.allows(Precision::kBF16)) flags.options.coarsest = DataType::kBF16;
  for (EngineSource* side : {&flags.a, &flags.b}) {
    if (side->target.empty()) side->target = "cpu";
    side->build = flags.build;
    side->shapes.shapes = flags.shapes;
    side->map = flags.map;
    side->debug = flags.debug;
  }
}

std::string name_text(const ComparedTensor& tensor) {
  const std::string name = printable(tensor.name);
  return tensor.time == 1 ? name : fmt::format("{} (time {})", name, tensor.time);
}

double share_of_scale(const ComparedTensor& tensor) {
  const double scale = tensor.error.scale > 0 ? tensor.error.scale : 1;
  return tensor.comparison.max_abs / scale;
}

bool differs(const ComparedTensor& tensor) { return !tensor.comparison.why.empty(); }
// Whether it differs only because the inputs of A's step do.
bool inherits(const ComparedTensor& tensor) {
  return differs(tensor) && tensor.alone && tensor.alone->why.empty();
}
bool rounds_differently(const ComparedTensor& tensor) {
  return tensor.rounding && tensor.rounding->differing > 0;
}

std::string quanta_text(const ComparedTensor& tensor) {
  if (!rounds_differently(tensor)) return "";
  return fmt::format("{} of {} by <= {:g}", tensor.rounding->differing, tensor.rounding->elements,
                     tensor.rounding->most_quanta);
}

std::string figure_text(double figure, int digits) {
  return std::isnan(figure) ? "NaN" : fmt::format("{:.{}f}", figure, digits);
}

void print_largest(const std::vector<ComparedTensor>& tensors, size_t most) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank = [&](size_t i) { return !differs(tensors[i]) ? 2 : inherits(tensors[i]); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return share_of_scale(tensors[a]) > share_of_scale(tensors[b]);
  });
  order.resize(std::min(order.size(), most));
  Rows rows = {{"", "#", "tensor", "type", "kernel of A", "max abs", "max rel", "SQNR dB", "cosine",
                std::any_of(tensors.begin(), tensors.end(), rounds_differently) ? "quanta" : ""}};
  for (const size_t i : order) {
    const ComparedTensor& tensor = tensors[i];
    rows.push_back(
        {inherits(tensor)  ? "inherits"
         : differs(tensor) ? "DIFFERS"
                           : "ok",
         fmt::format("{}", i), name_text(tensor),
         fmt::format("{}{}", to_string(tensor.dtype), to_string(tensor.dims)), tensor.kernel_a,
         number_text(tensor.comparison.max_abs, 3), number_text(tensor.comparison.max_rel, 3),
         std::isinf(tensor.error.sqnr_db) ? "exact" : figure_text(tensor.error.sqnr_db, 1),
         figure_text(tensor.error.cosine, 7), quanta_text(tensor)});
  }
  fmt::print("{}\n",
             table_text(rows, {false, true, false, false, false, true, true, true, true, false}));
}

Json files_json(const CompareFlags& flags) {
  return {{"a", {{"file", flags.a.path}, {"target", flags.a.target}}},
          {"b", {{"file", flags.b.path}, {"target", flags.b.target}}}};
}

// Where a quantized model begins to differ, and why all that follows may.
void print_rounding(const std::vector<ComparedTensor>& tensors) {
  const auto first = std::find_if(tensors.begin(), tensors.end(), rounds_differently);
  if (first == tensors.end()) return;
  const Rounding& rounding = *first->rounding;
  fmt::print("rounding differs first in {}: {} of {} elements, by {:g} at most\n",
             name_text(*first), rounding.differing, rounding.elements, rounding.most_quanta);
  if (rounding.at_ties == rounding.differing)
    fmt::print(
        "  all at a tie: before rounding the values differ by at most {:.2g}, as after another "
        "order of\n  additions, and lie on both sides of a half\n",
        rounding.widest_tie);
}

void print_differences(const std::vector<ComparedTensor>& tensors, const ComparedTensor& first) {
  fmt::print("{} of {} differ; the first in A's order:\n  {}, {} on {} (in B: {} on {})\n  {}\n",
             std::count_if(tensors.begin(), tensors.end(), differs), tensors.size(),
             name_text(first), printable(first.step_a), printable(first.kernel_a),
             printable(first.step_b), printable(first.kernel_b), first.comparison.why);
  print_rounding(tensors);
  if (!first.alone) return;
  const auto fails_alone = [](const ComparedTensor& tensor) {
    return tensor.alone && !tensor.alone->why.empty();
  };
  const auto wrong = std::find_if(tensors.begin(), tensors.end(), fails_alone);
  if (wrong == tensors.end()) {
    fmt::print(
        "given B's tensors, each step of A agrees: the rest is inherited from small "
        "differences\n");
    return;
  }
  fmt::print(
      "given B's tensors, {} of A still differ; the first:\n  {}, {} on {}\n  {}\n",
      count_text(static_cast<uint64_t>(std::count_if(tensors.begin(), tensors.end(), fails_alone)),
                 "tensor"),
      name_text(*wrong), printable(wrong->step_a), printable(wrong->kernel_a), wrong->alone->why);
}

int run_compare(CompareFlags flags) {
  complete(flags);
  check_output_file(flags.json);
  ProgressLine progress(flags.verbose);
  progress.say(fmt::format("preparing {} ({})", flags.a.path, flags.a.target));
  flags.a.threads = flags.b.threads = flags.options.threads;
  flags.a.inputs = flags.b.inputs = flags.inputs;
  flags.a.shapes.libraries = flags.b.shapes.libraries = flags.libraries;
  const auto a = engine_from(flags.a);
  progress.say(fmt::format("preparing {} ({})", flags.b.path, flags.b.target));
  const auto b = engine_from(flags.b);
  if (flags.inputs.empty()) flags.inputs = {"random"};
  const SampleInputs samples = sample_inputs(*a, flags.inputs, flags.shapes);
  progress.say("running both");
  const EngineComparison comparison = with_samples(
      flags.a.path, samples, [&] { return compare_tensors(a, b, samples.tensors, flags.options); });
  progress.clear();
  const auto& tensors = comparison.tensors;
  if (tensors.empty())
    fail(ErrorCode::kInvalidArgument,
         "A and B have no tensor of the same name: are they of one model?");

  const auto first = std::find_if(tensors.begin(), tensors.end(), differs);
  const ComparedTensor* diverging = first == tensors.end() ? nullptr : &*first;
  if (!flags.json.empty()) {
    Json json = files_json(flags);
    json.update(comparison_json(comparison, *a));
    write_json(flags.json, json);
  }

  fmt::print("A  {} ({}), {}\nB  {} ({}), {}\n", flags.a.path, flags.a.target,
             count_text(plan_of(*a).steps.size(), "step"), flags.b.path, flags.b.target,
             count_text(plan_of(*b).steps.size(), "step"));
  fmt::print("{} in both, {} only in A, {} only in B\n\n", count_text(tensors.size(), "tensor"),
             comparison.only_a, comparison.only_b);
  if (flags.top > 0) print_largest(tensors, static_cast<size_t>(flags.top));
  if (!diverging) {
    fmt::print("all agree\n");
    print_rounding(tensors);
    return kSuccess;
  }
  print_differences(tensors, *diverging);
  return kDifferent;
}

constexpr const char* kCompareFooter = R"(Examples:
  anneal compare model.onnx                     optimized against the reference kernels, no passes
  anneal compare model.onnx --input cat.npy --json differences.json
  anneal compare model.onnx --skip-pass fuse_epilogue     is it this pass?
  anneal compare old.engine new.engine --atol 0 --rtol 0  are they equal to the bit?
  anneal compare model.onnx model.onnx --target-a cpu:avx2 --target-b cpu:baseline
  anneal compare shipped.engine model.onnx --reference

A and B get the same inputs (default: random). Tensors are matched by their names in the model, and
copied right after their step. Tensors that one side fused are not compared, so the first difference
shows at the next tensor that both have.
An element agrees if |a - b| <= atol * max(1, largest |b| of the tensor) + rtol * |b|. Defaults of
rtol and atol: 1e-3 and 1e-5; 1e-2 and 1e-3 with --fp16 or from the first f16 tensor on; 5e-2 and
1e-2 for bf16. Quantized models and integers may differ as in anneal check.
If tensors differ, A runs again with B's tensors as inputs of each step, unless they take more than
512 MB. `inherits`: the step is right, its inputs differ. `DIFFERS`: the step itself is wrong.
Columns: #: position in A's order. SQNR: signal to error in dB, higher is better; 20 dB are a factor
of 10. quanta: number of elements of a quantized tensor that differ, and by how much at most. The
order of additions rounds a float at a half up or down: one quantum, which later layers amplify.
Exit status: 0 all tensors agree; 1 some differ; 2 wrong arguments, or files that do not fit;
3 a model that Anneal does not support.)";

}  // namespace

void add_compare_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "compare", "Run two engines or models side by side and find where they differ");
  auto flags = std::make_shared<CompareFlags>();
  flags->a.target.clear();
  flags->b.target.clear();
  command->add_option("a", flags->a.path, "Engine file or ONNX model")
      ->required()
      ->group(often(help::kFiles));
  command
      ->add_option("b", flags->b.path,
                   "Reference for A (default: the model A on the reference kernels)")
      ->group(often(help::kFiles));
  add_input_flag(*command, flags->inputs);
  command->add_option("--shapes", flags->shapes, "Open sizes of inputs: NAME:1x3x224x224,...")
      ->type_name("SHAPES")
      ->group(often(help::kFiles));
  command->add_option("--json", flags->json, "Write the errors of all tensors as JSON")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  command
      ->add_option("--target-a", flags->a.target,
                   "Target of model A, or device of engine A: cpu, cpu:ISA, reference,\n"
                   "reference-kernels (default: cpu)")
      ->type_name("TARGET")
      ->group(often(help::kTarget));
  command->add_option("--target-b", flags->b.target, "As --target-a, for B")
      ->type_name("TARGET")
      ->group(often(help::kTarget));
  command
      ->add_flag("--reference", flags->reference,
                 "Run the model B without passes on the reference kernels")
      ->group(often(help::kTarget));
  command->add_option("--rtol", flags->options.rtol, "Relative tolerance (default: see below)")
      ->check(at_least(0))
      ->group(often(help::kCompare));
  command->add_option("--atol", flags->options.atol, "Absolute tolerance (default: see below)")
      ->check(at_least(0))
      ->group(often(help::kCompare));
  command->add_option("--top", flags->top, "Tensors to print, the largest differences first")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kCompare));
  add_library_flag(*command, flags->libraries);
  add_weights_flag(*command, flags->a.weights);
  command->add_option("--weights-b", flags->b.weights, "As --weights, for B")
      ->type_name("FILE")
      ->group(rarely(help::kFiles));
  add_precision_flags(*command, flags->precision);
  add_pass_flags(*command, flags->build, often);
  add_kernel_flags(*command, flags->build);
  add_map_flag(*command, flags->map);
  add_slot_flags(*command, flags->debug);
  command
      ->add_option("--threads", flags->options.threads,
                   "Maximum number of threads (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kRun));
  command->footer(kCompareFooter);
  command->callback([&action, flags, command] {
    action = [flags, command] {
      refuse_model_flags(*command, {flags->a.path, flags->b.path});
      return run_compare(*flags);
    };
  });
}

}  // namespace anneal
