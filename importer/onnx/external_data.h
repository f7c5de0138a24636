// Files beside a model that hold its weights. Their names come from the model, which is untrusted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "anneal/core/file.h"

namespace anneal {

// A regular file inside a folder, open for reading.
class DataFile {
 public:
  // location: relative, without "..", no symbolic link on the way below folder; it is opened
  // component by component so that nothing can be swapped in between. folder: empty means that no
  // external data is allowed. Fails with kInvalidModel, or kIo with the system's reason.
  DataFile(const std::string& folder, std::string_view location);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  uint64_t size() const { return size_; }
  // REQUIRES: offset + to.size() <= size(). Fails with kIo if the file has shrunk.
  void read(uint64_t offset, std::span<std::byte> to) const;
  // The bytes in place, which outlive this; none if the system cannot map them. They are those of
  // the file: a process that shortens it ends this one where they are read.
  // REQUIRES: 0 < size, offset + size <= size().
  FileBytes map(uint64_t offset, size_t size) const;

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace anneal
