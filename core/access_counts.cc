#include "anneal/core/access_counts.h"

#include <algorithm>
#include <tuple>

namespace anneal {
namespace {

constexpr double kMostOverIdeal = 1.5, kMostConflict = 2.0;

auto place_of(const SiteCounts& site) {
  return std::tie(site.file, site.line, site.kind, site.memory, site.lane_bytes);
}

double ratio(int64_t count, int64_t ideal) {
  return ideal == 0 ? 0 : static_cast<double>(count) / static_cast<double>(ideal);
}

}  // namespace

std::string_view to_string(AccessKind kind) {
  constexpr std::string_view kNames[] = {
      "global load",  "global store", "global atomic", "copy load", "copy store",
      "shared load",  "shared store", "shared atomic", "ldmatrix",  "mma",
      "warp shuffle", "warp barrier", "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_global(AccessKind kind) { return kind <= AccessKind::kCopyLoad; }

bool is_shared(AccessKind kind) {
  return kind >= AccessKind::kCopyStore && kind <= AccessKind::kMatrixLoad;
}

void SiteCounts::add(const SiteCounts& more) {
  requests += more.requests;
  active_lanes += more.active_lanes;
  sectors += more.sectors;
  ideal_sectors += more.ideal_sectors;
  lines += more.lines;
  wavefronts += more.wavefronts;
  ideal_wavefronts += more.ideal_wavefronts;
}

double SiteCounts::sectors_over_ideal() const { return ratio(sectors, ideal_sectors); }
double SiteCounts::bank_conflict() const { return ratio(wavefronts, ideal_wavefronts); }
bool SiteCounts::is_wasteful() const {
  return sectors_over_ideal() > kMostOverIdeal || bank_conflict() > kMostConflict;
}

void FunctionCounts::add(const SiteCounts& site) {
  const auto at = std::ranges::lower_bound(sites, place_of(site), {}, place_of);
  if (at != sites.end() && place_of(*at) == place_of(site))
    at->add(site);
  else
    sites.insert(at, site);
}

void add_counts(std::vector<FunctionCounts>& all, const std::vector<FunctionCounts>& more) {
  for (const FunctionCounts& function : more) {
    auto known = std::ranges::find(all, function.function, &FunctionCounts::function);
    if (known == all.end()) {
      all.push_back(function);
      continue;
    }
    known->launches += function.launches;
    known->warps += function.warps;
    for (const SiteCounts& site : function.sites) known->add(site);
  }
}

}  // namespace anneal
