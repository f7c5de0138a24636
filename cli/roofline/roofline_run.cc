#include "anneal/cli/roofline/roofline_run.h"

#include <utility>

#include "anneal/cli/flags/help.h"
#include "anneal/cli/measure/process_facts.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/picture_file.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

RooflineCeilings cpu_ceilings(const std::string& isa, int threads, bool probe) {
  if (!probe)
    if (auto kept = kept_ceilings(isa, threads); kept && !kept->was_busy) return *std::move(kept);
  const ProcessorTime before = processor_time();
  const double waited = waited_seconds();
  const Stopwatch watch;
  RooflineCeilings measured = probe_cpu(isa, threads);
  const double seconds = watch.seconds();
  measured.was_busy =
      load_between(before, processor_time(), seconds, (waited_seconds() - waited) / seconds).busy();
  keep_ceilings(measured);
  return measured;
}

}  // namespace

void add_roofline_flag(CLI::App& command, std::string_view heading, RooflineFlags& flags) {
  command
      .add_flag("--roofline", flags.wanted, "What bounds each step, and advice (docs/roofline.md)")
      ->group(often(heading));
  command.add_flag("--probe", flags.probe, "--roofline: measure the CPU's ceilings again")
      ->group(rarely(heading));
}

void check_roofline_flags(const RooflineFlags& flags) {
  if (!flags.wanted && flags.probe) refuse_argument("--probe is for a roofline: add --roofline");
}

Roofline measured_roofline(const Engine& engine, const ExecutionContext& context,
                           const std::vector<Tensor>& inputs, int threads,
                           const ProfileTable& profile, const RooflineFlags& flags) {
  std::vector<Dims> dims;
  for (const Tensor& input : inputs) dims.push_back(input.dims());
  RooflinePlan plan = roofline_plan(engine, context, dims);
  RooflineCeilings ceilings = plan.is_cpu
                                  ? cpu_ceilings(plan.isa, thread_count(threads), flags.probe)
                                  : card_ceilings(engine);
  const bool has_times = !plan.is_emulated;
  return make_roofline(std::move(plan), std::move(ceilings), has_times ? &profile : nullptr);
}

std::vector<Roofline> planned_rooflines(const std::string& path, bool map,
                                        const std::vector<std::string>& libraries,
                                        const std::string& weights, const RooflineFlags& flags) {
  std::vector<Roofline> rooflines;
  bool probe = flags.probe;
  for (RooflinePlan& plan : roofline_plans(path, map, libraries, weights)) {
    std::optional<RooflineCeilings> ceilings;
    if (!plan.is_cpu)
      ceilings = card_ceilings(plan.target);
    else if (!plan.isa.empty())
      ceilings = cpu_ceilings(plan.isa, thread_count(0), std::exchange(probe, false));
    rooflines.push_back(make_roofline(std::move(plan), std::move(ceilings), nullptr));
  }
  return rooflines;
}

void write_roofline_picture(const Roofline& roofline, const std::string& title,
                            const RooflineFlags& flags) {
  if (flags.picture.empty()) return;
  if (!roofline.is_measured)
    refuse_argument(
        "--picture: an emulated device has no times of a card's; run on a card or on the CPU");
  write_picture(flags.picture, roofline_picture(roofline, title));
}

}  // namespace anneal
