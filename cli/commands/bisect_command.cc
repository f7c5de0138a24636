// `anneal bisect`: finds the rewrite of the optimizer that makes results wrong.
#include "anneal/cli/commands/bisect_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/compare/model_arithmetic.h"
#include "anneal/engine/compare/tensor_error.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/optimizer/bisect.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

// Runs graphs without optimization on the reference kernels, all on the same inputs.
class ReferenceRuns {
 public:
  ReferenceRuns(const BisectFlags& flags, const Graph& graph)
      : flags_(flags), arithmetic_(arithmetic_of(graph)) {
    const auto engine = engine_of(graph);
    const std::vector<std::string> random = {"random"};
    samples_ =
        sample_inputs(*engine, flags.inputs.empty() ? random : flags.inputs, flags.shapes.shapes);
    expected_ = outputs_of(engine);
  }

  // The first output that differs from the imported graph's, with the difference; else empty.
  std::string why_wrong(const Graph& graph) const {
    const std::vector<Tensor> got = outputs_of(engine_of(graph));
    for (size_t i = 0; i < got.size(); ++i) {
      Tolerance tolerance = flags_.tolerance;
      const ConstTensorView expected = expected_[i].view();
      if (is_float(expected.dtype))
        tolerance.atol *= std::max(1.0, tensor_error(expected, expected).scale);
      const Comparison compared = compare_output(got[i].view(), expected, tolerance, arithmetic_);
      if (!compared.why.empty())
        return fmt::format("output \"{}\": {}", printable(graph.outputs()[i].name), compared.why);
    }
    return {};
  }

 private:
  static std::shared_ptr<const Engine> engine_of(const Graph& graph) {
    GraphBuildOptions options;
    options.reference = true;
    return make_engine(build(graph.clone(), options), {.device = "cpu"});
  }

  std::vector<Tensor> outputs_of(const std::shared_ptr<const Engine>& engine) const {
    return with_samples(flags_.model, samples_, [&] {
      ContextOptions options;
      options.threads = flags_.threads;
      ExecutionContext context(engine, options);
      for (size_t i = 0; i < samples_.tensors.size(); ++i)
        context.set_input(engine->inputs()[i].name, samples_.tensors[i].view());
      context.run();
      std::vector<Tensor> outputs;
      for (const TensorInfo& port : engine->outputs())
        outputs.push_back(dense_copy(context.output(port.name)));
      return outputs;
    });
  }

  const BisectFlags& flags_;
  Arithmetic arithmetic_;
  SampleInputs samples_;
  std::vector<Tensor> expected_;
};

void print_lines(std::string_view title, const std::string& lines) {
  fmt::print("{}\n{}", title, lines.empty() ? "  (nothing)\n" : lines);
}

Json harm_json(const BisectFlags& flags, const std::optional<Harm>& harm, const std::string& why) {
  Json json = {{"model", flags.model}, {"harm", nullptr}};
  if (harm)
    json["harm"] = {{"pass", harm->rewrite.pass},
                    {"subject", harm->rewrite.subject},
                    {"decision", harm->rewrite.text},
                    {"rewrite", harm->number},
                    {"rewrites", harm->of},
                    {"rewrite_of_pass", harm->number_in_pass},
                    {"rewrites_of_pass", harm->of_in_pass},
                    {"why", why},
                    {"before", harm->before},
                    {"after", harm->after}};
  return json;
}

}  // namespace

int bisect(const Graph& graph, const BisectFlags& flags, std::span<const Pass> passes) {
  ProgressLine progress(flags.verbose);
  const Target target = open_target(flags.target, cpu_backend());
  PassOptions options = graph_options(flags.build).passes;
  options.native = target.native;
  options.ask_targets = ask_targets({&target});
  progress.say("running the model as it was imported");
  const ReferenceRuns runs(flags, graph);
  int asked = 0;
  std::string why;
  const auto harm = find_harm(graph, passes, options, [&](const Graph& optimized) {
    progress.say(fmt::format("running with {} layers, try {}", optimized.layer_count(), ++asked));
    const std::string wrong = runs.why_wrong(optimized);
    if (!wrong.empty()) why = wrong;
    return wrong.empty();
  });
  progress.clear();
  if (!flags.json.empty()) write_json(flags.json, harm_json(flags, harm, why));
  if (!harm) {
    fmt::print(
        "no rewrite does harm: outputs stay within {:g} of the reference, relative, and "
        "{:g} of its largest magnitude\n",
        flags.tolerance.rtol, flags.tolerance.atol);
    return kSuccess;
  }
  fmt::print("pass {}, its rewrite {} of {} (the pipeline's {} of {}): \"{}\": {}\n{}\n",
             harm->rewrite.pass, harm->number_in_pass, harm->of_in_pass, harm->number, harm->of,
             printable(harm->rewrite.subject), printable(harm->rewrite.text), why);
  print_lines("before:", harm->before);
  print_lines("after:", harm->after);
  fmt::print("without that pass: anneal build {} --skip-pass {}\n", flags.model,
             harm->rewrite.pass);
  return kDifferent;
}

namespace {

constexpr const char* kBisectFooter = R"(Examples:
  anneal bisect model.onnx                      random inputs
  anneal bisect model.onnx --input cat.npy --target sm_90

All graphs run on the CPU's reference kernels, so a finding is the optimizer's fault, not a kernel's
(anneal compare finds faulty kernels). It bisects the rewrites: before the one that it prints,
outputs are within the tolerance of the imported model's; after it, they are not.
An element is right if |got - reference| <= atol * max(1, largest |reference|) + rtol * |reference|.
Quantized models may differ as in anneal check.
Exit status: 0 no rewrite is wrong; 1 a rewrite is wrong, and printed with the layers before and
after; 2 wrong arguments or files; 3 the model is not supported.)";

}  // namespace

void add_bisect_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("bisect", "Find the optimizer's rewrite that makes results wrong");
  auto flags = std::make_shared<BisectFlags>();
  command->add_option("model", flags->model, "ONNX model")->required()->group(often(help::kFiles));
  add_input_flag(*command, flags->inputs);
  command->add_option("--json", flags->json, "Write the result as JSON")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  command
      ->add_option("--target,--device", flags->target,
                   "Target of the optimizer, as for anneal build")
      ->capture_default_str()
      ->type_name("TARGET")
      ->group(often(help::kTarget));
  add_shape_flags(*command, flags->shapes, often);
  command->add_option("--rtol", flags->tolerance.rtol, "Relative tolerance")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kCompare));
  command->add_option("--atol", flags->tolerance.atol, "Absolute tolerance")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kCompare));
  add_pass_flags(*command, flags->build, often);
  command
      ->add_option("--threads", flags->threads, "Maximum number of threads (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(often(help::kRun));
  command->footer(kBisectFooter);
  command->callback([&action, flags] {
    action = [flags] {
      check_output_file(flags->json);
      return bisect(import_model_for_inputs(flags->model, flags->shapes, flags->inputs).graph,
                    *flags, default_pipeline());
    };
  });
}

}  // namespace anneal
