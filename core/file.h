// Reading and writing of whole files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "anneal/core/parallel.h"
#include "anneal/core/tensor.h"

namespace anneal {

// The bytes of a file and their owner.
struct FileBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Reading fails with kIo and writing with kCannotWrite, naming the path and the system's reason.
// A pipe is read to its end. The bytes are aligned to 64.
FileBytes read_file(const std::string& path);
// Mapped read-only and private. A file that shrinks while mapped ends the process: files are
// replaced by rename, never cut.
FileBytes map_file(const std::string& path);
// Maps a part of an open file in this way; no bytes if the system cannot. REQUIRES: the file has
// this part, of at least a byte.
FileBytes map_part(int fd, uint64_t offset, size_t size);
// Gives memory back: of bytes that one of the two functions above has mapped, the pages that are
// whole. Does nothing to other memory. Other threads may read the pages meanwhile: a page that is
// touched is read from the file again.
void give_pages_back(const FileBytes& file);
void give_pages_back(const Tensor& tensor);  // the tensor's bytes
// The file that a path leads to through symbolic links, also where there is none yet; the path
// itself where links go round in circles.
std::string behind_links(const std::string& path);
// Where the bytes of a file go, in order.
class FileSink {
 public:
  FileSink(int fd, const std::string& path, bool can_rewrite)
      : fd_(fd), path_(path), can_rewrite_(can_rewrite) {}
  void write(std::span<const std::byte> bytes);
  // Other bytes in the place of some that were written. REQUIRES: can_rewrite()
  void rewrite(uint64_t offset, std::span<const std::byte> bytes);
  bool can_rewrite() const { return can_rewrite_; }  // false: a pipe or a device

 private:
  int fd_;
  const std::string& path_;
  bool can_rewrite_;
};

// Writes a new file without a name, flushes it, and gives it the name. On failure, also of `fill`,
// and when a signal ends the process, path is as before. On file systems without O_TMPFILE the new
// file has a name beside path meanwhile, which a signal leaves. Keeps the permissions that a plain
// write would give. Symbolic links are followed; a device, a pipe or a terminal (/dev/null,
// /dev/stdout) is written to instead. fill: writes the bytes; called again where a file without a
// name cannot get one.
void fill_file_atomically(const std::string& path, FunctionRef<void(FileSink& to)> fill);
// Writes a file of these bytes likewise.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
// How much of a large file is written, now and then. May throw: then path is as before.
using WriteProgress = std::function<void(uint64_t done, uint64_t total)>;

}  // namespace anneal
