// The fake cuDNN as a program sees it: the library is opened by its path, and descriptors are made
// by its functions.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "anneal/tests/virtual_card/cudnn/abi.h"

namespace anneal::fake_cudnn {

// NOLINTBEGIN(readability-identifier-naming)
struct Library {
#define X(function, result, ...) result (*function)(__VA_ARGS__) = nullptr;
  FAKE_CUDNN_FUNCTIONS(X)
#undef X
  uint64_t (*fake_cudnn_executions)() = nullptr;
};
// NOLINTEND(readability-identifier-naming)

// Null: there is no such library.
inline const Library* open_library(const std::string& path) {
  static std::map<std::string, Library> opened;
  if (const auto found = opened.find(path); found != opened.end()) return &found->second;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  Library& made = opened[path];
#define X(function, result, ...) \
  made.function = reinterpret_cast<decltype(made.function)>(dlsym(handle, #function));
  FAKE_CUDNN_FUNCTIONS(X)
#undef X
  made.fake_cudnn_executions =
      reinterpret_cast<uint64_t (*)()>(dlsym(handle, "fake_cudnn_executions"));
  return &made;
}
inline const Library& fake_library() {
  const Library* const opened = open_library(FAKE_CUDNN);
  EXPECT_NE(opened, nullptr) << dlerror();
  return *opened;
}

inline std::string last_error(const Library& library) {
  std::string text(1024, '\0');
  library.cudnnGetLastErrorString(text.data(), text.size());
  return text.substr(0, text.find('\0'));
}

template <class T>
constexpr AttributeType attribute_type = CUDNN_TYPE_INT64;
template <>
inline constexpr AttributeType attribute_type<int32_t> = CUDNN_TYPE_INT32;
template <>
inline constexpr AttributeType attribute_type<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr AttributeType attribute_type<double> = CUDNN_TYPE_DOUBLE;
template <>
inline constexpr AttributeType attribute_type<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr AttributeType attribute_type<char> = CUDNN_TYPE_CHAR;
template <>
inline constexpr AttributeType attribute_type<void*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr AttributeType attribute_type<DataType> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr AttributeType attribute_type<PointwiseMode> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr AttributeType attribute_type<ConvolutionMode> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr AttributeType attribute_type<ReductionOperator> =
    CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
inline constexpr AttributeType attribute_type<HeuristicMode> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr AttributeType attribute_type<NumericalNote> = CUDNN_TYPE_NUMERICAL_NOTE;
template <>
inline constexpr AttributeType attribute_type<BehaviorNote> = CUDNN_TYPE_BEHAVIOR_NOTE;

// A descriptor, and the first status of its calls that is no success.
class Made {
 public:
  Made(const Library& library, DescriptorType type) : library_(&library) {
    note(library.cudnnBackendCreateDescriptor(type, &handle_));
  }
  Made(Made&& from) noexcept
      : library_(from.library_),
        handle_(std::exchange(from.handle_, nullptr)),
        status_(from.status_),
        error_(std::move(from.error_)) {}
  Made& operator=(Made&&) = delete;
  ~Made() {
    if (handle_ != nullptr) library_->cudnnBackendDestroyDescriptor(handle_);
  }

  template <class T>
  Made& set(Attribute attribute, const std::vector<T>& elements) {
    return set_raw(attribute, attribute_type<T>, static_cast<int64_t>(elements.size()),
                   elements.data());
  }
  template <class T>
  Made& set(Attribute attribute, T element) {
    return set_raw(attribute, attribute_type<T>, 1, &element);
  }
  Made& set(Attribute attribute, const std::string& text) {
    return set_raw(attribute, CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text.data());
  }
  Made& set(Attribute attribute, const Made& descriptor) {
    return set_raw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor.handle_);
  }
  Made& set(Attribute attribute, const std::vector<const Made*>& descriptors) {
    std::vector<BackendDescriptor> all;
    for (const Made* each : descriptors) all.push_back(each->handle_);
    return set_raw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(all.size()),
                   all.data());
  }
  Made& set_raw(Attribute attribute, AttributeType type, int64_t count, const void* elements) {
    note(library_->cudnnBackendSetAttribute(handle_, attribute, type, count, elements));
    return *this;
  }
  Made& finalize() {
    note(library_->cudnnBackendFinalize(handle_));
    return *this;
  }
  // All elements. Empty, and a status, if the call fails.
  template <class T>
  std::vector<T> get(Attribute attribute) {
    int64_t count = 0;
    note(library_->cudnnBackendGetAttribute(handle_, attribute, attribute_type<T>, 0, &count,
                                            nullptr));
    std::vector<T> all(static_cast<size_t>(count));
    note(library_->cudnnBackendGetAttribute(handle_, attribute, attribute_type<T>, count, &count,
                                            all.data()));
    return all;
  }

  BackendDescriptor handle() const { return handle_; }
  Status status() const { return status_; }
  const std::string& error() const { return error_; }
  const Library& library() const { return *library_; }

 private:
  void note(Status status) {
    if (status == CUDNN_STATUS_SUCCESS || status_ != CUDNN_STATUS_SUCCESS) return;
    status_ = status;
    error_ = last_error(*library_);
  }

  const Library* library_;
  BackendDescriptor handle_ = nullptr;
  Status status_ = CUDNN_STATUS_SUCCESS;
  std::string error_;
};

using Sizes = std::vector<int64_t>;

inline Sizes row_major(const Sizes& dims) {
  Sizes strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}
inline Sizes channels_last(const Sizes& dims) {
  Sizes strides(dims.size(), 1);
  int64_t next = dims[1];
  for (size_t i = dims.size(); i-- > 2; next *= dims[i]) strides[i] = next;
  strides[0] = next;
  return strides;
}

struct TensorSpec {
  int64_t uid = 1;
  Sizes dims = {}, strides = {};  // no strides: row-major
  DataType type = CUDNN_DATA_FLOAT;
  bool is_virtual = false, is_by_value = false;
  int64_t alignment = 16;
};
// Not finalized.
inline Made begin_tensor(const Library& library, const TensorSpec& spec) {
  Made made(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, spec.uid)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, spec.type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, spec.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, spec.strides.empty() ? row_major(spec.dims) : spec.strides)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, spec.alignment);
  if (spec.is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (spec.is_by_value) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  return made;
}
inline Made tensor(const Library& library, const TensorSpec& spec) {
  Made made = begin_tensor(library, spec);
  made.finalize();
  return made;
}

