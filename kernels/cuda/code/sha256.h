// SHA-256 (FIPS 180-4): names and checks what the cache of compiled programs keeps.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace anneal::cuda {

using Digest = std::array<std::byte, 32>;
Digest sha256(std::span<const std::byte> bytes);
std::string hex(const Digest& digest);
inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace anneal::cuda
