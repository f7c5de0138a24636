// Decompresses gzip files and deflated members of zip archives.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace anneal {

bool is_gzip(std::span<const std::byte> bytes);
// All members, one after the other. Fails with kInvalidArgument on damage, and if the contents are
// more than `most` bytes.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, size_t most = size_t{1} << 34);
// Fails unless the contents are of exactly that size, which is trusted as far as deflate can pack.
std::vector<std::byte> inflate_raw(std::span<const std::byte> bytes, size_t size);

}  // namespace anneal
