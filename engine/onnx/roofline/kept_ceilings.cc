// Ceilings of this CPU in Anneal's cache folder, as JSON.
#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "anneal/core/error.h"
#include "anneal/core/file.h"
#include "anneal/engine/onnx/roofline/ceilings.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cuda/code/jit.h"

namespace anneal {
namespace {

using CeilingsJson = nlohmann::ordered_json;

constexpr int kProbeVersion = 1;  // of the measurement and of the file

constexpr ProductType kProductTypes[] = {ProductType::kF32, ProductType::kF64, ProductType::kF16,
                                         ProductType::kBF16, ProductType::kInt8};

CeilingsJson ceilings_json(const RooflineCeilings& ceilings) {
  CeilingsJson json = {{"version", kProbeVersion},
                       {"source", ceilings.date.empty() ? "published" : "measured"},
                       {"device", ceilings.device}};
  if (!ceilings.date.empty()) {
    json["isa"] = ceilings.isa;
    json["threads"] = ceilings.threads;
    json["date"] = ceilings.date;
    json["was_busy"] = ceilings.was_busy;
  }
  json["start_seconds"] = ceilings.start_seconds;
  for (const ProductRate& rate : ceilings.rates)
    json["operations_per_second"][std::string(to_string(rate.type))] = rate.per_second;
  for (const MemoryLevel& level : ceilings.levels)
    json["levels"].push_back({{"name", level.name},
                              {"bytes", level.bytes},
                              {"read_bytes_per_second", level.read},
                              {"copy_bytes_per_second", level.copy}});
  return json;
}

// Fails as the JSON library does where a field is missing or of another type.
RooflineCeilings read_ceilings(const CeilingsJson& json) {
  RooflineCeilings read;
  read.device = json.at("device");
  read.isa = json.at("isa");
  read.threads = json.at("threads");
  read.date = json.at("date");
  read.was_busy = json.at("was_busy");
  read.start_seconds = json.at("start_seconds");
  for (const ProductType type : kProductTypes)
    if (const auto found = json.at("operations_per_second").find(std::string(to_string(type)));
        found != json.at("operations_per_second").end())
      read.rates.push_back({type, found->get<double>()});
  for (const CeilingsJson& level : json.at("levels"))
    read.levels.push_back({level.at("name"), level.at("bytes"), level.at("read_bytes_per_second"),
                           level.at("copy_bytes_per_second")});
  return read;
}

bool are_usable(const RooflineCeilings& ceilings) {
  if (ceilings.levels.empty() || ceilings.levels.back().bytes != 0) return false;
  if (!(ceilings.rate(ProductType::kF32) > 0) || !(ceilings.start_seconds >= 0)) return false;
  for (const ProductRate& rate : ceilings.rates)
    if (!(rate.per_second > 0)) return false;
  for (const MemoryLevel& level : ceilings.levels)
    if (!(level.bandwidth() > 0)) return false;
  return true;
}

}  // namespace

std::string ceilings_path(const std::string& isa, int threads) {
  const std::string folder = cuda::cache_folder();
  if (folder.empty()) return {};
  std::string name = fmt::format("{} {} {}", cpu::processor_model(), isa, threads);
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return fmt::format("{}/roofline/{}.json", folder, name);
}

std::optional<RooflineCeilings> kept_ceilings(const std::string& isa, int threads) {
  const std::string path = ceilings_path(isa, threads);
  if (path.empty()) return std::nullopt;
  try {
    const FileBytes file = read_file(path);
    const auto* const text = reinterpret_cast<const char*>(file.bytes.data());
    const CeilingsJson json = CeilingsJson::parse(text, text + file.bytes.size());
    if (json.at("version") != kProbeVersion) return std::nullopt;
    RooflineCeilings kept = read_ceilings(json);
    const bool fits = kept.device == cpu::processor_model() && kept.isa == isa &&
                      kept.threads == threads && are_usable(kept);
    return fits ? std::optional(std::move(kept)) : std::nullopt;
  } catch (const Error&) {
  } catch (const nlohmann::ordered_json::exception&) {
  }
  return std::nullopt;
}

std::string ceilings_text_as_json(const RooflineCeilings& ceilings) {
  return ceilings_json(ceilings).dump(2) + "\n";
}

void keep_ceilings(const RooflineCeilings& ceilings) {
  const std::string path = ceilings_path(ceilings.isa, ceilings.threads);
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string text = ceilings_text_as_json(ceilings);
  try {
    write_file_atomically(path, std::as_bytes(std::span(text)));
  } catch (const Error&) {
  }
}

}  // namespace anneal