struct ConvolutionSpec {
  Sizes strides = {1, 1}, pre = {1, 1}, post = {1, 1}, dilations = {1, 1};
  DataType compute = CUDNN_DATA_FLOAT;
};
inline Made begin_convolution(const Library& library, const ConvolutionSpec& spec) {
  Made made(library, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(spec.strides.size()))
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, spec.compute)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spec.strides)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spec.pre)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spec.post)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, spec.dilations);
  return made;
}
inline Made convolution(const Made& x, const Made& w, const Made& y, const ConvolutionSpec& spec) {
  Made part = begin_convolution(x.library(), spec);
  part.finalize();
  Made made(x.library(), CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f)
      .finalize();
  return made;
}
inline Made transposed_convolution(const Made& y, const Made& w, const Made& x,
                                   const ConvolutionSpec& spec) {
  Made part = begin_convolution(x.library(), spec);
  part.finalize();
  Made made(x.library(), CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, part)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, x)
      .finalize();
  return made;
}

inline Made pointwise(PointwiseMode mode, const Made& x, const Made* b, const Made& y,
                      const Made* t = nullptr) {
  Made part(x.library(), CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  part.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) part.set(CUDNN_ATTR_POINTWISE_AXIS, int64_t{1});
  part.finalize();
  Made made(x.library(), CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  if (t != nullptr) made.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t);
  made.finalize();
  return made;
}
inline Made product(const Made& a, const Made& b, const Made& c) {
  Made part(a.library(), CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  part.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  Made made(a.library(), CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, part)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
      .finalize();
  return made;
}
inline Made reduction(ReductionOperator mode, const Made& x, const Made& y) {
  Made part(x.library(), CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  part.set(CUDNN_ATTR_REDUCTION_OPERATOR, mode)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  Made made(x.library(), CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, part)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
      .finalize();
  return made;
}
inline Made attention(const Made& q, const Made& k, const Made& v, const Made* scale,
                      const Made& o) {
  Made made(q.library(), CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q)
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, k)
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, v)
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, o);
  if (scale != nullptr) made.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, *scale);
  made.finalize();
  return made;
}

inline Made graph(const std::vector<const Made*>& operations) {
  Made made(operations[0]->library(), CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).finalize();
  return made;
}

// Figures of an H100 as its makers publish them; another version of the device where asked for.
inline std::string property_text(int64_t device_version = 900) {
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
         R"("regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
         R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
         R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"totalGlobalMem":85041348608,"smClockRateKHz":1980000,)"
         R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceVer":)" +
         std::to_string(device_version) +
         R"(,"driverVer":13000,"deviceName":"NVIDIA H100 80GB HBM3"})";
}
inline Made properties(const Library& library, const std::string& text = property_text()) {
  Made made(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  made.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, text).finalize();
  return made;
}

inline Made heuristics(const Made& graph, const Made* properties,
                       HeuristicMode mode = CUDNN_HEUR_MODE_A) {
  Made made(graph.library(), CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  made.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (properties != nullptr) made.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties);
  made.finalize();
  return made;
}
// Those that the second query gives.
inline std::vector<Made> configs_of(const Made& heuristics) {
  const Library& library = heuristics.library();
  int64_t count = 0;
  EXPECT_EQ(library.cudnnBackendGetAttribute(heuristics.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
            CUDNN_STATUS_SUCCESS);
  std::vector<Made> made;
  std::vector<BackendDescriptor> handles;
  for (int64_t i = 0; i < count; ++i) {
    made.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(made.back().handle());
  }
  EXPECT_EQ(library.cudnnBackendGetAttribute(heuristics.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                             handles.data()),
            CUDNN_STATUS_SUCCESS);
  while (static_cast<int64_t>(made.size()) > count) made.pop_back();
  return made;
}
inline Made engine_of(const Made& config) {
  Made made(config.library(), CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  BackendDescriptor handle = made.handle();
  int64_t count = 0;
  EXPECT_EQ(
      config.library().cudnnBackendGetAttribute(config.handle(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
      CUDNN_STATUS_SUCCESS);
  return made;
}
inline Made plan(const Made& config, const Made* properties) {
  Made made(config.library(), CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  made.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (properties != nullptr) made.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties);
  made.finalize();
  return made;
}
inline Made loaded_plan(const Library& library, const std::string& json, const Made* properties) {
  Made made(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  made.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json);
  if (properties != nullptr) made.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties);
  made.finalize();
  return made;
}
inline std::string json_of(Made& plan) {
  const std::vector<char> text = plan.get<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  return {text.begin(), text.end()};
}

}  // namespace anneal::fake_cudnn
