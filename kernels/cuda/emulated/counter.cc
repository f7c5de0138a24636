#include "anneal/kernels/cuda/emulated/counter.h"

#include <algorithm>
#include <bit>

#include "anneal/kernels/cuda/code/program_lines.h"

namespace anneal::cuda {
namespace {

constexpr uint32_t kWarpThreads = 32;
// Memory that is given back when a warp's lanes have met.
constexpr size_t kRequestsKept = 64;

static_assert(
    static_cast<int>(emulator::Count::kBarrier) == static_cast<int>(AccessKind::kBarrier) &&
    static_cast<int>(emulator::Count::kMatrixLoad) == static_cast<int>(AccessKind::kMatrixLoad) &&
    static_cast<int>(emulator::Count::kCopyStore) == static_cast<int>(AccessKind::kCopyStore));
AccessKind kind_of(emulator::Count kind) { return static_cast<AccessKind>(kind); }

}  // namespace

bool EmulatedCounter::Place::operator==(const Place& other) const {
  return site.line == other.site.line && site.file == other.site.file && kind == other.kind &&
         bytes == other.bytes && operand == other.operand && array == other.array;
}

size_t EmulatedCounter::PlaceHash::operator()(const Place& place) const {
  size_t hash = reinterpret_cast<size_t>(place.site.file) ^ reinterpret_cast<size_t>(place.array);
  for (const auto part : {static_cast<uint32_t>(place.site.line), static_cast<uint32_t>(place.kind),
                          place.bytes, static_cast<uint32_t>(place.operand)})
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

void EmulatedCounter::begin_launch(uint32_t threads, uint64_t blocks) {
  const uint32_t warps = (threads + kWarpThreads - 1) / kWarpThreads;
  numbers_.clear();
  places_.clear();
  totals_.clear();
  warps_.clear();
  warps_.resize(warps);
  all_warps_ = static_cast<int64_t>(warps * blocks);
}

uint32_t EmulatedCounter::number_of(const Place& place) {
  const auto [known, is_new] = numbers_.emplace(place, static_cast<uint32_t>(places_.size()));
  if (is_new) {
    places_.push_back(place);
    totals_.emplace_back();
  }
  return known->second;
}

void EmulatedCounter::add(uint32_t thread, emulator::Count kind, emulator::Address at,
                          uint32_t bytes, int operand, const emulator::SharedArray* array,
                          emulator::Site site) {
  const uint32_t place =
      number_of({site, kind, bytes, operand, array == nullptr ? nullptr : array->name});
  Warp& warp = warps_[thread / kWarpThreads];
  if (warp.traces.size() <= place) warp.traces.resize(place + 1);
  Trace& trace = warp.traces[place];
  const uint32_t lane = thread % kWarpThreads, time = trace.times[lane]++;
  if (time >= kMostLookedAt) return;
  if (time == trace.requests.size()) {
    if (time == 0) warp.touched.push_back(place);
    trace.requests.emplace_back();
  }
  trace.requests[time].active |= 1u << lane;
  trace.requests[time].at[lane] = at;
}

SiteCounts EmulatedCounter::cost_of(const Trace& trace, const Place& place) {
  SiteCounts sum;
  for (const WarpRequest& request : trace.requests) {
    sum.active_lanes += std::popcount(request.active);
    if (is_global(kind_of(place.kind))) {
      const GlobalCost cost = global_cost(request, place.bytes);
      sum.sectors += cost.sectors;
      sum.ideal_sectors += cost.ideal;
      sum.lines += cost.lines;
    } else if (is_shared(kind_of(place.kind))) {
      const SharedCost cost = shared_cost(request, place.bytes);
      sum.wavefronts += cost.wavefronts;
      sum.ideal_wavefronts += cost.ideal;
    }
  }
  sum.requests = *std::max_element(trace.times.begin(), trace.times.end());
  const auto looked_at = static_cast<int64_t>(trace.requests.size());
  if (sum.requests > looked_at)
    for (int64_t* const part : {&sum.active_lanes, &sum.sectors, &sum.ideal_sectors, &sum.lines,
                                &sum.wavefronts, &sum.ideal_wavefronts})
      *part = *part * sum.requests / looked_at;
  return sum;
}

void EmulatedCounter::lanes_met(uint32_t number) {
  Warp& warp = warps_[number];
  for (const uint32_t place : warp.touched) {
    Trace& trace = warp.traces[place];
    totals_[place].add(cost_of(trace, places_[place]));
    trace.times.fill(0);
    trace.requests.clear();
    if (trace.requests.capacity() > kRequestsKept) trace.requests = {};
  }
  warp.touched.clear();
}

FunctionCounts EmulatedCounter::counts(std::string_view function, std::string_view program) const {
  const ProgramLines lines(function, program);
  FunctionCounts all{std::string(function), 1, all_warps_};
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    SiteCounts site = totals_[i];
    const ProgramLine at = lines.at(place.site);
    site.file = at.file;
    site.line = at.line;
    site.text = at.text;
    site.kind = kind_of(place.kind);
    site.lane_bytes = place.bytes;
    site.memory = place.array != nullptr ? place.array : lines.parameter(place.operand);
    all.add(site);
  }
  return all;
}

}  // namespace anneal::cuda
