// `anneal inspect`: what is in a model or an engine.
#include <fmt/format.h>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/model/inspect_text.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/printable.h"

namespace anneal {
namespace {

struct InspectFlags {
  std::string file;
  bool graph = false, plan = false, decisions = false, json = false, map = true;
};

int show_model(const InspectFlags& flags) {
  if (flags.plan || flags.decisions)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is a model; --plan and --decisions are of engines: anneal build {}",
                     flags.file, flags.file));
  if (flags.graph && !flags.json) {
    fmt::print("{}", printable(graph_text_of(flags.file), LineEnds::kKept));
    return kSuccess;
  }
  const InspectedModel model = inspect_model(flags.file);
  fmt::print("{}", flags.json ? json_text(model_json(model)) : model_text(model));
  return kSuccess;
}

int show_engine(const InspectFlags& flags) {
  if (flags.graph)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is an engine, which holds plans instead of a graph; use --plan",
                     flags.file));
  if (flags.plan && !flags.json) {
    fmt::print("{}", printable(plans_text_of(flags.file, flags.map), LineEnds::kKept));
    return kSuccess;
  }
  const InspectedEngine engine = inspect_engine(flags.file, flags.map);
  fmt::print("{}",
             flags.json ? json_text(engine_json(engine)) : engine_text(engine, flags.decisions));
  return kSuccess;
}

constexpr const char* kInspectFooter = R"(Examples:
  anneal inspect model.onnx                inputs, outputs, layers by kind, weights
  anneal inspect model.onnx --graph        the imported graph as text
  anneal inspect model.engine              inputs, outputs, steps with their kernels, memory
  anneal inspect model.engine --decisions  what was fused, chosen and refused, and why
  anneal inspect model.engine --json

Exit status: 0 shown; 2 a file that is missing or damaged; 3 a model that Anneal does not support.)";

}  // namespace

void add_inspect_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("inspect", "Show what is in a model or an engine");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("file", flags->file, "An ONNX model or an engine file")
      ->type_name("MODEL.onnx|MODEL.engine")
      ->required();
  command->add_flag("--graph", flags->graph, "Of a model: the whole graph as text");
  command->add_flag("--plan", flags->plan, "Of an engine: the whole plan as text");
  command->add_flag("--decisions", flags->decisions, "Of an engine: every recorded decision");
  command->add_flag("--json", flags->json, "As JSON, for programs");
  command->add_flag("!--no-mmap", flags->map, "Read an engine file instead of mapping it");
  command->footer(kInspectFooter);
  command->callback([&action, flags] {
    action = [flags] { return is_engine(flags->file) ? show_engine(*flags) : show_model(*flags); };
  });
}

}  // namespace anneal
