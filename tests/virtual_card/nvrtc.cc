// A libnvrtc.so.13 in front of NVRTC, for processes that use the virtual card: it hands every call
// on, and keeps the PTX of each program that is compiled in ANNEAL_VIRTUAL_CARD_PTX, under the
// SHA-256 of its cubin. The virtual card interprets that text where the product loads the cubin.
//
// NVRTC calls cuInit(), and a process that has called it must not fork: its child has no usable
// driver. So a fork() after a compilation ends the process. posix_spawn() calls no such handler.
//
// ANNEAL_VIRTUAL_CARD_NVRTC names NVRTC itself.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "anneal/core/hash/sha256.h"
#include "anneal/kernels/cuda/api/cuda_api.h"

namespace anneal::cuda {
namespace {

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "virtual card: %s\n", why.c_str());
  std::abort();
}

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') give_up(std::string("set ") + name);
  return value;
}

void* library() {
  static void* const opened = [] {
    const std::string path = setting("ANNEAL_VIRTUAL_CARD_NVRTC");
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) give_up(dlerror());
    return handle;
  }();
  return opened;
}

template <class F>
F* real(const char* name) {
  void* const found = dlsym(library(), name);
  if (found == nullptr) give_up(dlerror());
  return reinterpret_cast<F*>(found);
}

void forbid_forks() {
  static const int set = pthread_atfork(
      [] { give_up("fork() in a process that has used NVRTC: start programs by posix_spawn()"); },
      nullptr, nullptr);
  if (set != 0) give_up("pthread_atfork() failed");
}

// Written whole or not at all: several processes keep their programs in one folder.
void keep(const std::string& cubin, const std::string& ptx) {
  const std::filesystem::path folder = setting("ANNEAL_VIRTUAL_CARD_PTX");
  std::filesystem::create_directories(folder);
  const std::filesystem::path path =
      folder / (hex(sha256(std::as_bytes(std::span(cubin)))) + ".ptx");
  if (std::filesystem::exists(path)) return;
  std::string temporary = path.string() + ".XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) give_up("cannot write " + temporary);
  std::FILE* const out = fdopen(file, "w");
  const bool is_whole = std::fwrite(ptx.data(), 1, ptx.size(), out) == ptx.size();
  if (std::fclose(out) != 0 || !is_whole) give_up("cannot write " + temporary);
  std::filesystem::rename(temporary, path);
}

}  // namespace

extern "C" {

#define FORWARD(name, result, parameters, arguments) \
  result name parameters { return real<result parameters>(#name) arguments; }
FORWARD(nvrtcGetErrorString, const char*, (nvrtcResult code), (code))
FORWARD(nvrtcVersion, nvrtcResult, (int* major, int* minor), (major, minor))
FORWARD(nvrtcGetNumSupportedArchs, nvrtcResult, (int* count), (count))
FORWARD(nvrtcGetSupportedArchs, nvrtcResult, (int* architectures), (architectures))
FORWARD(nvrtcCreateProgram, nvrtcResult,
        (nvrtcProgram * program, const char* text, const char* name, int headers,
         const char* const* contents, const char* const* names),
        (program, text, name, headers, contents, names))
FORWARD(nvrtcDestroyProgram, nvrtcResult, (nvrtcProgram * program), (program))
FORWARD(nvrtcGetCUBINSize, nvrtcResult, (nvrtcProgram program, size_t* size), (program, size))
FORWARD(nvrtcGetPTXSize, nvrtcResult, (nvrtcProgram program, size_t* size), (program, size))
FORWARD(nvrtcGetPTX, nvrtcResult, (nvrtcProgram program, char* text), (program, text))
FORWARD(nvrtcGetProgramLogSize, nvrtcResult, (nvrtcProgram program, size_t* size), (program, size))
FORWARD(nvrtcGetProgramLog, nvrtcResult, (nvrtcProgram program, char* log), (program, log))
#undef FORWARD

// With lines of the program's text in its PTX, by which the virtual card names a fault's place.
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  forbid_forks();
  std::vector<const char*> all(options, options + count);
  all.push_back("-lineinfo");
  return real<nvrtcResult(nvrtcProgram, int, const char* const*)>("nvrtcCompileProgram")(
      program, static_cast<int>(all.size()), all.data());
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* image) {
  const nvrtcResult result =
      real<nvrtcResult(nvrtcProgram, char*)>("nvrtcGetCUBIN")(program, image);
  size_t image_bytes = 0, text_bytes = 0;
  if (result != NVRTC_SUCCESS || nvrtcGetCUBINSize(program, &image_bytes) != NVRTC_SUCCESS ||
      nvrtcGetPTXSize(program, &text_bytes) != NVRTC_SUCCESS)
    return result;
  std::string text(text_bytes, '\0');
  if (nvrtcGetPTX(program, text.data()) != NVRTC_SUCCESS) return result;
  text.resize(text.find('\0'));  // its size counts the end
  keep(std::string(image, image_bytes), text);
  return result;
}

}  // extern "C"

}  // namespace anneal::cuda
