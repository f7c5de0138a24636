// `anneal inspect`: the content of a model or an engine.
#include <fmt/format.h>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/library_flag.h"
#include "anneal/cli/flags/weights_flag.h"
#include "anneal/cli/model/inspect_text.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/roofline/roofline_run.h"

namespace anneal {
namespace {

struct InspectFlags {
  std::string file, weights;
  std::vector<std::string> libraries;
  bool graph = false, plan = false, decisions = false, json = false, map = true;
  RooflineFlags roofline;
};

int show_model(const InspectFlags& flags) {
  if (flags.plan || flags.decisions || flags.roofline.wanted)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is a model; --plan, --decisions and --roofline are of engines: anneal "
                     "build {}",
                     flags.file, flags.file));
  if (flags.graph && !flags.json) {
    fmt::print("{}", printable(graph_text_of(flags.file, flags.libraries), LineEnds::kKept));
    return kSuccess;
  }
  const InspectedModel model = inspect_model(flags.file, flags.libraries);
  fmt::print("{}", flags.json ? json_text(model) : model_text(model));
  return kSuccess;
}

// With those of a plan behind its steps.
int show_rooflines(const InspectFlags& flags) {
  const std::vector<Roofline> rooflines =
      planned_rooflines(flags.file, flags.map, flags.libraries, flags.weights, flags.roofline);
  if (flags.json) {
    Json json = Json::parse(
        json_text(inspect_engine(flags.file, flags.map, flags.libraries, flags.weights)));
    for (size_t i = 0; i < rooflines.size(); ++i)
      json["plans"][i]["roofline"] = roofline_json(rooflines[i]);
    fmt::print("{}", json_text(json));
    return kSuccess;
  }
  for (const Roofline& roofline : rooflines)
    fmt::print("{}{}", &roofline == rooflines.data() ? "" : "\n",
               planned_roofline_text(roofline, rooflines.size() > 1));
  return kSuccess;
}

int show_engine(const InspectFlags& flags) {
  if (flags.graph)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is an engine, which holds plans instead of a graph; use --plan",
                     flags.file));
  if (flags.roofline.wanted) return show_rooflines(flags);
  if (flags.plan && !flags.json) {
    fmt::print("{}", printable(plans_text_of(flags.file, flags.map, flags.libraries, flags.weights),
                               LineEnds::kKept));
    return kSuccess;
  }
  const InspectedEngine engine =
      inspect_engine(flags.file, flags.map, flags.libraries, flags.weights);
  fmt::print("{}", flags.json ? json_text(engine) : engine_text(engine, flags.decisions));
  return kSuccess;
}

constexpr const char* kInspectFooter = R"(Examples:
  anneal inspect model.onnx                inputs, outputs, number of layers by op, weights
  anneal inspect model.onnx --graph        the imported graph as text
  anneal inspect model.engine              inputs, outputs, steps with their kernels, memory
  anneal inspect model.engine --decisions  layers fused, kernels chosen and refused, with reasons
  anneal inspect model.engine --roofline   the least time of each step on this CPU, and advice
  anneal inspect model.engine --json

Exit status: 0 shown; 2 a file is missing or damaged; 3 the model is not supported.)";

}  // namespace

void add_inspect_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("inspect", "Show what is in a model or an engine");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("file", flags->file, "Engine file or ONNX model")
      ->required()
      ->group(often(help::kFiles));
  command->add_flag("--decisions", flags->decisions, "Engine: all decisions of the build")
      ->group(often(help::kFiles));
  command->add_flag("--plan", flags->plan, "Engine: the whole plan as text")
      ->group(often(help::kFiles));
  command->add_flag("--graph", flags->graph, "Model: the whole graph as text")
      ->group(often(help::kFiles));
  command->add_flag("--json", flags->json, "Print JSON, for programs")->group(often(help::kFiles));
  add_roofline_flag(*command, help::kFiles, flags->roofline);
  command->add_flag("!--no-mmap", flags->map, "Read the engine file instead of mapping it")
      ->group(rarely(help::kFiles));
  add_library_flag(*command, flags->libraries);
  add_weights_flag(*command, flags->weights);
  command->footer(kInspectFooter);
  command->callback([&action, flags] {
    action = [flags] {
      check_roofline_flags(flags->roofline);
      return is_engine(flags->file) ? show_engine(*flags) : show_model(*flags);
    };
  });
}

}  // namespace anneal
