// Accuracy against latency: what each mix of precisions costs and buys, as tuning measured it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/optimizer/precision.h"

namespace anneal {

// Layers that are computed in one precision.
struct PrecisionGroup {
  std::string name;                 // "conv_3"; of several layers the first, "conv_3 and 2 more"
  std::vector<std::string> layers;  // by the names that --layer-precision knows, in order
  std::string why;                  // why they belong together; empty: there is one
  bool can_be_int8 = false;         // some of them can
};

// What a metric found on some samples, against the model in f32.
struct MeasuredScore {
  int64_t samples = 0;
  double score = 0;
  double drop = 0, drop_low = 0, drop_high = 0;  // 95 %
};

struct FrontierPoint {
  std::string name;                   // "f32", "int8", "mix-3"
  std::vector<Precision> precisions;  // of the groups
  // Of all float outputs, on the samples that tuning chose by: the share of the mean square of what
  // the model in f32 gives that the difference from it is. 0: none.
  double output_error = 0;
  MeasuredScore search;                           // on the samples that tuning chose by
  std::optional<MeasuredScore> confirmed;         // on those it had not seen
  double milliseconds = 0, milliseconds_p99 = 0;  // of one inference
  bool is_modelled = false;                     // latency: not measured, for the device is not here
  uint64_t engine_bytes = 0, memory_bytes = 0;  // of the file; of one context
  bool is_on_frontier = false;                  // none is both faster and less damaged
  // What it and all that are slower reach: claim_scores(). Nothing off the frontier.
  std::optional<double> claimed{};
  std::string command{};  // that builds it again
};

// A group that is not in the lowest precision, and why.
struct KeptHigh {
  size_t group = 0;
  Precision precision = Precision::kF32;
  std::string why;
};

struct Frontier {
  std::string model, target, metric, unit;
  double budget = 0;  // the most drop; or the least score of a metric without drops
  bool budget_is_score = false;
  int threads = 0;
  std::vector<PrecisionGroup> groups;
  std::vector<FrontierPoint> points;  // from the fastest on
  size_t chosen = 0;                  // of points
  // Faster mixes within the budget on the samples searched with, that those which confirm turned
  // down: with any, these chose, too.
  int turned_down = 0;
  std::vector<KeptHigh> kept_high;  // of the chosen one
  std::vector<std::string> warnings;
  bool symmetric = false;   // zero points are 0
  std::string calibration;  // the table, as text; empty: none was wanted
};

// Whether every point has a confirmed score: then those are compared, else those searched with.
bool is_all_confirmed(const Frontier& frontier);
// Sets what is claimed of the score of each point on the frontier: the least of its own and of
// those of slower points on it, so that from point to point no claim falls, and none is above what
// was measured. NaN does not count.
void claim_scores(Frontier& frontier);
// What the samples that confirm were: "held out from the search", or "which turned 2 faster mixes
// down".
std::string what_confirms(const Frontier& frontier);
// The point with every group in f32; null: there is none.
const FrontierPoint* f32_point(const Frontier& frontier);
// "points" of scores in percent, else the unit itself.
std::string_view drop_unit(const Frontier& frontier);
// Of the chosen point: "mix-3: 2.1x as fast as f32", and "loses 0.4 points (95 %: -0.8 to 1.6)", by
// its confirmed score if it has one. Empty: nothing is known of that, or there are no points.
struct FrontierSummary {
  std::string speed, loss;
};
FrontierSummary summarize(const Frontier& frontier);

// For people, a line per point; for spreadsheets (what is not known is an empty field); for
// programs, and `--mix FILE:POINT`. JSON has every field; text that is not UTF-8 loses those bytes.
// REQUIRES: groups that kept_high names; for JSON, numbers that are finite, but for scores.
std::string frontier_table(const Frontier& frontier);
std::string frontier_csv(const Frontier& frontier);
std::string frontier_json(const Frontier& frontier);
// What frontier_json() wrote. Fails with kInvalidArgument on anything else, naming the field.
Frontier parse_frontier(std::string_view json);
// An SVG of latency (across) against score (up): points with their intervals and names, the
// frontier as a line, the budget as a shade, the chosen point marked. Scores are the confirmed ones
// where all points have one. Points without a score are named below; those far below the others, or
// with infinite scores, are at the edge.
std::string frontier_svg(const Frontier& frontier);

}  // namespace anneal
