#include "anneal/cli/output/text_file.h"

#include "anneal/core/file.h"

namespace anneal {

void write_text(const std::string& path, const std::string& text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  write_file_atomically(path, bytes);
}

std::string read_text(const std::string& path) {
  const FileBytes file = read_file(path);
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

std::string written_file(const std::string& path) { return behind_links(path); }

}  // namespace anneal
