#include "anneal/importer/onnx/external_data.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

std::vector<std::string> components(std::string_view location) {
  if (location.empty()) fail(ErrorCode::kInvalidModel, "the location is empty");
  if (location.front() == '/')
    fail(ErrorCode::kInvalidModel,
         "an absolute path is refused: data must lie in the model's folder");
  if (location.find('\0') != location.npos)
    fail(ErrorCode::kInvalidModel, "the location holds a zero byte");
  std::vector<std::string> parts;
  for (size_t at = 0; at <= location.size();) {
    const size_t end = std::min(location.find('/', at), location.size());
    const std::string_view part = location.substr(at, end - at);
    if (part == "..")
      fail(ErrorCode::kInvalidModel, "\"..\" is refused: data must lie in the model's folder");
    if (!part.empty() && part != ".") parts.emplace_back(part);
    at = end + 1;
  }
  if (parts.empty()) fail(ErrorCode::kInvalidModel, "the location names no file");
  return parts;
}

// Takes over folder_fd. O_NONBLOCK: opening a pipe must not wait for its writer.
int open_below(int folder_fd, const std::string& part, bool last) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (last ? O_NONBLOCK : O_DIRECTORY);
  const int fd = openat(folder_fd, part.c_str(), flags);
  int error = errno;
  struct stat status {};
  // A link in the middle of a path is ENOTDIR to the kernel.
  if (fd < 0 && fstatat(folder_fd, part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(status.st_mode))
    error = ELOOP;
  close(folder_fd);
  if (fd >= 0) return fd;
  if (error == ELOOP)
    fail(ErrorCode::kInvalidModel,
         fmt::format("\"{}\" is a symbolic link, which is refused: it may lead out of the folder",
                     part));
  fail(ErrorCode::kIo, fmt::format("\"{}\": {}", part, std::strerror(error)));
}

}  // namespace

DataFile::DataFile(const std::string& folder, std::string_view location) {
  const auto parts = components(location);
  if (folder.empty())
    fail(ErrorCode::kInvalidModel, "the model was given as bytes, without a folder to read from");
  int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::kIo, fmt::format("{}: {}", folder, std::strerror(errno)));
  for (size_t i = 0; i < parts.size(); ++i) fd = open_below(fd, parts[i], i + 1 == parts.size());
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    fail(ErrorCode::kInvalidModel, "not a regular file");
  }
  fd_ = fd;
  size_ = static_cast<uint64_t>(status.st_size);
}

DataFile::~DataFile() { close(fd_); }

void DataFile::read(uint64_t offset, std::span<std::byte> to) const {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t got =
        pread(fd_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::kIo, std::strerror(errno));
    if (got == 0) fail(ErrorCode::kIo, "the file became shorter while it was read");
    done += static_cast<size_t>(got);
  }
}

FileBytes DataFile::map(uint64_t offset, size_t size) const { return map_part(fd_, offset, size); }

}  // namespace anneal
