// The tactic of a library's kernel: what chose it, and what the library needs to make it again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace anneal::cuda {

struct VendorTactic {
  uint32_t library_version =
      0;                      // as the library gives it: 91900 is cuDNN 9.19, 130100 cuBLASLt 13.1
  uint32_t architecture = 0;  // 90 is sm_90
  uint64_t workspace_bytes = 0;
  std::string algorithm;         // for people: "engine 41", "algorithm 23, tile 128x128, split 2"
  std::vector<std::byte> bytes;  // cuDNN: its serialized plan; cuBLASLt: a cublasLtMatmulAlgo_t
  bool operator==(const VendorTactic&) const = default;
};

// "9.19.0" of 91900.
std::string library_version_text(uint32_t version);

std::vector<std::byte> tactic_of(const VendorTactic& tactic);
// Nullopt if the bytes, which may be any, are none of these.
std::optional<VendorTactic> vendor_tactic_of(std::span<const std::byte> tactic);

}  // namespace anneal::cuda
