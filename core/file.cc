#include "anneal/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr int kMaxLinks = 40;
constexpr int kMaxNames = 1000;
constexpr size_t kFirstRoom = 1 << 16;

[[noreturn]] void fail_io(std::string_view doing, const std::string& path) {
  fail(ErrorCode::kIo, fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

[[noreturn]] void fail_write(std::string_view doing, const std::string& path) {
  fail(ErrorCode::kCannotWrite, fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// The deleter of a mapping, by which give_pages_back() knows mapped memory.
struct Unmap {
  std::span<const std::byte> mapped;

  void operator()(void* at) const { munmap(at, mapped.size()); }
  bool contains(std::span<const std::byte> bytes) const {
    return std::less_equal()(mapped.data(), bytes.data()) &&
           std::less_equal()(bytes.data() + bytes.size(), mapped.data() + mapped.size());
  }
};

void give_pages_back(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner) {
  const auto* const mapping = std::get_deleter<Unmap>(owner);
  if (mapping == nullptr || !mapping->contains(bytes)) return;
  const uintptr_t page = page_size();
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (at + page - 1) / page * page;
  const uintptr_t end = (at + bytes.size()) / page * page;
  if (begin >= end) return;
  auto* const first = const_cast<std::byte*>(bytes.data()) + (begin - at);
  madvise(first, end - begin, MADV_DONTNEED);  // advice: a system that ignores it keeps the pages
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

struct stat status_of(const Descriptor& file, const std::string& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_io("examine", path);
  if (S_ISDIR(status.st_mode))
    fail(ErrorCode::kIo, fmt::format("{} is a folder, not a file", path));
  return status;
}

size_t size_of_regular(const Descriptor& file, const std::string& path) {
  const struct stat status = status_of(file, path);
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::kIo, fmt::format("{} is not a regular file", path));
  return static_cast<size_t>(status.st_size);
}

// With large pages, as those of allocate_tensor(), where a whole one fits.
std::shared_ptr<std::byte[]> aligned_bytes(size_t size) {
  constexpr size_t kLargePage = size_t{2} << 20;
  const std::align_val_t alignment{size < kLargePage ? 64 : kLargePage};
  std::shared_ptr<std::byte[]> bytes(new (alignment) std::byte[size], [alignment](std::byte* p) {
    ::operator delete[](p, alignment);
  });
  if (size >= kLargePage) madvise(bytes.get(), size / kLargePage * kLargePage, MADV_HUGEPAGE);
  return bytes;
}

// Up to `size` bytes; fewer only at the end.
size_t read_up_to(const Descriptor& file, std::byte* to, size_t size, const std::string& path) {
  size_t have = 0;
  while (have < size) {
    const ssize_t got = read(file.get(), to + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  return have;
}

FileBytes read_pipe(const Descriptor& file, const std::string& path) {
  size_t have = 0, room = kFirstRoom;
  std::shared_ptr<std::byte[]> memory = aligned_bytes(room);
  for (;;) {
    have += read_up_to(file, memory.get() + have, room - have, path);
    if (have < room) return {{memory.get(), have}, memory};
    std::shared_ptr<std::byte[]> larger = aligned_bytes(room * 2);
    std::memcpy(larger.get(), memory.get(), have);
    memory = std::move(larger);
    room *= 2;
  }
}

using Fill = FunctionRef<void(FileSink&)>;

void fill_file(const Descriptor& file, const std::string& path, bool can_rewrite, Fill fill) {
  FileSink sink(file.get(), path, can_rewrite);
  fill(sink);
}

void write_in_place(const std::string& path, Fill fill) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) fail_write("open", path);
  fill_file(file, path, false, fill);
  if (close(file.release()) != 0) fail_write("close", path);
}

// A name for a file without one, beside path. False where the system cannot give it one.
bool link_beside(const Descriptor& file, const std::string& path, std::string& aside) {
  const std::string from = fmt::format("/proc/self/fd/{}", file.get());
  for (int attempt = 0; attempt < kMaxNames; ++attempt) {
    aside = fmt::format("{}.{}.{}", path, getpid(), attempt);
    if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, aside.c_str(), AT_SYMLINK_FOLLOW) == 0)
      return true;
    if (errno != EEXIST) return false;
  }
  return false;
}

void rename_over(const std::string& aside, const std::string& path) {
  if (std::rename(aside.c_str(), path.c_str()) == 0) return;
  const int why = errno;
  unlink(aside.c_str());
  errno = why;
  fail_write("replace", path);
}

// Whether the file system has files without names; path is as before if it has none.
bool replace_by_unnamed(const std::string& path, Fill fill) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const Descriptor file(
      open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (file.get() < 0) return false;
  fill_file(file, path, true, fill);
  if (fsync(file.get()) != 0) fail_write("flush", path);
  std::string aside;
  if (!link_beside(file, path, aside)) return false;
  rename_over(aside, path);
  return true;
}

void replace_by_named(const std::string& path, Fill fill) {
  std::string aside = path + ".XXXXXX";
  Descriptor file(mkostemp(aside.data(), O_CLOEXEC));
  if (file.get() < 0) fail_write("create a file beside", path);
  try {
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(file.get(), 0666 & ~mask) != 0) fail_write("set permissions of", aside);
    fill_file(file, path, true, fill);
    if (fsync(file.get()) != 0) fail_write("flush", path);
    if (close(file.release()) != 0) fail_write("close", path);
  } catch (...) {
    unlink(aside.c_str());
    throw;
  }
  rename_over(aside, path);
}

}  // namespace

