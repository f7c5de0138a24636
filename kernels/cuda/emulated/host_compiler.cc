#include "anneal/kernels/cuda/emulated/host_compiler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/files/temporary_folder.h"
#include "anneal/core/isa.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/code/embedded_text.h"

namespace anneal::cuda {
namespace {

constexpr std::string_view kMagic = "anneal host code";

constexpr const char* kFlags[] = {"-std=c++17",
                                  "-fPIC",
                                  "-shared",
                                  "-w",
                                  "-ffp-contract=off",
                                  "-fno-math-errno",
                                  "-fno-exceptions",
                                  "-fno-rtti",
                                  "-fno-gnu-unique",
                                  "-fno-strict-aliasing",
                                  "-fvisibility=hidden",
                                  "-Wl,--as-needed"};
#if defined(__SANITIZE_ADDRESS__)
// Optimising code with sanitizers takes longer than running it without optimisation.
constexpr const char* kSanitizers[] = {"-O0",
                                       "-fsanitize=address,undefined,float-cast-overflow",
                                       "-fno-sanitize=null,object-size,vptr",
                                       "-fno-sanitize-recover=all",
                                       "-fno-omit-frame-pointer",
                                       "-g1"};
#else
// Little is gained by optimising more: most of the time goes into checks and calls.
constexpr const char* kOptimization = "-O1";
#endif

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool checks_shared() {
  const std::string checks = variable("ANNEAL_EMULATED_CHECKS");
  if (checks.empty() || checks == "all") return true;
  if (checks == "bounds") return false;
  fail(ErrorCode::kInvalidArgument,
       fmt::format("ANNEAL_EMULATED_CHECKS is \"{}\": it may be all or bounds", checks));
}

std::string find_compiler() {
  const std::string chosen = variable("ANNEAL_HOST_CXX");
  const std::vector<std::string> names = chosen.empty()
                                             ? std::vector<std::string>{"c++", "g++", "clang++"}
                                             : std::vector<std::string>{chosen};
  for (const std::string& name : names) {
    if (name.find('/') != std::string::npos) {
      if (access(name.c_str(), X_OK) == 0) return name;
      continue;
    }
    std::string folders = variable("PATH");
    for (size_t at = 0; at <= folders.size();) {
      const size_t end = std::min(folders.find(':', at), folders.size());
      const std::string path = folders.substr(at, end - at) + "/" + name;
      if (access(path.c_str(), X_OK) == 0) return path;
      at = end + 1;
    }
  }
  fail(ErrorCode::kDevice,
       chosen.empty()
           ? "the emulated device needs a C++ compiler: install g++ or clang++, or name one in "
             "ANNEAL_HOST_CXX"
           : fmt::format("the emulated device's C++ compiler \"{}\" was not found: correct "
                         "ANNEAL_HOST_CXX",
                         chosen));
}

std::vector<std::string> flags(bool counts) {
  std::vector<std::string> all(std::begin(kFlags), std::end(kFlags));
  if (current_isa() >= Isa::kAvx2) all.insert(all.end(), {"-mavx2", "-mfma"});
#if defined(__SANITIZE_ADDRESS__)
  all.insert(all.end(), std::begin(kSanitizers), std::end(kSanitizers));
#else
  all.emplace_back(kOptimization);
#endif
  all.push_back(fmt::format("-DANNEAL_CHECK_SHARED={}", checks_shared() ? 1 : 0));
  all.push_back(fmt::format("-DANNEAL_COUNT={}", counts ? 1 : 0));
  return all;
}

// The environment, with the folder as the place of temporary files: files that compilers leave are
// deleted with it.
std::vector<std::string> environment_with(const TemporaryFolder& folder) {
  constexpr std::string_view kPlace = "TMPDIR=";
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each)
    if (!std::string_view(*each).starts_with(kPlace)) variables.emplace_back(*each);
  variables.push_back(std::string(kPlace) + folder.path());
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A command whose output goes to a file of the folder, as do its temporary files.
class Process {
 public:
  Process(std::vector<std::string> command, const TemporaryFolder& folder, std::string_view log) {
    const std::string output = folder.file(log);
    std::vector<std::string> variables = environment_with(folder);
    const std::vector<char*> arguments = pointers_to(command), places = pointers_to(variables);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const int error =
        posix_spawn(&id_, arguments[0], &actions, nullptr, arguments.data(), places.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
      fail(ErrorCode::kDevice,
           fmt::format("cannot run the compiler {}: {}", command[0], std::strerror(error)));
  }
  Process(Process&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Process& operator=(Process&&) = delete;
  ~Process() {
    if (id_ != 0) wait();
  }
  bool wait() {  // whether all went well
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) continue;
    id_ = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t id_ = 0;
};

std::string file_text(const std::string& path) {
  const FileBytes file = read_file(path);
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

void write(const std::string& path, const std::string& text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

// The host's half of the language. It is part of every program, and in none of their texts.
std::string host_language() {
  std::string language;
  for (const EmbeddedText& file : host_texts()) language += file.text;
  return language;
}

// A program (code.h) for the host's compiler: the text before the first function, with the host's
// half of the language put in, and each function with its entry. Lines count from the start of a
// function, elsewhere from the start of the program.
struct Sources {
  std::string head;
  std::vector<std::string> functions;
};
Sources sources_of(const std::string& program) {
  constexpr std::string_view kFunction = "\nnamespace of_",
                             kInclude = "#include \"anneal/kernels/cuda/device/host.h\"\n";
  size_t at = program.find(kFunction);
  Sources sources;
  std::string head = program.substr(0, at == std::string::npos ? at : at + 1);
  if (const size_t include = head.find(kInclude); include != std::string::npos) {
    const auto line = std::count(head.begin(), head.begin() + static_cast<long>(include), '\n') + 2;
    head.replace(
        include, kInclude.size(),
        fmt::format("#line 1 \"host.h\"\n{}#line {} \"program\"\n", host_language(), line));
  }
  sources.head =
      "#define ANNEAL_ON_HOST\n#define __device__\n#define __forceinline__ inline\n"
      "#line 1 \"program\"\n" +
      head;
  while (at != std::string::npos) {
    const size_t next = program.find(kFunction, at + 1);
    const std::string text = program.substr(at + 1, next - at - 1);
    const size_t brace = text.find(" {\n");
    check(brace != std::string::npos, "a function's text is in a namespace");
    const size_t prefix = kFunction.size() - 1;
    const std::string name = text.substr(prefix, brace - prefix);
    sources.functions.push_back(fmt::format("{} {{\n#line 1 \"{}\"\n{}\nEXPORT({})\n",
                                            text.substr(0, brace), name, text.substr(brace + 3),
                                            name));
    at = next;
  }
  return sources;
}

class HostCompiler final : public Compiler {
 public:
  explicit HostCompiler(bool counts) : counts_(counts) {}
  std::vector<std::byte> compile(const std::string& program, int architecture) const override;
  std::string identity() const override;

 private:
  const bool counts_;
};

std::string HostCompiler::identity() const {
  const std::string compiler = find_compiler();
  const TemporaryFolder folder;
  Process process({compiler, "--version"}, folder, "version");
  const bool good = process.wait();
  const std::string version = file_text(folder.file("version"));
  if (!good)
    fail(ErrorCode::kDevice, fmt::format("{} does not tell its version: {}", compiler, version));
  const std::string language = host_language();
  return fmt::format("{} {}: {}, {:016x}", compiler, fmt::join(flags(counts_), " "),
                     version.substr(0, version.find('\n')),
                     hash_bytes(std::as_bytes(std::span(language))));
}

std::vector<std::byte> HostCompiler::compile(const std::string& program, int) const {
  const Sources sources = sources_of(program);
  const std::string compiler = find_compiler();
  const TemporaryFolder folder;
  // Every object repeats the head, so that a few functions are not worth one of their own.
  constexpr size_t kFewest = 4;
  const size_t count = std::clamp<size_t>(sources.functions.size() / kFewest, 1,
                                          static_cast<size_t>(std::max(1, hardware_threads())));
  std::vector<Process> processes;
  for (size_t i = 0; i < count; ++i) {
    std::string text = sources.head;
    for (size_t k = i; k < sources.functions.size(); k += count) text += sources.functions[k];
    const std::string source = folder.file(fmt::format("{}.cc", i));
    write(source, text);
    std::vector<std::string> command = {compiler};
    for (std::string& flag : flags(counts_)) command.push_back(std::move(flag));
    command.insert(command.end(), {"-o", folder.file(fmt::format("{}.so", i)), source});
    processes.emplace_back(std::move(command), folder, fmt::format("{}.log", i));
  }
  std::vector<bool> good;
  for (Process& process : processes) good.push_back(process.wait());
  for (size_t i = 0; i < count; ++i)
    if (!good[i])
      fail(ErrorCode::kInternal, fmt::format("{} refuses a device program:\n{}", compiler,
                                             file_text(folder.file(fmt::format("{}.log", i)))));
  ByteWriter image;
  image.raw(std::as_bytes(std::span(kMagic)));
  image.blob(std::as_bytes(std::span(program)));
  image.number<uint64_t>(count);
  for (size_t i = 0; i < count; ++i)
    image.blob(read_file(folder.file(fmt::format("{}.so", i))).bytes);
  return image.take();
}

}  // namespace

const Compiler& host_compiler(bool counts) {
  static const HostCompiler compilers[] = {HostCompiler(false), HostCompiler(true)};
  return compilers[counts ? 1 : 0];
}

HostImage read_host_image(const void* image) {
  const char* at = static_cast<const char*>(image);
  if (std::memcmp(at, kMagic.data(), kMagic.size()) != 0)
    fail(ErrorCode::kDevice, "this is no image for the emulated device");
  at += kMagic.size();
  const auto number = [&at] {
    uint64_t value;
    std::memcpy(&value, at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  const auto blob = [&] {
    const uint64_t size = number();
    const std::string_view bytes(at, size);
    at += size;
    return bytes;
  };
  HostImage read;
  read.program = blob();
  for (uint64_t count = number(); count > 0; --count) read.objects.push_back(blob());
  return read;
}

}  // namespace anneal::cuda
