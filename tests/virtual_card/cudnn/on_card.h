// A context, streams and memory of the virtual card for programs that open its libcuda.so.1.
#pragma once
#include <bit>
#include <cstring>
#include <deque>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/kernels/cuda/api/driver.h"
#include "anneal/tests/virtual_card/cudnn/client.h"

namespace anneal::fake_cudnn {

inline const cuda::Driver& card_driver() {
  using namespace cuda;
  static const Driver opened = [] {
    Driver made;
    setenv("ANNEAL_VIRTUAL_CARD_COUNT", "2", 1);
    void* const handle = dlopen(VIRTUAL_CARD, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
#define X(function, symbol, ...) \
  made.function = reinterpret_cast<decltype(made.function)>(dlsym(handle, #symbol));
    ANNEAL_FOR_EACH_DRIVER_FUNCTION(X)
#undef X
    made.cuInit(0);
    return made;
  }();
  return opened;
}

using Numbers = std::vector<float>;

inline Numbers random_numbers(size_t count, unsigned seed, float most = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-most, most);
  Numbers made(count);
  for (float& each : made) each = static_cast<float>(to_f32(to_f16(distribution(random))));
  return made;
}

class OnCard : public ::testing::Test {
 protected:
  explicit OnCard(int device = 0) : device_(device) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    driver.cuDevicePrimaryCtxRetain(&context, device);
    driver.cuCtxPushCurrent(context);
    driver.cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(library.cudnnCreate(&handle), CUDNN_STATUS_SUCCESS) << last_error(library);
    EXPECT_EQ(library.cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
  }
  ~OnCard() override {
    library.cudnnDestroy(handle);
    driver.cuStreamSynchronize(stream);
    driver.cuStreamDestroy(stream);
    for (const cuda::CUdeviceptr each : memory_) driver.cuMemFree(each);
    driver.cuCtxPopCurrent(&context);
    driver.cuDevicePrimaryCtxRelease(device_);
  }

  cuda::CUdeviceptr allocate(size_t bytes) {
    cuda::CUdeviceptr address = 0;
    EXPECT_EQ(driver.cuMemAlloc(&address, bytes), cuda::CUDA_SUCCESS);
    memory_.push_back(address);
    return address;
  }
  template <class T>
  cuda::CUdeviceptr upload(const std::vector<T>& values) {
    const cuda::CUdeviceptr to = allocate(values.size() * sizeof(T));
    copy(to, reinterpret_cast<cuda::CUdeviceptr>(values.data()), values.size() * sizeof(T));
    return to;
  }
  cuda::CUdeviceptr upload_half(const Numbers& values) {
    std::vector<Float16> narrow;
    for (const float each : values) narrow.push_back(to_f16(each));
    return upload(narrow);
  }
  template <class T>
  std::vector<T> download(cuda::CUdeviceptr from, size_t count) {
    std::vector<T> values(count);
    copy(reinterpret_cast<cuda::CUdeviceptr>(values.data()), from, count * sizeof(T));
    EXPECT_EQ(driver.cuStreamSynchronize(stream), cuda::CUDA_SUCCESS);
    return values;
  }
  Numbers download_half(cuda::CUdeviceptr from, size_t count) {
    Numbers wide;
    for (const Float16 each : download<Float16>(from, count)) wide.push_back(to_f32(each));
    return wide;
  }
  void copy(cuda::CUdeviceptr to, cuda::CUdeviceptr from, size_t bytes) {
    EXPECT_EQ(driver.cuMemcpyAsync(to, from, bytes, stream), cuda::CUDA_SUCCESS);
  }

  // The plan of the configuration with this index, for the current device.
  Made plan_of(const Made& of_graph, size_t index = 0) {
    EXPECT_EQ(of_graph.status(), CUDNN_STATUS_SUCCESS) << of_graph.error();
    std::vector<Made> configs = configs_of(heuristics(of_graph, nullptr));
    EXPECT_GT(configs.size(), index);
    Made made = plan(configs.at(index), nullptr);
    EXPECT_EQ(made.status(), CUDNN_STATUS_SUCCESS) << made.error();
    return made;
  }
  using Memory = std::vector<std::pair<int64_t, cuda::CUdeviceptr>>;  // by uid
  Made pack_of(const Memory& memory, cuda::CUdeviceptr workspace = 0) {
    Made made(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    Sizes ids;
    std::vector<void*> pointers;
    for (const auto& [uid, address] : memory) {
      ids.push_back(uid);
      pointers.push_back(std::bit_cast<void*>(address));
    }
    made.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::bit_cast<void*>(workspace))
        .finalize();
    EXPECT_EQ(made.status(), CUDNN_STATUS_SUCCESS) << made.error();
    return made;
  }
  Status execute(const Made& plan, const Made& pack) {
    return library.cudnnBackendExecute(handle, plan.handle(), pack.handle());
  }
  // With a workspace of the plan's size.
  void run(Made& plan, const Memory& memory) {
    const int64_t bytes = plan.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)[0];
    const Made pack = pack_of(memory, bytes == 0 ? 0 : allocate(static_cast<size_t>(bytes)));
    EXPECT_EQ(execute(plan, pack), CUDNN_STATUS_SUCCESS) << last_error(library);
  }

  const cuda::Driver& driver = card_driver();
  const Library& library = fake_library();
  cuda::CUcontext context = nullptr;
  cuda::CUstream stream = nullptr;
  Handle handle = nullptr;

 private:
  const int device_;
  std::vector<cuda::CUdeviceptr> memory_;
};

}  // namespace anneal::fake_cudnn
