#include "results.h"

#include <anneal/core/version.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace {

// The shortest digits that read back as the same number.
template <class T>
std::string number(T value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') json += '\\';
    if (static_cast<unsigned char>(each) >= ' ') json += each;
  }
  return json + "\"";
}

template <class Range, class Text>
std::string list(const Range& range, Text text) {
  std::string json = "[";
  for (const auto& each : range) json += (json.size() == 1 ? "" : ",") + text(each);
  return json + "]";
}

std::string list(const std::vector<float>& values) { return list(values, number<float>); }

std::string times_of(const std::vector<BatchTime>& times, double BatchTime::*which) {
  return list(times, [&](const BatchTime& each) { return number(each.*which); });
}

std::string object(const std::optional<Crossover>& crossover) {
  if (!crossover) return "null";
  return "{\"cpu_wins\": " + number(crossover->cpu_wins) +
         ", \"gpu_wins\": " + number(crossover->gpu_wins) +
         ", \"points\": " + number(crossover->points) + "}";
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&seconds));
  return text;
}

std::string to_json(const Results& results) {
  std::string json = "{\n";
  const auto field = [&](const char* name, const std::string& value) {
    json += (json.size() == 2 ? "\"" : ",\n\"") + std::string(name) + "\": " + value;
  };
  field("date", quoted(now()));
  field("version", quoted(std::string(anneal::version())));
  field("machine", quoted(results.machine));
  field("cores", number(results.cores));
  field("device", quoted(results.device));
  field("cpu_name", quoted(results.cpu_name));
  field("gpu_name", quoted(results.gpu_name));
  field("side", number(results.side));
  field("range", number(results.range));
  field("largest_difference", number(results.largest_difference));
  field("rms_error", number(results.rms_error));
  field("largest_error", number(results.largest_error));
  field("points", list(results.times, [](const BatchTime& each) { return number(each.points); }));
  field("cpu_us", times_of(results.times, &BatchTime::cpu));
  field("gpu_us", times_of(results.times, &BatchTime::gpu));
  field("gpu_resident_us", times_of(results.times, &BatchTime::gpu_resident));
  field("crossover", object(results.crossover));
  field("crossover_resident", object(results.crossover_resident));
  field("truth", list(results.truth));
  field("cpu", list(results.cpu));
  field("gpu", list(results.gpu));
  return json + "\n}\n";
}

}  // namespace

std::optional<Crossover> find_crossover(const std::vector<BatchTime>& times,
                                        double BatchTime::*gpu) {
  size_t first = times.size();
  while (first > 0 && times[first - 1].*gpu < times[first - 1].cpu) --first;
  if (first == 0 || first == times.size()) return std::nullopt;
  const BatchTime &below = times[first - 1], &above = times[first];
  // Straight lines between measured sizes on logarithmic axes, as the picture draws them.
  const double before = std::log(below.*gpu / below.cpu), after = std::log(above.*gpu / above.cpu);
  const double share = before / (before - after);
  const double ratio = static_cast<double>(above.points) / static_cast<double>(below.points);
  return Crossover{below.points, above.points,
                   static_cast<double>(below.points) * std::pow(ratio, share)};
}

void write_json(const Results& results, const std::string& path) {
  if (!(std::ofstream(path + ".new") << to_json(results)).flush())
    throw std::runtime_error("cannot write " + path);
  std::filesystem::rename(path + ".new", path);
}
