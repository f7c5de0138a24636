// Memory of one tensor between red zones, which are bytes that no kernel may change.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "anneal/core/device.h"

namespace anneal {

class GuardedBuffer {
 public:
  // zone: bytes before and behind, a multiple of 256, so that the tensor lies as in an arena; may
  // be 0. Fills the red zones with NaN of every float type, which results show if they are read.
  GuardedBuffer(Device& device, DeviceStream& stream, size_t bytes, size_t zone);

  std::byte* data() const { return memory_->data() + zone_; }
  size_t size() const { return bytes_; }
  size_t size_in_all() const { return memory_->size(); }
  size_t zone() const { return zone_; }

  // Copies both red zones, 2 * zone() bytes, which are in `to` once the stream is waited for.
  void read_zones(Device& device, DeviceStream& stream, std::byte* to) const;
  void fill_zones(Device& device, DeviceStream& stream);  // waits
  // The change of zones that were read: "12 bytes around it, the nearest 4 bytes behind its end";
  // nullopt: none.
  static std::optional<std::string> change(const std::byte* zones, size_t zone);

 private:
  size_t bytes_, zone_;
  std::unique_ptr<Buffer> memory_;
};

}  // namespace anneal
