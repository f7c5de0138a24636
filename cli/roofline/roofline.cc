#include "anneal/cli/roofline/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace anneal {
namespace {

constexpr double kMicro = 1e6;

void find_bound(const RooflineStep& step, const RooflineCeilings& ceilings, double touched,
                RooflineRow& row) {
  const MemoryLevel& weights = ceilings.level_of(touched);
  const MemoryLevel& activations = ceilings.level_of(step.bytes());
  row.weight_time = kMicro * row.runs * step.weight_bytes / weights.bandwidth();
  row.activation_time = kMicro * row.runs * step.activation_bytes / activations.bandwidth();
  row.arithmetic_time =
      kMicro * row.runs *
      (step.products / ceilings.rate(step.type) + step.others / ceilings.rate(ProductType::kF32));
  const double start = kMicro * row.runs * ceilings.start_seconds;
  if (row.least_time() < start && (row.time == 0 || row.time > 2 * row.least_time())) {
    row.bound = Bound::kOverhead;
    row.bound_text = "overhead";
  } else if (row.arithmetic_time > row.traffic_time()) {
    row.bound = Bound::kArithmetic;
    row.bound_text = fmt::format("{} arithmetic", to_string(step.type));
  } else {
    const MemoryLevel& level = row.weight_time > row.activation_time ? weights : activations;
    row.bound = level.bytes == 0 ? Bound::kMemory : Bound::kCache;
    row.bound_text = level.name;
  }
}

PictureDot dot_of(const Roofline& roofline, const RooflineRow& row) {
  const RooflineStep& step = roofline.step_of(row);
  const double rate = kMicro * row.operations / row.time;
  PictureDot dot{.name = step.name,
                 .about = {},
                 .intensity = row.operations / row.bytes,
                 .rate = rate,
                 .share = roofline.share_of(row),
                 .kind = DotKind::kArithmetic};
  if (row.bound == Bound::kMemory) dot.kind = DotKind::kMemory;
  if (row.bound == Bound::kCache) dot.kind = DotKind::kCache;
  if (row.bound == Bound::kOverhead) dot.kind = DotKind::kOverhead;
  dot.about = fmt::format("{}: {:.1f} us, {:.4g} Gop/s, {:.4g} op/byte, {} ({:.0f} % of the roof)",
                          step.name, row.time, rate / 1e9, dot.intensity, row.bound_text,
                          100 * row.least_time() / row.time);
  return dot;
}

}  // namespace

double Roofline::time() const {
  double sum = 0;
  for (const RooflineRow& row : rows) sum += row.time;
  return sum;
}

double Roofline::least_time() const {
  double sum = 0;
  for (const RooflineRow& row : rows) sum += row.least_time();
  return sum;
}

double Roofline::share_of(const RooflineRow& row) const {
  const double all = is_measured ? time() : least_time();
  return all > 0 ? (is_measured ? row.time : row.least_time()) / all : 0;
}

Roofline make_roofline(RooflinePlan plan, std::optional<RooflineCeilings> ceilings,
                       const ProfileTable* profile) {
  Roofline made{std::move(plan), std::move(ceilings), profile != nullptr, {}};
  const std::vector<TypicalStep> steps = profile ? profile->typical() : std::vector<TypicalStep>();
  for (size_t i = 0; i < made.plan.steps.size(); ++i) {
    const RooflineStep& step = made.plan.steps[i];
    RooflineRow row{.step = i, .runs = step.runs};
    if (profile) {
      if (i >= steps.size() || steps[i].times == 0) continue;
      row.time = steps[i].microseconds;
      // A step outside of bodies runs once for each part of a batch, and its work is of the whole.
      row.runs = step.in_body ? steps[i].times : 1;
    }
    row.bound_text = "-";
    if (step.is_known) {
      row.operations = row.runs * step.operations();
      row.bytes = row.runs * step.bytes();
      if (made.ceilings) find_bound(step, *made.ceilings, made.plan.touched_bytes, row);
    }
    made.rows.push_back(std::move(row));
  }
  return made;
}

std::string roofline_picture(const Roofline& roofline, const std::string& title) {
  RooflinePicture picture;
  picture.title = title;
  double hidden = 0;
  for (const RooflineRow& row : roofline.rows) {
    const RooflineStep& step = roofline.step_of(row);
    if (row.bound == Bound::kNotKnown || row.operations <= 0 || row.bytes <= 0 || row.time <= 0) {
      hidden += roofline.share_of(row);
      continue;
    }
    picture.dots.push_back(dot_of(roofline, row));
    if (step.products > 0 && std::ranges::find(picture.types, step.type) == picture.types.end())
      picture.types.push_back(step.type);
  }
  if (std::ranges::find(picture.types, ProductType::kF32) == picture.types.end())
    picture.types.push_back(ProductType::kF32);
  picture.hidden_share = hidden;
  picture.milliseconds = roofline.time() / 1e3;
  return roofline_svg(*roofline.ceilings, picture);
}

}  // namespace anneal
