// cuDNN for a device: the library, and the device as cuDNN sees it.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "anneal/core/result.h"
#include "anneal/kernels/cuda/cudnn/card_properties.h"
#include "anneal/kernels/cuda/cudnn/descriptor.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"

namespace anneal::cuda {

// Its version and the properties of one device. Thread-safe.
struct CudnnDevice {
  const Cudnn* cudnn = nullptr;
  uint32_t version = 0;  // 91900 is 9.19.0
  Descriptor properties;
  std::string json;  // of the properties
  PropertyFigures figures;
  std::string why_not;  // if not empty, the reason why there are none of these
};
// Of a card the card's own properties; of a device to build for those that
// ANNEAL_CUDNN_PROPERTIES names, else those of the card whose figures the architecture has. Made at
// first use; the device keeps it.
const CudnnDevice& cudnn_of(GpuDevice& device);

// A handle, and who uses it: one call at a time sets its stream and executes.
class CudnnHandle {
 public:
  // Fails with kDevice.
  CudnnHandle(const Cudnn& cudnn, std::shared_ptr<Context> context);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  // Fails with kDevice. REQUIRES: the context is current, as in GpuStream::call().
  void execute(CUstream stream, const Descriptor& plan, const Descriptor& pack);

 private:
  const Cudnn& cudnn_;
  const std::shared_ptr<Context> context_;
  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;
};
// That of a card: made at first use; the device keeps it. Fails with kDevice.
CudnnHandle& cudnn_handle_of(GpuDevice& device);

// The properties of a card as JSON, for ANNEAL_CUDNN_PROPERTIES on another machine. Fails with
// kDevice.
std::string read_properties(const Cudnn& cudnn, Context& context);

}  // namespace anneal::cuda
