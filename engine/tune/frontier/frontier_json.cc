// A frontier as JSON, and back; what is read may be anything.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/files/json_keys.h"
#include "anneal/engine/tune/frontier/frontier_forms.h"

namespace anneal {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "anneal frontier 1";
// JSON lacks these numbers, and a score may be infinite.
constexpr std::pair<std::string_view, double> kNotFinite[] = {
    {"inf", std::numeric_limits<double>::infinity()},
    {"-inf", -std::numeric_limits<double>::infinity()},
    {"nan", std::numeric_limits<double>::quiet_NaN()}};

Json score_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json to_json(const MeasuredScore& score) {
  return {{"samples", score.samples},
          {"score", score_json(score.score)},
          {"drop", score_json(score.drop)},
          {"drop_low", score_json(score.drop_low)},
          {"drop_high", score_json(score.drop_high)}};
}

Json to_json(const PrecisionGroup& group) {
  return {{"name", group.name},
          {"layers", group.layers},
          {"why", group.why},
          {"can_be_int8", group.can_be_int8}};
}

Json to_json(const FrontierPoint& point) {
  Json precisions = Json::array();
  for (const Precision precision : point.precisions) precisions.push_back(to_string(precision));
  Json json = {{"name", point.name},
               {"milliseconds", point.milliseconds},
               {"milliseconds_p99", point.milliseconds_p99},
               {"is_modelled", point.is_modelled},
               {"output_error", point.output_error},
               {"search", to_json(point.search)},
               {"confirmed", nullptr},
               {"engine_bytes", point.engine_bytes},
               {"memory_bytes", point.memory_bytes},
               {"is_on_frontier", point.is_on_frontier},
               {"claimed", nullptr},
               {"command", point.command},
               {"precisions", std::move(precisions)}};
  if (point.confirmed) json["confirmed"] = to_json(*point.confirmed);
  if (point.claimed) json["claimed"] = score_json(*point.claimed);
  return json;
}

Json to_json(const KeptHigh& kept) {
  return {{"group", kept.group}, {"precision", to_string(kept.precision)}, {"why", kept.why}};
}

template <class T>
Json list_json(const std::vector<T>& items) {
  Json json = Json::array();
  for (const T& item : items) json.push_back(to_json(item));
  return json;
}

// A value and where it stands, "points[3].search".
struct Value {
  const Json& json;
  std::string path;

  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorCode::kInvalidArgument,
         fmt::format("this is no frontier as anneal writes it: {}{}{}; give the JSON file of a "
                     "tuning run, unchanged",
                     path, path.empty() ? "" : ": ", why));
  }

  std::string text() const {
    if (!json.is_string()) refuse("it is no text");
    return json.get<std::string>();
  }
  bool flag() const {
    if (!json.is_boolean()) refuse("it is neither true nor false");
    return json.get<bool>();
  }
  double number() const {
    if (!json.is_number()) refuse("it is no number");
    const double value = json.get<double>();
    if (!std::isfinite(value)) refuse("it is not finite");
    return value;
  }
  double number_from_zero() const {
    const double value = number();
    if (value < 0) refuse("it is below 0");
    return value;
  }
  double score() const {
    if (!json.is_string()) return number();
    for (const auto& [word, value] : kNotFinite)
      if (json.get_ref<const std::string&>() == word) return value;
    refuse("it is neither a number nor \"inf\", \"-inf\" or \"nan\"");
  }
  template <class Integer>
  Integer count() const {
    // A number that is written with a sign is no count.
    if (!json.is_number_unsigned()) refuse("it is no whole number from 0 on");
    const auto value = json.get<uint64_t>();
    if (!std::in_range<Integer>(value)) refuse(fmt::format("{} is too much", value));
    return static_cast<Integer>(value);
  }
  size_t index(size_t size) const {
    const auto value = count<size_t>();
    if (value >= size) refuse(fmt::format("there is no {} among {}, counted from 0", value, size));
    return value;
  }
  Precision precision() const {
    const std::string word = text();
    for (const Precision precision : kAllPrecisions)
      if (word == to_string(precision)) return precision;
    refuse("it is none of \"f32\", \"f16\", \"bf16\" and \"int8\"");
  }
  template <class Read>
  auto list(const Read& read) const {
    if (!json.is_array()) refuse("it is no list");
    std::vector<decltype(read(*this))> items;
    items.reserve(json.size());
    for (size_t i = 0; i < json.size(); ++i)
      items.push_back(read(Value{json[i], fmt::format("{}[{}]", path, i)}));
    return items;
  }
};

// The fields of an object; other fields are refused.
class Fields {
 public:
  Fields(Value object, std::initializer_list<const char*> names) : object_(std::move(object)) {
    if (!object_.json.is_object()) object_.refuse("it is no object");
    const std::set<std::string_view> known(names.begin(), names.end());
    for (const auto& [key, value] : object_.json.items())
      if (!known.contains(key)) object_.refuse(fmt::format("there is no field \"{}\"", key));
  }
  Value operator[](const char* key) const {
    const auto found = object_.json.find(key);
    if (found == object_.json.end()) object_.refuse(fmt::format("\"{}\" is missing", key));
    return {*found, object_.path.empty() ? key : fmt::format("{}.{}", object_.path, key)};
  }

