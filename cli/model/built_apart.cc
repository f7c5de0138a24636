#include "anneal/cli/model/built_apart.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "anneal/cli/measure/process_pool.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

int unnamed_file() {
  std::string path = (std::filesystem::temp_directory_path() / "anneal-XXXXXX").string();
  const int fd = mkstemp(path.data());
  if (fd < 0)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot make a temporary file {}: {}", path, std::strerror(errno)));
  unlink(path.c_str());
  return fd;
}

void write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      fail(ErrorCode::kCannotWrite,
           fmt::format("cannot write the temporary engine: {}", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

// The message of the building process: a byte that is 0, or a code and a sentence.
constexpr std::byte kBuilt{0}, kFailed{1};

std::vector<std::byte> failure(ErrorCode code, std::string_view text) {
  std::vector<std::byte> message = {kFailed, static_cast<std::byte>(code)};
  for (const char c : text) message.push_back(static_cast<std::byte>(c));
  return message;
}

std::vector<std::byte> outcome_of(int fd, const std::function<std::vector<std::byte>()>& build) {
  try {
    write_all(fd, build());
    return {kBuilt};
  } catch (const Error& error) {
    return failure(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failure(ErrorCode::kOutOfMemory, "there is not enough memory");
  }
}

}  // namespace

BuiltApart::BuiltApart(const EngineSource& source)
    : BuiltApart([&] { return build_source(source).bytes; }) {}

BuiltApart::BuiltApart(const std::function<std::vector<std::byte>()>& build) : fd_(unnamed_file()) {
  InterruptWatch interrupts;
  const Stopwatch watch;
  try {
    run_in_processes(
        1, {}, interrupts, [&](size_t) { return outcome_of(fd_, build); },
        [](size_t, ItemOutcome outcome) {
          if (!outcome.answer)
            fail(ErrorCode::kInternal, fmt::format("the process that builds {}", outcome.died));
          const std::vector<std::byte>& message = *outcome.answer;
          if (message.size() < 2 || message[0] == kBuilt) return;
          fail(static_cast<ErrorCode>(message[1]),
               std::string(reinterpret_cast<const char*>(message.data()) + 2, message.size() - 2));
        },
        [](size_t) {});
  } catch (...) {
    close(fd_);
    throw;
  }
  milliseconds_ = watch.milliseconds();
}

BuiltApart::~BuiltApart() { close(fd_); }

std::shared_ptr<const Engine> BuiltApart::open(const std::string& model,
                                               const EngineOptions& options) const {
  const std::string path = fmt::format("/proc/self/fd/{}", fd_);
  try {
    return open_engine(path, options);
  } catch (const Error& error) {
    std::string text = error.what();
    for (size_t at = 0; (at = text.find(path, at)) != std::string::npos; at += model.size())
      text.replace(at, path.size(), model);
    fail(error.code(), text);
  }
}

}  // namespace anneal
