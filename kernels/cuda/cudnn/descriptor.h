// Descriptors of cuDNN's backend API.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/kernels/cuda/api/cudnn_api.h"
#include "anneal/kernels/cuda/api/libraries.h"

namespace anneal::cuda {

// Owns one; empty where it could not be made.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Cudnn& cudnn, cudnnBackendDescriptor_t handle)
      : cudnn_(&cudnn), handle_(handle) {}
  ~Descriptor() {
    if (handle_ != nullptr) cudnn_->cudnnBackendDestroyDescriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept
      : cudnn_(other.cudnn_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(cudnn_, other.cudnn_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudnnBackendDescriptor_t handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  const Cudnn* cudnn_ = nullptr;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// cuDNN's name of the type in which an attribute's elements travel.
template <class T>
constexpr cudnnBackendAttributeType_t attribute_type() = delete;
#define ANNEAL_ATTRIBUTE_TYPE(type, name)                        \
  template <>                                                    \
  constexpr cudnnBackendAttributeType_t attribute_type<type>() { \
    return CUDNN_TYPE_##name;                                    \
  }
ANNEAL_ATTRIBUTE_TYPE(bool, BOOLEAN)
ANNEAL_ATTRIBUTE_TYPE(int32_t, INT32)
ANNEAL_ATTRIBUTE_TYPE(int64_t, INT64)
ANNEAL_ATTRIBUTE_TYPE(float, FLOAT)
ANNEAL_ATTRIBUTE_TYPE(double, DOUBLE)
ANNEAL_ATTRIBUTE_TYPE(char, CHAR)
ANNEAL_ATTRIBUTE_TYPE(cudnnDataType_t, DATA_TYPE)
ANNEAL_ATTRIBUTE_TYPE(cudnnConvolutionMode_t, CONVOLUTION_MODE)
ANNEAL_ATTRIBUTE_TYPE(cudnnBackendHeurMode_t, HEUR_MODE)
ANNEAL_ATTRIBUTE_TYPE(cudnnBackendNumericalNote_t, NUMERICAL_NOTE)
ANNEAL_ATTRIBUTE_TYPE(cudnnBackendBehaviorNote_t, BEHAVIOR_NOTE)
ANNEAL_ATTRIBUTE_TYPE(cudnnPointwiseMode_t, POINTWISE_MODE)
ANNEAL_ATTRIBUTE_TYPE(cudnnReduceTensorOp_t, REDUCTION_OPERATOR_TYPE)
ANNEAL_ATTRIBUTE_TYPE(cudnnBackendDescriptor_t, BACKEND_DESCRIPTOR)
#undef ANNEAL_ATTRIBUTE_TYPE

// A sequence of calls. Behind the first that fails no other is made, so that only the end need be
// asked.
class CudnnCalls {
 public:
  explicit CudnnCalls(const Cudnn& cudnn) : cudnn_(cudnn) {}
  const Cudnn& cudnn() const { return cudnn_; }
  bool failed() const { return !failure_.empty(); }
  // "finalizing a plan: CUDNN_STATUS_NOT_SUPPORTED (what cuDNN says about it)".
  const std::string& failure() const { return failure_; }
  // False, and the failure, if the status is none of success. `what` is the call's purpose.
  bool check(cudnnStatus_t status, std::string_view what);

  Descriptor make(cudnnBackendDescriptorType_t type);
  template <class T>
  void set_all(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
               std::span<const T> values) {
    set_raw(descriptor, name, attribute_type<T>(), static_cast<int64_t>(values.size()),
            values.data());
  }
  template <class T>
  void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, const T& value) {
    set_raw(descriptor, name, attribute_type<T>(), 1, &value);
  }
  void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
           const Descriptor& value) {
    set(descriptor, name, value.handle());
  }
  // Memory, not descriptors.
  void set_pointers(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                    std::span<void* const> values) {
    set_raw(descriptor, name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(values.size()),
            values.data());
  }
  void finalize(const Descriptor& descriptor, std::string_view what);
  // As many as there are, at most `most`.
  template <class T>
  std::vector<T> get(const Descriptor& descriptor, cudnnBackendAttributeName_t name, int64_t most) {
    std::vector<T> values(static_cast<size_t>(most));
    values.resize(
        static_cast<size_t>(get_raw(descriptor, name, attribute_type<T>(), most, values.data())));
    return values;
  }
  // cuDNN's count of an attribute's elements; 0 if it gives none.
  int64_t count(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type);
  // Descriptors that cuDNN fills: as many as it gives of at most `most`.
  std::vector<Descriptor> get_descriptors(const Descriptor& descriptor,
                                          cudnnBackendAttributeName_t name,
                                          cudnnBackendDescriptorType_t type, int64_t most);

 private:
  void set_raw(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void* values);
  int64_t get_raw(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t most, void* values);

  const Cudnn& cudnn_;
  std::string failure_;
};

}  // namespace anneal::cuda