 private:
  const Value object_;
};

std::string read_text(const Value& value) { return value.text(); }

MeasuredScore read_score(const Value& value) {
  const Fields fields(value, {"samples", "score", "drop", "drop_low", "drop_high"});
  return {.samples = fields["samples"].count<int64_t>(),
          .score = fields["score"].score(),
          .drop = fields["drop"].score(),
          .drop_low = fields["drop_low"].score(),
          .drop_high = fields["drop_high"].score()};
}

PrecisionGroup read_group(const Value& value) {
  const Fields fields(value, {"name", "layers", "why", "can_be_int8"});
  return {.name = fields["name"].text(),
          .layers = fields["layers"].list(read_text),
          .why = fields["why"].text(),
          .can_be_int8 = fields["can_be_int8"].flag()};
}

FrontierPoint read_point(const Value& value, size_t groups) {
  const Fields fields(value, {"name", "milliseconds", "milliseconds_p99", "is_modelled",
                              "output_error", "search", "confirmed", "engine_bytes", "memory_bytes",
                              "is_on_frontier", "claimed", "command", "precisions"});
  FrontierPoint point;
  point.name = fields["name"].text();
  point.milliseconds = fields["milliseconds"].number_from_zero();
  point.milliseconds_p99 = fields["milliseconds_p99"].number_from_zero();
  point.is_modelled = fields["is_modelled"].flag();
  point.output_error = fields["output_error"].number_from_zero();
  point.search = read_score(fields["search"]);
  if (const Value confirmed = fields["confirmed"]; !confirmed.json.is_null())
    point.confirmed = read_score(confirmed);
  point.engine_bytes = fields["engine_bytes"].count<uint64_t>();
  point.memory_bytes = fields["memory_bytes"].count<uint64_t>();
  point.is_on_frontier = fields["is_on_frontier"].flag();
  if (const Value claimed = fields["claimed"]; !claimed.json.is_null())
    point.claimed = claimed.score();
  point.command = fields["command"].text();
  const Value precisions = fields["precisions"];
  point.precisions = precisions.list([](const Value& each) { return each.precision(); });
  if (point.precisions.size() != groups)
    precisions.refuse(fmt::format("there are {} for {} groups", point.precisions.size(), groups));
  return point;
}

KeptHigh read_kept(const Value& value, size_t groups) {
  const Fields fields(value, {"group", "precision", "why"});
  return {.group = fields["group"].index(groups),
          .precision = fields["precision"].precision(),
          .why = fields["why"].text()};
}

}  // namespace

std::string frontier_json(const Frontier& frontier) {
  const Json json = {{"format", kFormat},
                     {"model", frontier.model},
                     {"target", frontier.target},
                     {"threads", frontier.threads},
                     {"metric", frontier.metric},
                     {"unit", frontier.unit},
                     {"budget", frontier.budget},
                     {"budget_is_score", frontier.budget_is_score},
                     {"symmetric", frontier.symmetric},
                     {"chosen", frontier.chosen},
                     {"turned_down", frontier.turned_down},
                     {"points", list_json(frontier.points)},
                     {"groups", list_json(frontier.groups)},
                     {"kept_high", list_json(frontier.kept_high)},
                     {"warnings", frontier.warnings},
                     {"calibration", frontier.calibration}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Frontier parse_frontier(std::string_view text) {
  return at_entry([&] {
    require_few_keys(text);
    Json json;
    try {
      json = Json::parse(text);
    } catch (const Json::exception& error) {
      Value{json, {}}.refuse(fmt::format("it is no JSON: {}", error.what()));
    }
    const Fields fields(
        {json, {}}, {"format", "model", "target", "threads", "metric", "unit", "budget",
                     "budget_is_score", "symmetric", "chosen", "turned_down", "points", "groups",
                     "kept_high", "warnings", "calibration"});
    if (const Value format = fields["format"]; format.text() != kFormat)
      format.refuse(fmt::format("it is not \"{}\"", kFormat));
    Frontier frontier;
    frontier.model = fields["model"].text();
    frontier.target = fields["target"].text();
    frontier.threads = fields["threads"].count<int>();
    frontier.metric = fields["metric"].text();
    frontier.unit = fields["unit"].text();
    frontier.budget = fields["budget"].number();
    frontier.budget_is_score = fields["budget_is_score"].flag();
    frontier.symmetric = fields["symmetric"].flag();
    frontier.turned_down = fields["turned_down"].count<int>();
    frontier.groups = fields["groups"].list(read_group);
    const size_t groups = frontier.groups.size();
    const Value points = fields["points"];
    frontier.points = points.list([&](const Value& each) { return read_point(each, groups); });
    std::set<std::string_view> names;
    for (const FrontierPoint& point : frontier.points)
      if (!names.insert(point.name).second)
        points.refuse(fmt::format("several are called \"{}\"", point.name));
    frontier.chosen = fields["chosen"].index(frontier.points.size());
    frontier.kept_high =
        fields["kept_high"].list([&](const Value& each) { return read_kept(each, groups); });
    frontier.warnings = fields["warnings"].list(read_text);
    frontier.calibration = fields["calibration"].text();
    return frontier;
  });
}

}  // namespace anneal
