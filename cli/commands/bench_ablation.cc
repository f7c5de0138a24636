// `anneal bench --ablation`: the gain of each family of optimizations on a model.
#include <fmt/format.h>

#include "anneal/cli/ablation/run_ablation.h"
#include "anneal/cli/commands/commands.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/picture_file.h"
#include "anneal/cli/output/progress.h"

namespace anneal {

int bench_ablation(const AblationOptions& options) {
  check_output_file(options.json);
  check_picture_path(options.picture, "--picture");
  check_different_files({{"--json", options.json}, {"--picture", options.picture}});
  if (!options.source.build.timing_cache.empty())
    check_output_file(options.source.build.timing_cache);
  ProgressLine progress(options.verbose);
  const Ablation ablation =
      run_ablation(options, [&](std::string_view what) { progress.say(what); });
  progress.clear();
  if (!options.json.empty()) write_json(options.json, ablation_json(ablation));
  if (!options.picture.empty()) write_picture(options.picture, ablation_svg(ablation));
  fmt::print("{}", ablation_text(ablation));
  return kSuccess;
}

}  // namespace anneal
