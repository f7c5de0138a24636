#include "report.h"

#include <anneal/anneal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace {

using Json = nlohmann::ordered_json;

std::string now() {
  const std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&time));
  return text;
}

int64_t bytes_of(const std::string& type) { return type == "f32" ? 4 : 2; }

Json json_of(const Measurement& each, double share) {
  return {{"type", each.type},
          {"size", each.size},
          {"device", each.device},
          {"kernel", each.kernel},
          {"data", each.data},
          {"step_kernel", each.step_kernel},
          {"runs", each.runs},
          {"microseconds", each.seconds * 1e6},
          {"fastest_microseconds", each.fastest_seconds * 1e6},
          {"tflops", each.flops() / 1e12},
          {"roofline_share", share},
          {"warnings", each.warnings}};
}

Json json_of(const Count& each) {
  return {{"type", each.type},
          {"size", each.size},
          {"kernel", each.kernel},
          {"step_kernel", each.step_kernel},
          {"bytes",
           {{"copied", each.copied},
            {"global_load", each.global_load},
            {"global_store", each.global_store},
            {"shared", each.shared}}}};
}

Json json_of(const Ceilings& each) {
  Json json = {{"gigabytes_per_second", each.bytes_per_second / 1e9}};
  for (const auto& [type, flops] : each.flops) json["tflops"][type] = flops / 1e12;
  if (each.to_gpu > 0)
    json["copies"] = {{"to_gpu_gigabytes_per_second", each.to_gpu / 1e9},
                      {"from_gpu_gigabytes_per_second", each.from_gpu / 1e9}};
  return json;
}

}  // namespace

double load_average() {
  double load = -1;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

double Measurement::flops() const {
  const auto n = static_cast<double>(size);
  return 2 * n * n * n / seconds;
}

double Measurement::intensity() const {
  return 2 * static_cast<double>(size) / static_cast<double>(3 * bytes_of(type));
}

void Report::add(const Measurement& measured) {
  measurements.push_back(measured);
  double& best = ceilings[measured.device].flops[measured.type];
  best = std::max(best, measured.flops());
}

double Report::share(const Measurement& measured) const {
  const Ceilings& limits = ceilings.at(measured.device);
  const double roof =
      std::min(limits.flops.at(measured.type), limits.bytes_per_second * measured.intensity());
  return roof > 0 ? measured.flops() / roof : 0;
}

std::vector<Crossover> Report::crossovers() const {
  const auto find = [&](const std::string& type, int64_t size, const std::string& device,
                        const std::string& kernel, const std::string& data) {
    const auto found = std::ranges::find_if(measurements, [&](const Measurement& each) {
      return each.type == type && each.size == size && each.device == device &&
             each.kernel == kernel && each.data == data;
    });
    return found == measurements.end() ? nullptr : &*found;
  };
  std::set<std::tuple<std::string, std::string, std::string>> series;
  std::set<int64_t, std::greater<>> sizes;
  for (const Measurement& each : measurements) {
    sizes.insert(each.size);
    if (each.device == "gpu") series.emplace(each.type, each.kernel, each.data);
  }
  std::vector<Crossover> found;
  for (const auto& [type, kernel, data] : series) {
    Crossover crossover{type, kernel, data};
    for (const int64_t size : sizes) {
      const Measurement* const cpu = find(type, size, "cpu", "anneal", "host");
      const Measurement* const gpu = find(type, size, "gpu", kernel, data);
      if (cpu == nullptr || gpu == nullptr) continue;
      if (gpu->seconds >= cpu->seconds) break;
      crossover.size = size;
    }
    found.push_back(crossover);
  }
  return found;
}

void Report::write(const std::string& path) const {
  Json json = {{"sample", "matmul_travel"},
               {"anneal", anneal::version()},
               {"date", now()},
               {"device", device},
               {"measures", device == "emulated" ? "bytes" : "time"},
               {"machines", machines},
               {"seconds", seconds},
               {"load_average", {{"before", load_before}, {"after", load_average()}}},
               {"complete", is_complete}};
  if (device == "emulated")
    json["note"] =
        "The emulated device counts bytes instead of time: it runs a GPU's kernels on a CPU.";
  for (const auto& [name, limits] : ceilings) json["ceilings"][name] = json_of(limits);
  json["measurements"] = Json::array();
  for (const Measurement& each : measurements)
    json["measurements"].push_back(json_of(each, share(each)));
  json["counts"] = Json::array();
  for (const Count& each : counts) json["counts"].push_back(json_of(each));
  json["crossovers"] = Json::array();
  for (const Crossover& each : crossovers())
    json["crossovers"].push_back({{"type", each.type},
                                  {"kernel", each.kernel},
                                  {"data", each.data},
                                  {"size", each.size > 0 ? Json(each.size) : Json(nullptr)}});
  json["skipped"] = skipped;
  json["failed"] = failed;
  if (!(std::ofstream(path + ".new") << json.dump(1) << "\n").flush())
    throw std::runtime_error("cannot write " + path);
  std::filesystem::rename(path + ".new", path);
}
