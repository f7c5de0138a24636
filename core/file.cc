#include "anneal/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "anneal/core/error.h"

namespace anneal {
namespace {

constexpr int kMaxLinks = 40;

[[noreturn]] void fail_io(std::string_view doing, const std::string& path) {
  fail(Code::kIo, fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

size_t size_of_regular(const Descriptor& file, const std::string& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_io("examine", path);
  if (S_ISDIR(status.st_mode)) fail(Code::kIo, fmt::format("{} is a folder, not a file", path));
  if (!S_ISREG(status.st_mode)) fail(Code::kIo, fmt::format("{} is not a regular file", path));
  return static_cast<size_t>(status.st_size);
}

void write_all(const Descriptor& file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_io("write", path);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void write_in_place(const std::string& path, std::span<const std::byte> bytes) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) fail_io("open", path);
  write_all(file, bytes, path);
  if (close(file.release()) != 0) fail_io("close", path);
}

void replace_file(const std::string& path, std::span<const std::byte> bytes) {
  std::string aside = path + ".XXXXXX";
  Descriptor file(mkostemp(aside.data(), O_CLOEXEC));
  if (file.get() < 0) fail_io("create a file beside", path);
  try {
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(file.get(), 0666 & ~mask) != 0) fail_io("set permissions of", aside);
    write_all(file, bytes, path);
    if (fsync(file.get()) != 0) fail_io("flush", path);
    if (close(file.release()) != 0) fail_io("close", path);
    if (std::rename(aside.c_str(), path.c_str()) != 0) fail_io("replace", path);
  } catch (...) {
    unlink(aside.c_str());
    throw;
  }
}

}  // namespace

FileBytes read_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_io("open", path);
  const size_t size = size_of_regular(file, path);
  const std::shared_ptr<std::byte[]> memory(
      new (std::align_val_t{64}) std::byte[size + 1],
      [](std::byte* p) { ::operator delete[](p, std::align_val_t{64}); });
  size_t have = 0;
  while (have < size) {
    const ssize_t got = read(file.get(), memory.get() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path);
    if (got == 0) fail(Code::kIo, fmt::format("cannot read {}: it became shorter", path));
    have += static_cast<size_t>(got);
  }
  return {{memory.get(), size}, memory};
}

FileBytes map_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_io("open", path);
  const size_t size = size_of_regular(file, path);
  if (size == 0) return {};
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) fail_io("map", path);
  return {{static_cast<const std::byte*>(memory), size},
          std::shared_ptr<const void>(memory, [size](void* p) { munmap(p, size); })};
}

void give_pages_back(std::span<const std::byte> mapped) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t begin = (at + page - 1) / page * page;
  const uintptr_t end = (at + mapped.size()) / page * page;
  // Advice: where the system does not take it, memory stays as it was.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string behind_links(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path at = path;
  for (int links = 0; fs::is_symlink(at, error); ++links) {
    const fs::path target = fs::read_symlink(at, error);
    if (error || links == kMaxLinks) return path;
    at = target.is_absolute() ? target : at.parent_path() / target;
  }
  return at.string();
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) fail(Code::kIo, fmt::format("{} is a folder, not a file", path));
    write_in_place(path, bytes);
    return;
  }
  replace_file(behind_links(path), bytes);
}

}  // namespace anneal
