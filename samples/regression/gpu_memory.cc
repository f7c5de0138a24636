#include "gpu_memory.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

// Where libengine finds it: in the folders of ANNEAL_CUDA_LIB_PATH, then where the system has it.
void* open_driver() {
  const char* const folders = std::getenv("ANNEAL_CUDA_LIB_PATH");
  std::istringstream paths(folders != nullptr ? folders : "");
  for (std::string folder; std::getline(paths, folder, ':');)
    if (void* const library = dlopen((folder + "/libcuda.so.1").c_str(), RTLD_NOW)) return library;
  if (void* const library = dlopen("libcuda.so.1", RTLD_NOW)) return library;
  throw std::runtime_error("libcuda.so.1, NVIDIA's driver, is not found");
}

template <class Function>
Function* driver_function(const char* name) {
  static void* const library = open_driver();
  void* const found = dlsym(library, name);
  if (found == nullptr) throw std::runtime_error("libcuda.so.1 has no " + std::string(name));
  return reinterpret_cast<Function*>(found);
}

// Every function of the driver returns 0 on success. An address of the GPU is a 64-bit number
// there, which is passed as a pointer is.
template <class... Arguments>
void call(const char* name, Arguments... arguments) {
  if (const int status = driver_function<int(Arguments...)>(name)(arguments...); status != 0)
    throw std::runtime_error(std::string(name) + " fails with status " + std::to_string(status));
}

// The context that libengine and CUDA's runtime use, too, current to this thread for a scope.
class PrimaryContext {
 public:
  explicit PrimaryContext(int device) {
    call("cuInit", 0U);
    call("cuDeviceGet", &device_, device);
    call("cuDevicePrimaryCtxRetain", &context_, device_);
    call("cuCtxPushCurrent_v2", context_);
  }
  ~PrimaryContext() {
    driver_function<int(void**)>("cuCtxPopCurrent_v2")(&context_);
    driver_function<int(int)>("cuDevicePrimaryCtxRelease_v2")(device_);
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

 private:
  int device_ = 0;
  void* context_ = nullptr;
};

// On the default stream, from and to any memory, and waits.
void copy(int device, std::byte* to, const std::byte* from, size_t bytes) {
  const PrimaryContext context(device);
  void* const stream = nullptr;
  call("cuMemcpyAsync", to, from, bytes, stream);
  call("cuStreamSynchronize", stream);
}

}  // namespace

GpuMemory::GpuMemory(int device, size_t bytes) : device_(device) {
  const PrimaryContext context(device);
  call("cuMemAlloc_v2", &address_, bytes);
}

GpuMemory::~GpuMemory() {
  const PrimaryContext context(device_);
  driver_function<int(std::byte*)>("cuMemFree_v2")(address_);
}

void GpuMemory::write(std::span<const std::byte> bytes) const {
  copy(device_, address_, bytes.data(), bytes.size());
}

void GpuMemory::read(std::span<std::byte> bytes) const {
  copy(device_, bytes.data(), address_, bytes.size());
}

anneal::TensorView GpuMemory::view(const anneal::Dims& dims) const {
  anneal::TensorView view = anneal::row_major_view(anneal::DataType::kF32, dims, address_);
  view.place = {anneal::MemoryKind::kCuda, device_};
  return view;
}
