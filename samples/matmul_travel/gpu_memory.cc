#include "gpu_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// The declarations of cuda.h that the program needs: a program that uses CUDA otherwise includes
// it.
struct GpuDriver {
  using Address = unsigned long long;
  int (*init)(unsigned) = nullptr;
  int (*get_device)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*release)(int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*allocate)(Address*, size_t) = nullptr;
  int (*free)(Address) = nullptr;
  int (*allocate_host)(void**, size_t, unsigned) = nullptr;
  int (*free_host)(void*) = nullptr;
  int (*create_stream)(void**, unsigned) = nullptr;
  int (*destroy_stream)(void*) = nullptr;
  int (*wait)(void*) = nullptr;
  int (*copy)(Address, Address, size_t, void*) = nullptr;

  void *library = nullptr, *context = nullptr, *stream = nullptr;
  int device = 0;
  bool is_retained = false;

  GpuDriver();
  ~GpuDriver();
  GpuDriver(const GpuDriver&) = delete;
  GpuDriver& operator=(const GpuDriver&) = delete;

  template <class F>
  void find(F& function, const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr) throw std::runtime_error(std::string("libcuda.so.1 lacks ") + name);
    std::memcpy(&function, &found, sizeof(found));
  }
};

namespace {

void check(int result, const char* function) {
  if (result != 0)
    throw std::runtime_error(std::string(function) + " fails with error " + std::to_string(result) +
                             " of CUDA");
}

// The context is current in this thread as long as the object lives.
class Current {
 public:
  explicit Current(GpuDriver& driver) : driver_(driver) {
    check(driver.push(driver.context), "cuCtxPushCurrent");
  }
  ~Current() {
    void* context = nullptr;
    driver_.pop(&context);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  GpuDriver& driver_;
};

GpuDriver::Address address_of(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory);
}

// The driver that Anneal opens: the first one in the folders of ANNEAL_CUDA_LIB_PATH, or else the
// one that the loader finds.
void* open_driver() {
  const char* const folders = std::getenv("ANNEAL_CUDA_LIB_PATH");
  std::stringstream list(folders != nullptr ? folders : "");
  for (std::string folder; std::getline(list, folder, ':');)
    if (void* const found = dlopen((folder + "/libcuda.so.1").c_str(), RTLD_NOW)) return found;
  if (void* const found = dlopen("libcuda.so.1", RTLD_NOW)) return found;
  throw std::runtime_error(dlerror());
}

}  // namespace

GpuDriver::GpuDriver() : library(open_driver()) {
  find(init, "cuInit");
  find(get_device, "cuDeviceGet");
  find(retain, "cuDevicePrimaryCtxRetain");
  find(release, "cuDevicePrimaryCtxRelease_v2");
  find(push, "cuCtxPushCurrent_v2");
  find(pop, "cuCtxPopCurrent_v2");
  find(allocate, "cuMemAlloc_v2");
  find(free, "cuMemFree_v2");
  find(allocate_host, "cuMemHostAlloc");
  find(free_host, "cuMemFreeHost");
  find(create_stream, "cuStreamCreate");
  find(destroy_stream, "cuStreamDestroy_v2");
  find(wait, "cuStreamSynchronize");
  find(copy, "cuMemcpyAsync");
  constexpr unsigned kNonBlocking = 1;
  check(init(0), "cuInit");
  check(get_device(&device, 0), "cuDeviceGet");
  check(retain(&context, device), "cuDevicePrimaryCtxRetain");
  is_retained = true;
  const Current current(*this);
  check(create_stream(&stream, kNonBlocking), "cuStreamCreate");
}

GpuDriver::~GpuDriver() {
  if (!is_retained) return;
  if (stream != nullptr) {
    const Current current(*this);
    destroy_stream(stream);
  }
  release(device);
}

GpuMemory::GpuMemory() : driver_(std::make_shared<GpuDriver>()) {}
GpuMemory::~GpuMemory() = default;

GpuMemory::Buffer GpuMemory::allocate(size_t bytes) {
  const Current current(*driver_);
  GpuDriver::Address address = 0;
  check(driver_->allocate(&address, bytes), "cuMemAlloc");
  return {std::bit_cast<std::byte*>(static_cast<uintptr_t>(address)),
          [driver = driver_](std::byte* memory) {
            const Current current_again(*driver);
            driver->free(address_of(memory));
          }};
}

GpuMemory::Buffer GpuMemory::copy_of(const anneal::ConstTensorView& from) {
  const size_t bytes = static_cast<size_t>(anneal::count(from.dims)) * anneal::size_of(from.dtype);
  Buffer buffer = allocate(bytes);
  copy(buffer.get(), from.data, bytes);
  return buffer;
}

void GpuMemory::copy(std::byte* to, const std::byte* from, size_t bytes) {
  const Current current(*driver_);
  check(driver_->copy(address_of(to), address_of(from), bytes, driver_->stream), "cuMemcpyAsync");
  check(driver_->wait(driver_->stream), "cuStreamSynchronize");
}

anneal::TensorView GpuMemory::view(const Buffer& buffer, const anneal::TensorView& like) {
  anneal::TensorView made = anneal::row_major_view(like.dtype, like.dims, buffer.get());
  made.place = {anneal::MemoryKind::kCuda, 0};
  return made;
}

GpuMemory::Speeds GpuMemory::measure(size_t bytes, double seconds) {
  std::byte* host = nullptr;
  {
    const Current current(*driver_);
    void* memory = nullptr;
    check(driver_->allocate_host(&memory, bytes, 0), "cuMemHostAlloc");
    host = static_cast<std::byte*>(memory);
  }
  const std::shared_ptr<std::byte> owner(host, [driver = driver_](std::byte* memory) {
    const Current current(*driver);
    driver->free_host(memory);
  });
  std::memset(host, 0, bytes);
  const Buffer one = allocate(bytes), two = allocate(bytes);
  // The median, in bytes per second.
  const auto speed = [&](std::byte* to, const std::byte* from) {
    copy(to, from, bytes);
    std::vector<double> times;
    for (double sum = 0; times.empty() || (sum < seconds && times.size() < 5);
         sum += times.back()) {
      const auto start = std::chrono::steady_clock::now();
      copy(to, from, bytes);
      times.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::ranges::sort(times);
    return static_cast<double>(bytes) / times[times.size() / 2];
  };
  Speeds speeds{};
  speeds.to_gpu = speed(one.get(), host);
  speeds.memory = 2 * speed(two.get(), one.get());
  speeds.from_gpu = speed(host, two.get());
  return speeds;
}
