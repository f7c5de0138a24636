// Work that fake libraries put on streams of the virtual card: a function of the host, in order
// with kernels and copies, also under capture, and with their checks of bounds, values and order.
#pragma once
#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/kernels/cuda/api/cuda_api.h"

namespace anneal::virtual_card {

// Memory of the device that a work uses: rows of `bytes` bytes, each `pitch` bytes behind the one
// before it.
struct LibraryMemory {
  cuda::CUdeviceptr address = 0;
  size_t bytes = 0;
  size_t rows = 1, pitch = 0;
  bool is_read = false, is_written = false;
};

struct LibraryWork {
  const char* name = nullptr;  // for messages: "cublasLtMatmul"; copied
  const LibraryMemory* memory = nullptr;
  size_t memory_count = 0;
  // Called when the stream comes to the work, once for each launch of a graph that holds it.
  // memory[i] is the host's address of the first byte of memory[i]. It must not throw.
  void (*run)(void* state, std::byte* const* memory) = nullptr;
  void* state = nullptr;
  // Called once, when neither a stream nor a graph has the work, and where the call fails.
  void (*destroy)(void* state) = nullptr;
};

extern "C" {
// In the current context. Fails as cuLaunchKernel() does; memory that is in no allocation is
// CUDA_ERROR_INVALID_VALUE. What is read must have values when the work is done.
cuda::CUresult virtual_card_library_work(cuda::CUstream stream, const LibraryWork* work);
// Of the current context: 90 is sm_90. 0: no context is current.
int virtual_card_current_architecture();
// Of the current context; -1: no context is current.
int virtual_card_current_device();
}

// The function of the libcuda.so.1 that this process has opened, from whatever folder; null where
// it is not the virtual card's.
template <class F>
F* function_of_card(const char* name) {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        constexpr std::string_view kName = "/libcuda.so.1";
        if (!std::string_view(info->dlpi_name).ends_with(kName)) return 0;
        *static_cast<std::string*>(found) = info->dlpi_name;
        return 1;
      },
      &path);
  void* const driver = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(driver, name));
}

// For fake libraries, which link nothing of the card. `run` gets the host's address of each memory.
inline cuda::CUresult put_library_work(cuda::CUstream stream, const char* name,
                                       const std::vector<LibraryMemory>& memory,
                                       std::function<void(std::byte* const*)> run) {
  using Run = std::function<void(std::byte* const*)>;
  auto* const put =
      function_of_card<decltype(virtual_card_library_work)>("virtual_card_library_work");
  if (put == nullptr) return cuda::CUDA_ERROR_NOT_INITIALIZED;
  LibraryWork work{.name = name, .memory = memory.data(), .memory_count = memory.size()};
  work.state = new Run(std::move(run));
  work.run = [](void* state, std::byte* const* at) { (*static_cast<Run*>(state))(at); };
  work.destroy = [](void* state) { delete static_cast<Run*>(state); };
  return put(stream, &work);
}

}  // namespace anneal::virtual_card
