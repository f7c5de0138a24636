// `anneal passes`: the optimizer's pipeline, in order.
#include <fmt/format.h>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/print.h"
#include "anneal/optimizer/pass.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {

int list_all_passes() {
  Rows rows;
  for (const Pass& pass : default_pipeline())
    rows.push_back({std::string(pass.name), pass.exact ? "exact" : "changes numerics",
                    std::string(pass.summary)});
  fmt::print("{}", table_text(rows, {false, false, false}));
  return kSuccess;
}

void add_passes_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("passes", "List the optimizer's passes, in order");
  command->footer("Leave one out of a build with: anneal build model.onnx --skip-pass NAME");
  command->callback([&action] { action = list_all_passes; });
}

}  // namespace anneal
