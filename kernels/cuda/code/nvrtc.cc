#include "anneal/kernels/cuda/code/nvrtc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/api/libraries.h"

namespace anneal::cuda {
namespace {

// Arithmetic is defined to the bit: a * b + c is not contracted.
constexpr std::array<const char*, 3> kFlags = {"-std=c++17", "--fmad=false", "-default-device"};
constexpr const char* kProgramName = "program";

const Nvrtc& nvrtc() {
  const LibraryTable<Nvrtc>& opened = nvrtc_library();
  if (!opened.table)
    fail(ErrorCode::kDevice,
         fmt::format("device code cannot be compiled without NVRTC, which comes with CUDA 12 or 13 "
                     "({}): name its folder in ANNEAL_CUDA_LIB_PATH",
                     opened.why_not));
  return *opened.table;
}

void check_nvrtc(nvrtcResult result, std::string_view what) {
  if (result != NVRTC_SUCCESS)
    fail(ErrorCode::kDevice,
         fmt::format("{}: {}", what, nvrtc_library().table->nvrtcGetErrorString(result)));
}

std::string_view program_line(std::string_view text, size_t number) {
  for (; number > 1; --number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// The log, and behind each message "program(12): error: ..." line 12.
std::string with_lines(std::string_view log, std::string_view program) {
  std::string text;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    text.append(line).append("\n");
    const std::string prefix = fmt::format("{}(", kProgramName);
    size_t number = 0;
    if (line.starts_with(prefix) &&
        std::from_chars(line.data() + prefix.size(), line.data() + line.size(), number).ec ==
            std::errc{})
      text += fmt::format("    | {}\n", program_line(program, number));
  }
  return text;
}

struct Program {
  const Nvrtc& api;
  nvrtcProgram handle = nullptr;
  Program(const Nvrtc& table, const std::string& text) : api(table) {
    check_nvrtc(api.nvrtcCreateProgram(&handle, text.c_str(), kProgramName, 0, nullptr, nullptr),
                "giving NVRTC a program");
  }
  ~Program() {
    if (handle != nullptr) api.nvrtcDestroyProgram(&handle);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
};

class NvrtcCompiler final : public Compiler {
 public:
  std::vector<std::byte> compile(const std::string& program, int architecture) const override;
  std::string identity() const override;
};

// The words behind `label` in a line of the text; "" if there is none.
std::string words_behind(std::string_view text, std::string_view label) {
  const size_t at = text.find(label);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + label.size());
  return std::string(text.substr(0, text.find('\n')));
}

// "13.0.88 build CL-36424714". NVRTC tells its version without the update, and updates may compile
// otherwise; its PTX names both. The file is not asked: copies of one build differ in it.
std::string build_of_nvrtc() {
  const Nvrtc& api = nvrtc();
  Program made(api, "");
  const char* const option = "--std=c++17";
  check_nvrtc(api.nvrtcCompileProgram(made.handle, 1, &option), "asking NVRTC for its build");
  size_t size = 0;
  check_nvrtc(api.nvrtcGetPTXSize(made.handle, &size), "asking NVRTC for its build");
  std::string text(size, '\0');
  check_nvrtc(api.nvrtcGetPTX(made.handle, text.data()), "asking NVRTC for its build");
  const std::string build = words_behind(text, "Compiler Build ID: ");
  std::string version = words_behind(text, "Cuda compilation tools, release ");
  if (const size_t at = version.find(", V"); at != std::string::npos) version.erase(0, at + 3);
  if (!build.empty() && !version.empty()) return fmt::format("{} build {}", version, build);
  int major = 0, minor = 0;
  check_nvrtc(api.nvrtcVersion(&major, &minor), "asking NVRTC for its version");
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(nvrtc_library().path, ignored);
  return fmt::format("{}.{} of {} bytes", major, minor, bytes);
}

std::string NvrtcCompiler::identity() const {
  static const std::string build = build_of_nvrtc();
  return fmt::format("NVRTC {} {}", build, fmt::join(kFlags, " "));
}

void refuse_unknown_architecture(int architecture) {
  int count = 0;
  check_nvrtc(nvrtc().nvrtcGetNumSupportedArchs(&count), "asking NVRTC for its architectures");
  std::vector<int> known(static_cast<size_t>(std::max(count, 0)));
  check_nvrtc(nvrtc().nvrtcGetSupportedArchs(known.data()), "asking NVRTC for its architectures");
  if (std::find(known.begin(), known.end(), architecture) == known.end())
    fail(ErrorCode::kDevice,
         fmt::format("{} does not compile for sm_{}, only for sm_{}: use another CUDA version",
                     nvrtc_compiler().identity(), architecture, fmt::join(known, ", sm_")));
}

std::vector<std::byte> NvrtcCompiler::compile(const std::string& program, int architecture) const {
  const Nvrtc& api = nvrtc();
  refuse_unknown_architecture(architecture);
  const Program made(api, program);
  const std::string arch = fmt::format("-arch=sm_{}", architecture);
  std::vector<const char*> options(kFlags.begin(), kFlags.end());
  options.push_back(arch.c_str());
  const nvrtcResult result =
      api.nvrtcCompileProgram(made.handle, static_cast<int>(options.size()), options.data());
  if (result == NVRTC_ERROR_COMPILATION) {
    size_t size = 0;
    check_nvrtc(api.nvrtcGetProgramLogSize(made.handle, &size), "asking NVRTC for its log");
    std::string log(size, '\0');
    check_nvrtc(api.nvrtcGetProgramLog(made.handle, log.data()), "asking NVRTC for its log");
    fail(ErrorCode::kInternal, fmt::format("NVRTC refuses a device program for sm_{}:\n{}",
                                           architecture, with_lines(log.c_str(), program)));
  }
  check_nvrtc(result, fmt::format("compiling a device program for sm_{} with NVRTC", architecture));
  size_t size = 0;
  check_nvrtc(api.nvrtcGetCUBINSize(made.handle, &size), "asking NVRTC for machine code");
  std::vector<std::byte> cubin(size);
  check_nvrtc(api.nvrtcGetCUBIN(made.handle, reinterpret_cast<char*>(cubin.data())),
              "asking NVRTC for machine code");
  return cubin;
}

}  // namespace

const Compiler& nvrtc_compiler() {
  static const NvrtcCompiler compiler;
  return compiler;
}

}  // namespace anneal::cuda
