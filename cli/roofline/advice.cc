#include "anneal/cli/roofline/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/cli/output/print.h"

namespace anneal {
namespace {

constexpr double kLeastShare = 0.01;       // of the time, for advice about one step
constexpr double kLeastPadding = 0.1;      // of the products
constexpr double kLeastBatchShare = 0.05;  // of the time, for advice about the batch
constexpr double kLeastStartShare = 0.25;  // of the time, for advice about starts
constexpr size_t kMostOfKind = 5;
constexpr int64_t kFarthestBatch = 1 << 20;

// The terms and the results of a product that its instructions take at a time.
struct Granule {
  int64_t depth = 1, columns = 1;
};

// A register has 32-bit lanes, a column each; a lane of products of bf16 has two terms, of bytes
// four with VNNI. Tensor cores take 16 bytes of each side.
Granule granule_of(const RooflinePlan& plan, ProductType type) {
  if (!plan.is_cpu) {
    const int64_t elements = type == ProductType::kInt8                                ? 16
                             : type == ProductType::kF16 || type == ProductType::kBF16 ? 8
                                                                                       : 1;
    return {elements, elements};
  }
  Granule granule{1, plan.isa == "baseline" ? 4 : plan.isa == "avx2" ? 8 : 16};
  if (type == ProductType::kF64) granule.columns /= 2;
  if (type == ProductType::kBF16) granule.depth = 2;
  if (type == ProductType::kInt8) granule.depth = plan.isa == "full" ? 4 : 2;
  return granule;
}

int64_t padded(int64_t size, int64_t granule) { return (size + granule - 1) / granule * granule; }

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string_view of_what(const Roofline& roofline) {
  return roofline.is_measured ? "of the time" : "of the roof's time";
}

bool is_traffic(Bound bound) { return bound == Bound::kMemory || bound == Bound::kCache; }

std::optional<Advice> padding_advice(const Roofline& roofline, const RooflineRow& row) {
  const RooflineStep& step = roofline.step_of(row);
  if (step.depth <= 0 || step.columns <= 1) return std::nullopt;
  const Granule granule = granule_of(roofline.plan, step.type);
  const int64_t depth = padded(step.depth, granule.depth);
  const int64_t columns = padded(step.columns, granule.columns);
  const double waste = 1 - static_cast<double>(step.depth) / static_cast<double>(depth) *
                               static_cast<double>(step.columns) / static_cast<double>(columns);
  if (waste < kLeastPadding) return std::nullopt;
  std::string sizes;
  if (depth != step.depth) sizes = fmt::format("{} input channels as {}", step.depth, depth);
  if (columns != step.columns)
    sizes += fmt::format("{}{} output channels as {}", sizes.empty() ? "" : " and ", step.columns,
                         columns);
  return Advice{
      "pad",
      fmt::format("\"{}\" ({} {}) computes {}: {:.0f} % of its products are padding", step.name,
                  share_text(roofline.share_of(row)), of_what(roofline), sizes, 100 * waste),
      {{"step", step.name},
       {"input_channels", step.depth},
       {"padded_input_channels", depth},
       {"output_channels", step.columns},
       {"padded_output_channels", columns},
       {"padding_share", waste}}};
}

std::optional<Advice> fusion_advice(const Roofline& roofline, const RooflineRow& row) {
  const RooflineStep& step = roofline.step_of(row);
  if (!step.producer || !is_traffic(row.bound)) return std::nullopt;
  const RooflineStep& producer = roofline.plan.steps[*step.producer];
  const double saved_bytes = 2 * row.runs * step.producer_bytes;  // written once, read once
  const double saved =
      row.activation_time * saved_bytes / std::max(row.runs * step.activation_bytes, 1.0);
  std::string text = fmt::format(
      "\"{}\" ({} {}) reads what only \"{}\" writes: fused, the two save {} of traffic, {:.1f} us "
      "at the roof",
      step.name, share_text(roofline.share_of(row)), of_what(roofline), producer.name,
      bytes_text(static_cast<uint64_t>(saved_bytes)), saved);
  if (!step.refusal.empty()) text += fmt::format("; the optimizer: {}", one_line(step.refusal));
  return Advice{"fuse",
                text,
                {{"step", step.name},
                 {"producer", producer.name},
                 {"saved_bytes", saved_bytes},
                 {"saved_roof_microseconds", saved},
                 {"refusal", step.refusal.empty() ? Json(nullptr) : Json(step.refusal)}}};
}

// The times of the steps that wait for their weights more than for all else, at the batch of now.
struct WaitingSteps {
  double weights = 0, activations = 0, arithmetic = 0, share = 0;
  std::vector<std::string> names;  // the longest first
};

WaitingSteps waiting_steps(const Roofline& roofline) {
  WaitingSteps all;
  std::vector<std::pair<double, std::string>> order;
  for (const RooflineRow& row : roofline.rows) {
    const RooflineStep& step = roofline.step_of(row);
    if (step.role != StepRole::kProduct || !is_traffic(row.bound) ||
        row.weight_time <= row.activation_time)
      continue;
    all.weights += row.weight_time;
    all.activations += row.activation_time;
    all.arithmetic += row.arithmetic_time;
    all.share += roofline.share_of(row);
    order.emplace_back(-roofline.share_of(row), step.name);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, std::string>::first);
  for (auto& [share, name] : order) all.names.push_back(std::move(name));
  return all;
}

// Weights are read once for any batch; activations and arithmetic grow with it.
std::optional<Advice> batch_advice(const Roofline& roofline) {
  const WaitingSteps steps = waiting_steps(roofline);
  if (steps.names.empty() || steps.share < kLeastBatchShare) return std::nullopt;
  std::string text =
      fmt::format("{} ({} {}: \"{}\"{}) {} more for weights than for anything else",
                  count_text(steps.names.size(), "step"), share_text(steps.share),
                  of_what(roofline), steps.names[0], steps.names.size() > 1 ? ", ..." : "",
                  steps.names.size() > 1 ? "wait" : "waits");
  const int64_t now = std::max<int64_t>(roofline.plan.batch, 1);
  const double per_row = (steps.arithmetic - steps.activations) / static_cast<double>(now);
  const bool ends = per_row * static_cast<double>(kFarthestBatch) > steps.weights;
  const auto batch = ends ? static_cast<int64_t>(std::ceil(steps.weights / per_row)) : 0;
  const bool is_one = steps.names.size() == 1;
  if (!ends)
    text += fmt::format("; no batch makes {} compute-bound, since activations need the bandwidth",
                        is_one ? "it" : "them");
  else
    text += fmt::format("; {} compute-bound at {}", is_one ? "it turns" : "together they turn",
                        roofline.plan.batch > 0 ? fmt::format("batch {} (now {})", batch, now)
                                                : fmt::format("{} times this batch", batch));
  return Advice{"batch",
                text,
                {{"steps", steps.names},
                 {"share", steps.share},
                 {"batch", roofline.plan.batch > 0 ? Json(now) : Json(nullptr)},
                 {ends && roofline.plan.batch > 0 ? "compute_bound_batch" : "compute_bound_factor",
                  ends ? Json(batch) : Json(nullptr)}}};
}

// The least time of the steps at a batch that many times as large.
double least_time_at(const std::vector<const RooflineRow*>& rows, double factor) {
  double sum = 0;
  for (const RooflineRow* const row : rows)
    sum +=
        std::max(row->weight_time + factor * row->activation_time, factor * row->arithmetic_time);
  return sum;
}

std::optional<Advice> start_advice(const Roofline& roofline) {
  double share = 0, starts = 0;
  std::vector<const RooflineRow*> rows;
  for (const RooflineRow& row : roofline.rows) {
    if (row.bound != Bound::kOverhead) continue;
    rows.push_back(&row);
    share += roofline.share_of(row);
    starts += 1e6 * row.runs * roofline.ceilings->start_seconds;
  }
  if (share < kLeastStartShare || least_time_at(rows, 1) <= 0) return std::nullopt;
  starts *= 1 - 1e-9;  // sums are rounded
  int64_t below = 0, factor = kFarthestBatch;
  while (below + 1 < factor) {
    const int64_t middle = below + (factor - below) / 2;
    (least_time_at(rows, static_cast<double>(middle)) < starts ? below : factor) = middle;
  }
  const bool ends = least_time_at(rows, static_cast<double>(factor)) >= starts;
  const size_t steps = rows.size();
  std::string text = fmt::format("{} ({} {}) {} less work than the start of a step takes",
                                 count_text(steps, "step"), share_text(share), of_what(roofline),
                                 steps == 1 ? "has" : "have");
  if (ends) text += fmt::format("; a batch {} times as large has as much", factor);
  return Advice{
      "start",
      text,
      {{"steps", steps}, {"share", share}, {"factor", ends ? Json(factor) : Json(nullptr)}}};
}

}  // namespace

std::vector<Advice> advice_of(const Roofline& roofline) {
  std::vector<const RooflineRow*> order;
  for (const RooflineRow& row : roofline.rows)
    if (roofline.share_of(row) >= kLeastShare && roofline.step_of(row).is_known)
      order.push_back(&row);
  std::ranges::stable_sort(order, std::greater(),
                           [&](const RooflineRow* row) { return roofline.share_of(*row); });
  std::vector<Advice> all;
  for (const auto make : {padding_advice, fusion_advice}) {
    size_t count = 0;
    for (const RooflineRow* const row : order)
      if (auto advice = count < kMostOfKind ? make(roofline, *row) : std::nullopt) {
        all.push_back(std::move(*advice));
        ++count;
      }
  }
  for (const auto make : {batch_advice, start_advice})
    if (auto advice = make(roofline)) all.push_back(std::move(*advice));
  return all;
}

}  // namespace anneal
