#include "anneal/kernels/cuda/runtime/emulated_gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/core/library.h"
#include "anneal/core/version.h"

namespace anneal::cuda {
namespace {

constexpr const char* kLibrary = ANNEAL_EMULATED_LIBRARY;  // "libanneal_emulated.so.0.1"

// Of the library or program that this code is in; empty if the loader does not know.
std::filesystem::path own_folder() {
  Dl_info info;
  const std::filesystem::path path =
      dladdr(kLibrary, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
  return path.parent_path();
}

std::filesystem::path program_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

// Beside this code, else where the loader looks, else in lib/ beside the program's bin/: the
// address sanitizer's dlopen() does not know the run path of its caller.
Library open_library() {
  std::error_code ignored;
  const std::filesystem::path beside = own_folder() / kLibrary,
                              of_program = program_folder() / ".." / "lib" / kLibrary;
  const std::string first = std::filesystem::exists(beside, ignored) ? beside.string() : kLibrary;
  Result<Library> library = Library::open(first);
  if (!library && std::filesystem::exists(of_program, ignored))
    library = Library::open(of_program.string());
  if (!library)
    fail(ErrorCode::kDevice,
         fmt::format("the emulated device needs {}, which cannot be opened ({}): install it in the "
                     "folder of libengine, or choose another device or target",
                     kLibrary, library.reason()));
  return *library;
}

const EmulatedGpu& open_emulated_gpu() {
  using Entry = const EmulatedGpu*(std::string_view version);
  const Library library = open_library();
  auto* const entry = reinterpret_cast<Entry*>(library.find("anneal_emulated_gpu"));
  const EmulatedGpu* const gpu = entry != nullptr ? entry(version()) : nullptr;
  if (gpu == nullptr)
    fail(ErrorCode::kDevice, fmt::format("{} is not of version {}, as the library that opens it: "
                                         "install both from one build",
                                         kLibrary, version()));
  return *gpu;
}

}  // namespace

const EmulatedGpu& emulated_gpu() {
  static const EmulatedGpu& gpu = open_emulated_gpu();
  return gpu;
}

}  // namespace anneal::cuda
