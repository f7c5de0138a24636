#include "anneal/engine/run/memory/guarded_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace anneal {
namespace {

// 0xfff5, over and over: NaN as f16, bf16, f32 and f64.
std::byte pattern(size_t at) { return at % 2 == 0 ? std::byte{0xf5} : std::byte{0xff}; }

}  // namespace

GuardedBuffer::GuardedBuffer(Device& device, DeviceStream& stream, size_t bytes, size_t zone)
    : bytes_(bytes), zone_(zone), memory_(device.allocate(std::max<size_t>(bytes, 1) + 2 * zone)) {
  device.limit_access(data(), bytes);
  fill_zones(device, stream);
}

void GuardedBuffer::read_zones(Device& device, DeviceStream& stream, std::byte* to) const {
  if (zone_ == 0) return;
  device.copy(to, memory_->data(), zone_, stream);
  device.copy(to + zone_, data() + bytes_, zone_, stream);
}

void GuardedBuffer::fill_zones(Device& device, DeviceStream& stream) {
  if (zone_ == 0) return;
  std::vector<std::byte> filling(zone_);
  for (size_t i = 0; i < zone_; ++i) filling[i] = pattern(i);
  device.copy(memory_->data(), filling.data(), zone_, stream);
  device.copy(data() + bytes_, filling.data(), zone_, stream);
  stream.wait();
}

std::optional<std::string> GuardedBuffer::change(const std::byte* zones, size_t zone) {
  size_t changed = 0, nearest = ~size_t{0};
  bool behind = false;
  for (size_t i = 0; i < 2 * zone; ++i) {
    if (zones[i] == pattern(i % zone)) continue;
    ++changed;
    const size_t distance = i < zone ? zone - i : i - zone;
    if (distance >= nearest) continue;
    nearest = distance;
    behind = i >= zone;
  }
  if (changed == 0) return std::nullopt;
  return fmt::format("{} byte{} around it, the nearest {} bytes {}", changed,
                     changed == 1 ? "" : "s", nearest, behind ? "behind its end" : "before it");
}

}  // namespace anneal