FileBytes read_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_io("open", path);
  const mode_t mode = status_of(file, path).st_mode;
  if (S_ISFIFO(mode) || S_ISSOCK(mode)) return read_pipe(file, path);
  const size_t size = size_of_regular(file, path);
  const std::shared_ptr<std::byte[]> memory = aligned_bytes(size + 1);
  if (read_up_to(file, memory.get(), size, path) < size)
    fail(ErrorCode::kIo, fmt::format("cannot read {}: it became shorter", path));
  return {{memory.get(), size}, memory};
}

FileBytes map_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_io("open", path);
  const size_t size = size_of_regular(file, path);
  if (size == 0) return {};
  FileBytes mapped = map_part(file.get(), 0, size);
  if (mapped.bytes.empty()) fail_io("map", path);
  return mapped;
}

FileBytes map_part(int fd, uint64_t offset, size_t size) {
  const uint64_t begin = offset / page_size() * page_size();
  const size_t before = static_cast<size_t>(offset - begin), length = before + size;
  void* const memory = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, fd, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return {};
  const auto* const bytes = static_cast<const std::byte*>(memory);
  return {{bytes + before, size}, std::shared_ptr<const void>(memory, Unmap{{bytes, length}})};
}

void give_pages_back(const FileBytes& file) { give_pages_back(file.bytes, file.owner); }
void give_pages_back(const Tensor& tensor) { give_pages_back(tensor.bytes(), tensor.owner()); }

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

void FileSink::write(std::span<const std::byte> bytes) {
  // Linux takes large blocks of memory for large writes, which it may have to gather first.
  constexpr size_t kAtOnce = 128 << 10;
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kAtOnce));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_write("write", path_);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void FileSink::rewrite(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_write("write", path_);
    }
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  fill_file_atomically(path, [&](FileSink& to) { to.write(bytes); });
}

void fill_file_atomically(const std::string& path, Fill fill) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode))
      fail(ErrorCode::kCannotWrite, fmt::format("{} is a folder, not a file", path));
    write_in_place(path, fill);
    return;
  }
  const std::string target = behind_links(path);
  if (!replace_by_unnamed(target, fill)) replace_by_named(target, fill);
}

}  // namespace anneal
