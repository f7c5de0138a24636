// Accuracy against latency of mixes of precisions, as tuning measured them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/optimizer/precision.h"

namespace anneal {

// Layers that always have the same precision.
struct PrecisionGroup {
  std::string name;                 // "conv_3"; with several layers: "conv_3 and 2 more"
  std::vector<std::string> layers;  // their names for --layer-precision, in order
  std::string why;                  // the reason for the group; empty: a single layer
  bool can_be_int8 = false;         // true if a layer of the group can
};

// The score of a metric on some samples, against the model in f32.
struct MeasuredScore {
  int64_t samples = 0;
  double score = 0;
  double drop = 0, drop_low = 0, drop_high = 0;  // 95 %
};

struct FrontierPoint {
  std::string name;                   // "f32", "int8", "mix-3"
  std::vector<Precision> precisions;  // of the groups
  // Mean square of the float outputs' differences from f32 (search samples), over that of f32.
  double output_error = 0;
  MeasuredScore search;                           // on the search samples
  std::optional<MeasuredScore> confirmed;         // on the held-out samples
  double milliseconds = 0, milliseconds_p99 = 0;  // of one inference
  bool is_modelled = false;                       // latency: not measured, the device is absent
  uint64_t engine_bytes = 0, memory_bytes = 0;    // of the file; of one context
  bool is_on_frontier = false;                    // no point is both faster and more accurate
  // The score that this point and all slower ones on the frontier reach; empty off the frontier.
  std::optional<double> claimed{};
  std::string command{};  // the command that builds this point
};

// A group that is not in the lowest precision, and why.
struct KeptHigh {
  size_t group = 0;
  Precision precision = Precision::kF32;
  std::string why;
};

struct Frontier {
  std::string model, target, metric, unit;
  double budget = 0;  // largest drop; for a metric without drops, the minimum score
  bool budget_is_score = false;
  int threads = 0;
  std::vector<PrecisionGroup> groups;
  std::vector<FrontierPoint> points;  // from the fastest on
  size_t chosen = 0;                  // index into points
  // Faster mixes that failed confirmation. Above 0, held-out samples also influenced the choice.
  int turned_down = 0;
  std::vector<KeptHigh> kept_high;  // of the chosen point
  std::vector<std::string> warnings;
  bool symmetric = false;   // zero points are 0
  std::string calibration;  // the table, as text; empty: no point needs one
};

// The chosen point: "mix-3: 2.1x as fast as f32", and "loses 0.4 points (95 %: -0.8 to 1.6)", by
// its confirmed score if it has one. Empty if unknown, or if there are no points.
struct FrontierSummary {
  std::string speed, loss;
};
FrontierSummary summarize(const Frontier& frontier);

// The options with which build_engine() builds a point of the frontier.
PrecisionOptions precision_of(const Frontier& frontier, const FrontierPoint& point);

// kTable: for people, a line per point. kCsv: for spreadsheets; unknown numbers are empty fields.
// kJson: every field, for programs and for `--mix FILE:POINT`; text that is not UTF-8 loses those
// bytes. kSvg: a picture of latency (across) against score (up). REQUIRES: kept_high
// names existing groups; for kJson, all numbers but scores are finite
enum class FrontierForm { kTable, kCsv, kJson, kSvg };
std::string to_string(const Frontier& frontier, FrontierForm form);
// What FrontierForm::kJson wrote. Fails with kInvalidArgument on anything else, naming the field.
Frontier parse_frontier(std::string_view json);

}  // namespace anneal
