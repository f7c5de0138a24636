#include "anneal/cli/compare/built_apart.h"
#include "anneal/cli/output/printable.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "anneal/cli/measure/process_pool.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/milliseconds.h"
#include "anneal/engine/builder/checked_build.h"

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

void build_into(int fd, const EngineSource& source) {
  GraphBuildOptions options = graph_options(source.build);
  options.targets = {source.target};
  Graph graph = import_model_for_inputs(source.path, source.shapes, source.inputs).graph;
  const CheckedBuild made = with_context(
      [&] { return printable(source.path); },
      [&] { return build_checked(std::move(graph), options, self_check_options(source.build)); });
  print_self_check(made.check);
  write_all(fd, save(made.file));
}

// What the building process tells: a code and a sentence, or nothing.
std::vector<std::byte> outcome_of(int fd, const EngineSource& source) {
  ByteWriter to;
  const auto tell = [&](ErrorCode code, std::string_view text) {
    to.number(static_cast<int32_t>(code));
    to.text(text);
  };
  try {
    build_into(fd, source);
    tell({}, "");
  } catch (const Error& error) {
    tell(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    tell(ErrorCode::kOutOfMemory, "there is not enough memory");
  }
  return to.take();
}

}  // namespace

BuiltApart::BuiltApart(const EngineSource& source) : fd_(unnamed_file()) {
  InterruptWatch interrupts;
  const auto start = std::chrono::steady_clock::now();
  try {
    run_in_processes(
        1, {}, interrupts, [&](size_t) { return outcome_of(fd_, source); },
        [](size_t, ItemOutcome outcome) {
          if (!outcome.answer)
            fail(ErrorCode::kInternal, fmt::format("the process that builds {}", outcome.died));
          ByteReader from(*outcome.answer, "the result of building");
          const auto code = static_cast<ErrorCode>(from.number<int32_t>());
          const std::string text = from.text();
          if (!text.empty()) fail(code, text);
        },
        [](size_t) {});
  } catch (...) {
    close(fd_);
    throw;
  }
  milliseconds_ = milliseconds_since(start);
}

BuiltApart::~BuiltApart() { close(fd_); }

std::string BuiltApart::engine_path() const { return fmt::format("/proc/self/fd/{}", fd_); }

}  // namespace anneal
