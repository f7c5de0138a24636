// Reading and writing of whole files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

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
// Writes a new file without a name, flushes it, and gives it the name. On failure, and when a
// signal ends the process, path is as before. On file systems without O_TMPFILE the new file has a
// name beside path meanwhile, which a signal leaves. Keeps the permissions that a plain write would
// give. Symbolic links are followed; a device, a pipe or a terminal (/dev/null, /dev/stdout) is
// written to instead.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
// The same, of pieces that follow each other.
void write_file_atomically(const std::string& path,
                           std::span<const std::span<const std::byte>> pieces);

}  // namespace anneal
