// Files that a command writes and reads whole.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace anneal {

// Whole or not at all. Fails with kCannotWrite or kIo.
void write_text(const std::string& path, const std::string& text);
void write_bytes(const std::string& path, std::span<const std::byte> bytes);
// Fails with kIo.
std::string read_text(const std::string& path);
// The file that these functions write for a path: the one behind its symbolic links.
std::string written_file(const std::string& path);

}  // namespace anneal
