// Division of a launch's scratch memory into parts.
#pragma once
#include <cstddef>

#include "anneal/core/parallel.h"

namespace anneal::cpu {

constexpr size_t align_up(size_t bytes, size_t to = 64) { return (bytes + to - 1) / to * to; }

// In a body of ThreadTeam::for_ranges: the part of its thread, of as many equal parts as the team
// has threads. A thread always gets the same one, which stays in its cache.
inline std::byte* part_of(const ThreadTeam& team, std::byte* parts, size_t part_bytes) {
  return parts + static_cast<size_t>(team.thread()) * part_bytes;
}

}  // namespace anneal::cpu
