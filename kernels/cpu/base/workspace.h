// Division of a launch's scratch memory into parts.
#pragma once
#include <cstddef>

#include "anneal/core/integer.h"
#include "anneal/core/parallel.h"

namespace anneal::cpu {

// Bytes of a part of a workspace after which the next one begins at a cache line.
constexpr size_t cache_aligned(size_t bytes) { return align_up(bytes, size_t{64}); }

// In a body of ThreadTeam::for_ranges: the part of its thread, of as many equal parts as the team
// has threads. A thread always gets the same one, which stays in its cache.
inline std::byte* part_of(const ThreadTeam& team, std::byte* parts, size_t part_bytes) {
  return parts + static_cast<size_t>(team.thread()) * part_bytes;
}

}  // namespace anneal::cpu
