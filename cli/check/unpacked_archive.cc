#include "anneal/cli/check/unpacked_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{16} << 30;

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

std::string reason_of(const Reader& reader) {
  const char* text = archive_error_string(reader.get());
  return text ? text : "unknown format";
}

// The path of a member below the root, or a failure if it could leave it.
fs::path safe_path(const char* name) {
  if (!name || !*name) fail(ErrorCode::kInvalidArgument, "a member has no name");
  const fs::path path = fs::path(name);
  if (path.is_absolute())
    fail(ErrorCode::kInvalidArgument, fmt::format("the member {} has an absolute path", name));
  for (const fs::path& part : path)
    if (part == "..")
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the member {} leaves the archive's folder", name));
  return path.lexically_normal();
}

int64_t unpack_file(const Reader& reader, const fs::path& to, int64_t allowed) {
  std::ofstream out(to, std::ios::binary | std::ios::trunc);
  int64_t written = 0;
  while (true) {
    const void* block = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int status = archive_read_data_block(reader.get(), &block, &size, &offset);
    if (status == ARCHIVE_EOF) break;
    if (status < ARCHIVE_WARN) fail(ErrorCode::kInvalidArgument, reason_of(reader));
    written = offset + static_cast<int64_t>(size);
    if (offset < 0 || written > allowed)
      fail(ErrorCode::kInvalidArgument, "its members take more than 16 GiB");
    out.seekp(offset);
    out.write(static_cast<const char*>(block), static_cast<std::streamsize>(size));
  }
  out.close();
  if (!out)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot write {}: {}", to.string(), std::strerror(errno)));
  return written;
}

void unpack(const std::string& path, const fs::path& folder, InterruptWatch& interrupts) {
  Reader reader(archive_read_new(), archive_read_free);
  check(reader != nullptr, "libarchive has a reader");
  archive_read_support_filter_all(reader.get());
  archive_read_support_format_tar(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), 1 << 16) != ARCHIVE_OK)
    fail(ErrorCode::kInvalidArgument, fmt::format("is no .tar archive ({})", reason_of(reader)));
  int64_t allowed = kMostBytes;
  archive_entry* entry = nullptr;
  while (true) {
    interrupts.check();
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) break;
    if (status < ARCHIVE_WARN)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("is no .tar archive, or cut off ({})", reason_of(reader)));
    const fs::path to = folder / safe_path(archive_entry_pathname(entry));
    const auto type = archive_entry_filetype(entry);
    if (archive_entry_hardlink(entry) || (type != AE_IFREG && type != AE_IFDIR))
      fail(ErrorCode::kInvalidArgument, fmt::format("the member {} is neither a file nor a folder",
                                                    archive_entry_pathname(entry)));
    fs::create_directories(type == AE_IFDIR ? to : to.parent_path());
    if (type == AE_IFREG) allowed -= unpack_file(reader, to, allowed);
  }
}

}  // namespace

UnpackedArchive::UnpackedArchive(const std::string& path, InterruptWatch& interrupts) {
  with_context([&] { return fmt::format("while unpacking {}", path); },
               [&] {
                 try {
                   unpack(path, folder_.path(), interrupts);
                 } catch (const fs::filesystem_error& error) {
                   fail(ErrorCode::kIo, error.what());
                 }
               });
}

std::string UnpackedArchive::root() const {
  fs::directory_iterator first(folder_.path()), end;
  if (first != end && first->is_directory() &&
      std::distance(fs::directory_iterator(folder_.path()), end) == 1)
    return first->path().string();
  return folder_.path();
}

}  // namespace anneal
