#include "anneal/engine/builder/timing/timing_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/hash/sha256.h"
#include "anneal/graph/program/number_text.h"

namespace anneal {
namespace {

constexpr std::string_view kFirstLine = "anneal timings 2", kFirstLineOf1 = "anneal timings 1";
constexpr std::string_view kHeading =
    "# anneal\tmachine\tthreads\tlayer\tkernel{tactic}=microseconds ...";
constexpr std::string_view kWrong = "wrong";
constexpr size_t kColumns = 5;

std::string_view until(std::string_view& rest, char end) {
  const size_t at = rest.find(end);
  const std::string_view found = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return found;
}

// A kernel and its time, with the tactic in braces, which may have spaces.
std::string_view next_word(std::string_view& text) {
  const std::string_view all = text;
  const size_t brace = all.find('{'), space = all.find(' ');
  const size_t from = brace < space ? all.find('}', brace) : 0;
  const size_t end = from == std::string_view::npos ? from : all.find(' ', from);
  text.remove_prefix(end == std::string_view::npos ? all.size() : end + 1);
  return all.substr(0, end);
}

std::optional<double> parse_time(std::string_view text) {
  if (text == kWrong) return kWrongResult;
  const auto microseconds = parse_number<double>(text);
  if (!microseconds || !std::isfinite(*microseconds) || *microseconds < 0) return std::nullopt;
  return microseconds;
}

KernelTimes parse_times(std::string_view text) {
  KernelTimes times;
  while (!text.empty()) {
    const std::string_view word = next_word(text);
    const size_t equals = word.rfind('=');
    const bool is_named = equals != std::string_view::npos && equals > 0 &&
                          (word.find('{') > equals || word[equals - 1] == '}');
    const auto microseconds = is_named ? parse_time(word.substr(equals + 1)) : std::nullopt;
    if (!microseconds)
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
         fmt::format("{} columns, separated by tabs, are expected", kColumns));
  for (const std::string_view column : columns)
    if (std::ranges::any_of(
            column, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
      fail(ErrorCode::kInvalidArgument, "a text has control characters");
  const auto threads = parse_number<int>(columns[2]);
  if (!threads || *threads < 1)
    fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no number of threads", columns[2]));
  TimingKey key{std::string(columns[0]), std::string(columns[1]), *threads,
                std::string(columns[3])};
  if (!cache.layers.emplace(std::move(key), parse_times(columns[4])).second)
    fail(ErrorCode::kInvalidArgument, "this layer occurs twice");
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

std::optional<Tactic> parse_hex(std::string_view text) {
  if (text.empty() || text.size() % 2 != 0) return std::nullopt;
  Tactic bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const auto high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (!high || !low) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(*high * 16 + *low));
  }
  return bytes;
}

// "@ DIGEST BYTES"
void parse_tactic(std::string_view line, TimingCache& cache) {
  until(line, ' ');
  const std::string_view digest = until(line, '\t');
  auto bytes = parse_hex(line);
  if (!bytes || tactic_digest(*bytes) != digest)
    fail(ErrorCode::kInvalidArgument, "these are not the bytes of a tactic with their digest");
  cache.tactics.insert_or_assign(std::string(digest), *std::move(bytes));
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

std::string tactic_digest(std::span<const std::byte> tactic) {
  return hex(sha256(tactic)).substr(0, 16);
}

std::string to_string(const TimingCache& cache) {
  std::string text = fmt::format("{}\n{}\n", kFirstLine, kHeading);
  for (const auto& [key, times] : cache.layers) {
    text += fmt::format("{}\t{}\t{}\t{}\t", key.anneal, key.machine, key.threads, key.layer);
    for (const auto& [kernel, microseconds] : times)
      text += fmt::format("{}{}={}", text.back() == '\t' ? "" : " ", kernel,
                          std::isinf(microseconds) ? kWrong : number_text(microseconds));
    text += '\n';
  }
  for (const auto& [digest, tactic] : cache.tactics) {
    text += fmt::format("@ {}\t", digest);
    for (const std::byte each : tactic) text += fmt::format("{:02x}", std::to_integer<int>(each));
    text += '\n';
  }
  return text;
}

void merge(const TimingCache& from, TimingCache& into) {
  for (const auto& [key, kernels] : from.layers) into.layers.insert_or_assign(key, kernels);
  for (const auto& [digest, tactic] : from.tactics) into.tactics.insert_or_assign(digest, tactic);
}

TimingCache parse_timing_cache(std::string_view text) {
  TimingCache cache;
  int number = 1;
  const std::string_view first = until(text, '\n');
  if (first != kFirstLine && first != kFirstLineOf1)
    fail(ErrorCode::kInvalidArgument, fmt::format("line 1: \"{}\" is expected", kFirstLine));
  while (!text.empty()) {
    ++number;
    const std::string_view line = until(text, '\n');
    if (line.empty() || line.starts_with('#')) continue;
    with_context(
        [&] { return fmt::format("line {}", number); },
        [&] { line.starts_with('@') ? parse_tactic(line, cache) : parse_line(line, cache); });
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
    fail(error.code(), fmt::format("timing cache {} is damaged: {}; correct the line, or remove "
                                   "the file, which is then written again",
                                   path, error.what()));
  }
}

void add_to_timing_cache(const std::string& path, const TimingCache& times) {
  const std::string file = behind_links(path);
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const FolderLock lock(folder.empty() ? "." : folder);
  TimingCache all = read_timing_cache(file);
  merge(times, all);
  const std::string text = to_string(all);
  write_file_atomically(file, std::as_bytes(std::span(text)));
}

}  // namespace anneal
