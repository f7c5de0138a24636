#include "anneal/cli/compare/built_apart.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "anneal/cli/measure/process_pool.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/engine/onnx/onnx_builder.h"

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
  BuildOptions options = source.build;
  options.targets = {source.target};
  set_shapes_for_inputs(source.path, source.shapes, source.inputs, options);
  const BuiltEngine built = build_engine(OnnxModel(source.path), options);
  print_self_check(built.report.self_check);
  write_all(fd, built.bytes);
}

// What the building process tells: a byte that is 0, or a code and a sentence.
constexpr std::byte kBuilt{0}, kFailed{1};

std::vector<std::byte> failure(ErrorCode code, std::string_view text) {
  std::vector<std::byte> told = {kFailed, static_cast<std::byte>(code)};
  for (const char c : text) told.push_back(static_cast<std::byte>(c));
  return told;
}

std::vector<std::byte> outcome_of(int fd, const EngineSource& source) {
  try {
    build_into(fd, source);
    return {kBuilt};
  } catch (const Error& error) {
    return failure(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failure(ErrorCode::kOutOfMemory, "there is not enough memory");
  }
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
          const std::vector<std::byte>& told = *outcome.answer;
          if (told.size() < 2 || told[0] == kBuilt) return;
          fail(static_cast<ErrorCode>(told[1]),
               std::string(reinterpret_cast<const char*>(told.data()) + 2, told.size() - 2));
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
