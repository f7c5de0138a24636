#include "anneal/cli/output/picture_file.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/text_file.h"

namespace anneal {
namespace {

constexpr const char* kConverter = "rsvg-convert";

[[noreturn]] void fail_to(const char* what, int error) {
  fail(ErrorCode::kIo, fmt::format("cannot {}: {}", what, std::strerror(error)));
}

// A file without a name in memory.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("anneal-picture", MFD_CLOEXEC)) {
    if (descriptor_ < 0) fail_to("make a file in memory", errno);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  int descriptor() const { return descriptor_; }
  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno != EINTR) fail_to("write a file in memory", errno);
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    }
    lseek(descriptor_, 0, SEEK_SET);
  }
  std::string read() const {
    std::string bytes(static_cast<size_t>(lseek(descriptor_, 0, SEEK_END)), '\0');
    size_t size = 0;
    while (size < bytes.size()) {
      const ssize_t got =
          pread(descriptor_, bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) fail_to("read a file in memory", got < 0 ? errno : EIO);
      size += static_cast<size_t>(got);
    }
    return bytes;
  }

 private:
  int descriptor_;
};

std::string png_of(const std::string& svg) {
  MemoryFile from, to;
  from.write(svg);
  std::string name = kConverter, zoom = "--zoom=2";
  char* const arguments[] = {name.data(), zoom.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, from.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, to.descriptor(), STDOUT_FILENO);
  pid_t id = 0;
  const int error = posix_spawnp(&id, kConverter, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT)
    fail(ErrorCode::kUnsupported,
         fmt::format("{} is not installed, which makes a PNG of a picture; install the Debian "
                     "package librsvg2-bin, or give a name that ends in .svg",
                     kConverter));
  if (error != 0) fail_to("start rsvg-convert", error);
  int status = 0;
  pid_t ended = 0;
  do ended = waitpid(id, &status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended < 0) fail_to("learn how rsvg-convert ended", errno);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail(ErrorCode::kIo, fmt::format("{} cannot draw the picture (status {})", kConverter,
                                     WIFEXITED(status) ? WEXITSTATUS(status) : -1));
  return to.read();
}

}  // namespace

void check_picture_path(const std::string& path, std::string_view flag) {
  if (path.empty()) return;
  if (!path.ends_with(".svg") && !path.ends_with(".png"))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} {}: the name must end in .svg or .png", flag, path));
  check_output_file(path);
}

void write_picture(const std::string& path, const std::string& svg) {
  write_text(path, path.ends_with(".png") ? png_of(svg) : svg);
}

}  // namespace anneal
