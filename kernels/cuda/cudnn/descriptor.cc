#include "anneal/kernels/cuda/cudnn/descriptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace anneal::cuda {

bool CudnnCalls::check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return true;
  std::array<char, 1024> details = {};
  cudnn_.cudnnGetLastErrorString(details.data(), details.size() - 1);
  const std::string_view text = details.data();
  failure_ = fmt::format("{}: {}{}", what, cudnn_.cudnnGetErrorString(status),
                         text.empty() ? "" : fmt::format(" ({})", text));
  return false;
}

Descriptor CudnnCalls::make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t handle = nullptr;
  if (failed() || !check(cudnn_.cudnnBackendCreateDescriptor(type, &handle),
                         fmt::format("making a descriptor of type {}", static_cast<int>(type))))
    return {};
  return {cudnn_, handle};
}

void CudnnCalls::finalize(const Descriptor& descriptor, std::string_view what) {
  if (!failed()) check(cudnn_.cudnnBackendFinalize(descriptor.handle()), what);
}

void CudnnCalls::set_raw(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (failed()) return;
  check(cudnn_.cudnnBackendSetAttribute(descriptor.handle(), name, type, count, values),
        fmt::format("setting attribute {}", static_cast<int>(name)));
}

int64_t CudnnCalls::get_raw(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t most, void* values) {
  int64_t count = 0;
  if (failed() ||
      !check(cudnn_.cudnnBackendGetAttribute(descriptor.handle(), name, type, most, &count, values),
             fmt::format("reading attribute {}", static_cast<int>(name))))
    return 0;
  return std::clamp<int64_t>(count, 0, most);
}

int64_t CudnnCalls::count(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type) {
  int64_t count = 0;
  if (failed() ||
      !check(cudnn_.cudnnBackendGetAttribute(descriptor.handle(), name, type, 0, &count, nullptr),
             fmt::format("reading attribute {}", static_cast<int>(name))))
    return 0;
  return std::max<int64_t>(count, 0);
}

std::vector<Descriptor> CudnnCalls::get_descriptors(const Descriptor& descriptor,
                                                    cudnnBackendAttributeName_t name,
                                                    cudnnBackendDescriptorType_t type,
                                                    int64_t most) {
  std::vector<Descriptor> made;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < most && !failed(); ++i) {
    made.push_back(make(type));
    handles.push_back(made.back().handle());
  }
  if (failed()) return {};
  const int64_t given =
      get_raw(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, handles.data());
  // Their objects go; the others hold what cuDNN has put into them.
  while (static_cast<int64_t>(made.size()) > given) made.pop_back();
  return made;
}

}  // namespace anneal::cuda
