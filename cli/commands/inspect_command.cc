// `anneal inspect`: what is in a model or an engine.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/model/inspect_text.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/printable.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"

namespace anneal {
namespace {

struct InspectFlags {
  std::string file;
  bool graph = false, plan = false, decisions = false, json = false, map = true;
};

int inspect_model(const InspectFlags& flags) {
  if (flags.plan || flags.decisions)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is a model; --plan and --decisions are of engines: anneal build {}",
                     flags.file, flags.file));
  const ImportResult imported = import_file(flags.file);
  if (flags.json) {
    fmt::print("{}", json_text(model_json(imported)));
  } else if (flags.graph) {
    fmt::print("{}", printable(to_string(imported.graph), LineEnds::kKept));
  } else {
    fmt::print("{}", model_text(imported));
  }
  return kSuccess;
}

int inspect_engine(const InspectFlags& flags) {
  if (flags.graph)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is an engine, which holds plans instead of a graph; use --plan",
                     flags.file));
  const EngineFile file = read_engine_file(flags.file, {.map = flags.map});
  if (flags.json) {
    fmt::print("{}", json_text(engine_json(file)));
  } else if (flags.plan) {
    for (const Plan& plan : file.plans)
      fmt::print("{}", printable(to_string(plan), LineEnds::kKept));
  } else {
    fmt::print("{}", engine_text(file, flags.decisions));
  }
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
    action = [flags] {
      return is_engine(flags->file) ? inspect_engine(*flags) : inspect_model(*flags);
    };
  });
}

}  // namespace anneal
