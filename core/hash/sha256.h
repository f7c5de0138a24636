// SHA-256 (FIPS 180-4): names contents, such as compiled programs and the plans of an engine.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace anneal {

using Digest = std::array<std::byte, 32>;
Digest sha256(std::span<const std::byte> bytes);
std::string hex(const Digest& digest);

}  // namespace anneal
