#include "anneal/kernels/cuda/code/jit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/hash/sha256.h"

namespace anneal::cuda {
namespace {

// An entry is this, the SHA-256 of the image, the image.
constexpr std::string_view kEntryMagic = "anneal image 1\n";

std::string entry_path(const Compiler& compiler, const std::string& program, int architecture) {
  const std::string folder = cache_folder();
  if (folder.empty()) return {};
  ByteWriter key;
  key.text(compiler.identity());
  key.number(architecture);
  key.text(program);
  return fmt::format("{}/{}.image", folder, hex(sha256(key.take())));
}

std::optional<std::vector<std::byte>> read_entry(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  try {
    const FileBytes file = read_file(path);
    const auto magic = std::as_bytes(std::span(kEntryMagic));
    if (file.bytes.size() < magic.size() + sizeof(Digest) ||
        !std::equal(magic.begin(), magic.end(), file.bytes.begin()))
      return std::nullopt;
    const auto digest = file.bytes.subspan(magic.size(), sizeof(Digest));
    const auto image = file.bytes.subspan(magic.size() + sizeof(Digest));
    const Digest right = sha256(image);
    if (!std::equal(right.begin(), right.end(), digest.begin())) return std::nullopt;
    return std::vector<std::byte>(image.begin(), image.end());
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_entry(const std::string& path, std::span<const std::byte> image) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path folder = fs::path(path).parent_path();
  // Files of this folder are loaded and run, so a folder made here is readable by its owner only.
  if (fs::create_directories(folder, failed)) fs::permissions(folder, fs::perms::owner_all, failed);
  ByteWriter entry;
  entry.raw(std::as_bytes(std::span(kEntryMagic)));
  entry.raw(sha256(image));
  entry.raw(image);
  try {
    write_file_atomically(path, entry.take());
  } catch (const Error&) {
  }
}

}  // namespace

std::string cache_folder() {
  const auto setting = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (std::getenv("ANNEAL_CACHE_DIR") != nullptr) return setting("ANNEAL_CACHE_DIR");
  if (!setting("XDG_CACHE_HOME").empty()) return setting("XDG_CACHE_HOME") + "/anneal";
  return setting("HOME").empty() ? "" : setting("HOME") + "/.cache/anneal";
}

std::vector<std::byte> compile_once(const Compiler& compiler, const std::string& program,
                                    int architecture) {
  const std::string path = entry_path(compiler, program, architecture);
  if (!path.empty())
    if (auto image = read_entry(path)) {
      std::error_code ignored;
      std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(),
                                       ignored);
      return *std::move(image);
    }
  std::vector<std::byte> image = compiler.compile(program, architecture);
  if (!path.empty()) write_entry(path, image);
  return image;
}

}  // namespace anneal::cuda
