#include "anneal/engine/builder/timing_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/graph/program/number_text.h"

namespace anneal {
namespace {

constexpr std::string_view kFirstLine = "anneal timings 1";
constexpr std::string_view kHeading = "# anneal\tmachine\tthreads\tlayer\tkernel=microseconds ...";
constexpr size_t kColumns = 5;

std::string_view until(std::string_view& rest, char end) {
  const size_t at = rest.find(end);
  const std::string_view found = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return found;
}

KernelTimes parse_times(std::string_view text) {
  KernelTimes times;
  while (!text.empty()) {
    const std::string_view word = until(text, ' ');
    const size_t equals = word.rfind('=');
    const auto microseconds = equals == std::string_view::npos || equals == 0
                                  ? std::nullopt
                                  : parse_number<double>(word.substr(equals + 1));
    if (!microseconds || !std::isfinite(*microseconds) || *microseconds < 0)
      fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no kernel=microseconds", word));
    if (!times.emplace(word.substr(0, equals), *microseconds).second)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("kernel \"{}\" occurs twice", word.substr(0, equals)));
  }
  if (times.empty()) fail(ErrorCode::kInvalidArgument, "no kernel has a time");
  return times;
}

void parse_line(std::string_view line, TimingCache& cache) {
  std::array<std::string_view, kColumns> columns;
  size_t count = 0;
  for (; count < kColumns && !line.empty(); ++count) columns[count] = until(line, '\t');
  if (count < kColumns || !line.empty())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} columns with tabs between are wanted", kColumns));
  const auto threads = parse_number<int>(columns[2]);
  if (!threads || *threads < 1)
    fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no number of threads", columns[2]));
  TimingKey key{std::string(columns[0]), std::string(columns[1]), *threads,
                std::string(columns[3])};
  if (!cache.emplace(std::move(key), parse_times(columns[4])).second)
    fail(ErrorCode::kInvalidArgument, "this layer occurs twice");
}

[[noreturn]] void fail_with_errno(std::string_view doing, const std::string& path) {
  fail(ErrorCode::kCannotWrite, fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

// Held as long as this lives: of all who lock this folder, one.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : fd_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0) fail_with_errno("open folder", folder);
    while (flock(fd_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      close(fd_);
      errno = reason;
      fail_with_errno("lock folder", folder);
    }
  }
  ~FolderLock() { close(fd_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace

std::string to_string(const TimingCache& cache) {
  std::string text = fmt::format("{}\n{}\n", kFirstLine, kHeading);
  for (const auto& [key, times] : cache) {
    text += fmt::format("{}\t{}\t{}\t{}\t", key.anneal, key.machine, key.threads, key.layer);
    for (const auto& [kernel, microseconds] : times)
      text +=
          fmt::format("{}{}={}", text.back() == '\t' ? "" : " ", kernel, number_text(microseconds));
    text += '\n';
  }
  return text;
}

TimingCache parse_timing_cache(std::string_view text) {
  TimingCache cache;
  int number = 1;
  if (until(text, '\n') != kFirstLine)
    fail(ErrorCode::kInvalidArgument, fmt::format("line 1: \"{}\" is expected", kFirstLine));
  while (!text.empty()) {
    ++number;
    const std::string_view line = until(text, '\n');
    if (line.empty() || line.starts_with('#')) continue;
    with_context([&] { return fmt::format("line {}", number); }, [&] { parse_line(line, cache); });
  }
  return cache;
}

TimingCache read_timing_cache(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const FileBytes file = read_file(path);
  try {
    return parse_timing_cache(
        {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
  } catch (const Error& error) {
    fail(error.code(), fmt::format("timing cache {} is damaged: {}; mend the line, or remove the "
                                   "file and it is made anew",
                                   path, error.what()));
  }
}

void add_to_timing_cache(const std::string& path, const TimingCache& times) {
  const std::string file = behind_links(path);
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const FolderLock lock(folder.empty() ? "." : folder);
  TimingCache all = read_timing_cache(file);
  for (const auto& [key, kernels] : times) all.insert_or_assign(key, kernels);
  const std::string text = to_string(all);
  write_file_atomically(file, std::as_bytes(std::span(text)));
}

}  // namespace anneal
