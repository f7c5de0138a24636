#include "anneal/cli/measure/access_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/cli/output/print.h"

namespace anneal {
namespace {

constexpr size_t kMostText = 64;     // of a line
constexpr int64_t kSmallPart = 100;  // what a line has less than one such part of is left out

std::string per(int64_t count, int64_t of) {
  return of == 0 ? "" : fmt::format("{:.1f}", static_cast<double>(count) / static_cast<double>(of));
}

// "a warp: 12 global load, 8 mma".
std::string operations_text(const FunctionCounts& function) {
  std::map<AccessKind, int64_t> requests;
  for (const SiteCounts& site : function.sites) requests[site.kind] += site.requests;
  std::string text;
  for (const auto& [kind, count] : requests)
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ",
                    number_text(static_cast<double>(count) / function.warps, 4), to_string(kind));
  return text;
}

std::string place_text(const SiteCounts& site) {
  return site.file.empty() ? fmt::format("{}", site.line)
                           : fmt::format("{}:{}", site.file, site.line);
}

std::string shortened(const std::string& text) {
  return text.size() <= kMostText ? text : text.substr(0, kMostText - 3) + "...";
}

}  // namespace

std::string access_text(const std::vector<FunctionCounts>& functions, int runs) {
  std::string text;
  for (const FunctionCounts& function : functions) {
    int64_t sectors = 0, wavefronts = 0;
    for (const SiteCounts& site : function.sites) {
      sectors += site.sectors;
      wavefronts += site.wavefronts;
    }
    Rows rows = {{"", "line", "kind", "memory", "bytes", "requests", "sectors", "ideal", "conflict",
                  "text"}};
    for (const SiteCounts& site : function.sites) {
      const bool matters = site.is_wasteful() ||
                           (is_global(site.kind) && site.sectors * kSmallPart >= sectors) ||
                           (is_shared(site.kind) && site.wavefronts * kSmallPart >= wavefronts);
      if (!matters) continue;
      rows.push_back({site.is_wasteful() ? "*" : "", place_text(site),
                      std::string(to_string(site.kind)), site.memory,
                      fmt::format("{}", site.lane_bytes), fmt::format("{}", site.requests / runs),
                      is_global(site.kind) ? per(site.sectors, site.requests) : "",
                      is_global(site.kind) ? per(site.ideal_sectors, site.requests) : "",
                      per(site.wavefronts, site.ideal_wavefronts), shortened(site.text)});
    }
    text += fmt::format("{}: {} of {} warps; each: {}\n", function.function,
                        count_text(static_cast<uint64_t>(function.launches / runs), "launch"),
                        function.warps / runs, operations_text(function));
    text += table_text(rows, {false, false, false, false, true, true, true, true, true, false});
  }
  return text;
}

Json access_json(const std::vector<FunctionCounts>& functions, int runs) {
  Json all = Json::array();
  for (const FunctionCounts& function : functions) {
    Json sites = Json::array();
    for (const SiteCounts& site : function.sites) {
      Json one = {{"file", site.file},
                  {"line", site.line},
                  {"text", site.text},
                  {"kind", to_string(site.kind)},
                  {"memory", site.memory},
                  {"lane_bytes", site.lane_bytes},
                  {"requests", site.requests / runs},
                  {"active_lanes", site.active_lanes / runs}};
      if (is_global(site.kind)) {
        one["sectors"] = site.sectors / runs;
        one["ideal_sectors"] = site.ideal_sectors / runs;
        one["lines"] = site.lines / runs;
      }
      if (is_shared(site.kind)) {
        one["wavefronts"] = site.wavefronts / runs;
        one["ideal_wavefronts"] = site.ideal_wavefronts / runs;
      }
      one["wasteful"] = site.is_wasteful();
      sites.push_back(std::move(one));
    }
    all.push_back({{"function", function.function},
                   {"launches", function.launches / runs},
                   {"warps", function.warps / runs},
                   {"sites", std::move(sites)}});
  }
  return all;
}

}  // namespace anneal
