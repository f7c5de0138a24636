#include "results.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

namespace {

using Json = nlohmann::ordered_json;

double rounded(double seconds) {
  return static_cast<double>(static_cast<int64_t>(seconds * 1e6 + 0.5)) / 1e6;
}

Json json_of(const Lane& lane) {
  Json intervals = Json::array();
  for (const Interval& each : lane.intervals)
    intervals.push_back({kStageNames[static_cast<int>(each.stage)], rounded(each.start),
                         rounded(each.end), each.batch});
  return {{"name", lane.name}, {"intervals", std::move(intervals)}};
}

Json json_of(const ModeResult& result, const Results& results) {
  Json json = {{"name", kModeNames[static_cast<int>(result.mode)]},
               {"began", result.began},
               {"seconds", result.seconds},
               {"pictures_per_second",
                static_cast<double>(results.batch * results.batches) / result.seconds},
               {"mean_cores_busy", result.mean_cores_busy},
               {"bottleneck", bottleneck_text(result, results.threads)}};
  for (const Stage stage : {Stage::kDecode, Stage::kCopy, Stage::kCompute})
    json["busy"][kStageNames[static_cast<int>(stage)]] = busy_share(result, stage, results.threads);
  json["lanes"] = Json::array();
  for (const Lane& lane : result.lanes) json["lanes"].push_back(json_of(lane));
  json["cores_busy"] = Json::array();
  for (const CoresBusy& each : result.cores_busy)
    json["cores_busy"].push_back({rounded(each.time), rounded(each.share)});
  return json;
}

}  // namespace

void write_json(const Results& results, const std::string& path) {
  Json json = {{"model", results.model},    {"data", results.data},
               {"device", results.device},  {"cores", std::thread::hardware_concurrency()},
               {"batch", results.batch},    {"batches", results.batches},
               {"threads", results.threads}};
  json["modes"] = Json::array();
  for (const ModeResult& result : results.modes) json["modes"].push_back(json_of(result, results));
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!(std::ofstream(path + ".new") << text << "\n").flush())
    throw std::runtime_error("cannot write " + path);
  std::filesystem::rename(path + ".new", path);
}
