#include "anneal/tests/virtual_card/cudnn/descriptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace anneal::fake_cudnn {
namespace {

// Reals may be given as FLOAT or DOUBLE.
constexpr auto kReal = CUDNN_TYPE_DOUBLE;

struct Rule {
  DescriptorType of;
  Attribute attribute;
  AttributeType type;
  bool is_required = false;
  int64_t most = 1;  // elements
  DescriptorType element = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
};

constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
constexpr auto kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kBackward = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kPointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR;
constexpr auto kOfPointwise = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
constexpr auto kMatmul = CUDNN_BACKEND_MATMUL_DESCRIPTOR;
constexpr auto kOfMatmul = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
constexpr auto kReduction = CUDNN_BACKEND_REDUCTION_DESCRIPTOR;
constexpr auto kOfReduction = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
constexpr auto kAttention = CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR;
constexpr auto kOfReshape = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
constexpr auto kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
constexpr auto kHeuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
constexpr auto kEngine = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
constexpr auto kConfig = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
constexpr auto kKnob = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
constexpr auto kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
constexpr auto kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr auto kProperties = CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;
constexpr auto kObject = CUDNN_TYPE_BACKEND_DESCRIPTOR;
constexpr int64_t kMany = 1 << 20;

constexpr Rule kRules[] = {
    {kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, true},
    {kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, true, kMostDims},
    {kTensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, true, kMostDims},
    {kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, true},
    {kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, true},
    {kTensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN},
    {kTensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN},
    {kTensor, CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64},
    {kTensor, CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, CUDNN_TYPE_INT64},
    {kTensor, CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE},

    {kConvolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, true},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, true},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, true},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, true, 3},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, true, 3},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, true, 3},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, true, 3},

    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kObject, true, 1, kConvolution},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kObject, true},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kObject, true},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kObject, true},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, kReal},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, kReal},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kObject, true, 1,
     kConvolution},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kObject, true},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kObject, true},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kObject, true},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, kReal},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, kReal},

    {kPointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, true},
    {kPointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, true},
    {kPointwise, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, kReal},
    {kPointwise, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, kReal},
    {kPointwise, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, kReal},
    {kPointwise, CUDNN_ATTR_POINTWISE_ELU_ALPHA, kReal},
    {kPointwise, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, kReal},
    {kPointwise, CUDNN_ATTR_POINTWISE_SWISH_BETA, kReal},
    {kPointwise, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64},
    {kOfPointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kObject, true, 1, kPointwise},
    {kOfPointwise, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kObject, true},
    {kOfPointwise, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kObject},
    {kOfPointwise, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kObject},
    {kOfPointwise, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kObject, true},
    {kOfPointwise, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, kReal},
    {kOfPointwise, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, kReal},

    {kMatmul, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, true},
    {kMatmul, CUDNN_ATTR_MATMUL_PADDING_VALUE, kReal},
    {kOfMatmul, CUDNN_ATTR_OPERATION_MATMUL_DESC, kObject, true, 1, kMatmul},
    {kOfMatmul, CUDNN_ATTR_OPERATION_MATMUL_ADESC, kObject, true},
    {kOfMatmul, CUDNN_ATTR_OPERATION_MATMUL_BDESC, kObject, true},
    {kOfMatmul, CUDNN_ATTR_OPERATION_MATMUL_CDESC, kObject, true},

    {kReduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, true},
    {kReduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, true},
    {kReduction, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN},
    {kOfReduction, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kObject, true, 1, kReduction},
    {kOfReduction, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kObject, true},
    {kOfReduction, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kObject, true},

    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, kObject, true},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, kObject, true},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, kObject, true},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, kObject, true},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, kObject},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, kObject},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, kObject},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, kObject},
    {kOfReshape, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kObject, true},
    {kOfReshape, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kObject, true},

    // The elements are operations of any type.
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kObject, true, 64, kGraph},
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kObject, true, 1, kGraph},
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, true},
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, kObject, false, 1, kProperties},
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32},
    {kEngine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, kObject, true, 1, kGraph},
    {kEngine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, true},
    {kEngine, CUDNN_ATTR_ENGINE_DEVICEPROP, kObject, false, 1, kProperties},
    {kConfig, CUDNN_ATTR_ENGINECFG_ENGINE, kObject, true, 1, kEngine},
    {kConfig, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kObject, false, 64, kKnob},
    {kKnob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, true},
    {kKnob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, true},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kObject, false, 1, kConfig},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, kObject, false, 1, kProperties},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, false, kMany},
    {kPack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, true, 256},
    {kPack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, true, 256},
    {kPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR},
    {kProperties, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32},
    {kProperties, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE},
    {kProperties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, false, kMany},
};

const Rule& rule_of(DescriptorType type, Attribute attribute) {
  const auto found = std::ranges::find_if(
      kRules, [&](const Rule& rule) { return rule.of == type && rule.attribute == attribute; });
  if (found == std::ranges::end(kRules))
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("{} cannot be set in a {}", name_of(attribute), name_of(type)));
  return *found;
}

bool is_operation(DescriptorType type) {
  return std::string_view(name_of(type)).find("_OPERATION_") != std::string_view::npos;
}

void check_element(const Rule& rule, const DescriptorRef& element) {
  if (element == nullptr)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
           fmt::format("{}: a descriptor that is null or destroyed", name_of(rule.attribute)));
  const bool fits = rule.attribute == CUDNN_ATTR_OPERATIONGRAPH_OPS ? is_operation(element->type)
                                                                    : element->type == rule.element;
  if (!fits)
    refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
           fmt::format("{}: a {}", name_of(rule.attribute), name_of(element->type)));
}

}  // namespace

void refuse(Status status, std::string text) { throw Failure{status, std::move(text)}; }

size_t bytes_of(AttributeType type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

void set_attribute(Descriptor& descriptor, Attribute attribute, AttributeType type, int64_t count,
                   const void* elements, const std::vector<DescriptorRef>& descriptors) {
  if (descriptor.is_final)
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{} is set in a {} that is final",
                                               name_of(attribute), name_of(descriptor.type)));
  const Rule& rule = rule_of(descriptor.type, attribute);
  if (type != rule.type && !(rule.type == kReal && type == CUDNN_TYPE_FLOAT))
    refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
           fmt::format("{}: elements of type {}, not {}", name_of(attribute),
                       static_cast<int>(type), static_cast<int>(rule.type)));
  if (count < 1 || count > rule.most)
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {} elements, 1 to {} are allowed",
                                               name_of(attribute), count, rule.most));
  if (elements == nullptr)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, fmt::format("{}: null", name_of(attribute)));
  Value value{type, count, {}, descriptors};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (const DescriptorRef& each : descriptors) check_element(rule, each);
  } else {
    const auto* const bytes = static_cast<const std::byte*>(elements);
    value.bytes.assign(bytes, bytes + static_cast<size_t>(count) * bytes_of(type));
  }
  descriptor.values[attribute] = std::move(value);
}

void check_attributes(const Descriptor& descriptor) {
  if (descriptor.is_final)
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("a {} is finalized twice", name_of(descriptor.type)));
  for (const Rule& rule : kRules)
    if (rule.of == descriptor.type && rule.is_required && !descriptor.has(rule.attribute))
      refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{} is not set", name_of(rule.attribute)));
  for (const auto& [attribute, value] : descriptor.values)
    for (const DescriptorRef& each : value.descriptors)
      if (!each->is_final)
        refuse(
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
            fmt::format("{}: a {} that is not finalized", name_of(attribute), name_of(each->type)));
}

const Value& Descriptor::value(Attribute attribute) const {
  const auto found = values.find(attribute);
  if (found == values.end())
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{} is not set", name_of(attribute)));
  return found->second;
}

std::vector<int64_t> Descriptor::integers(Attribute attribute) const {
  const Value& from = value(attribute);
  std::vector<int64_t> all(static_cast<size_t>(from.count));
  if (from.type == CUDNN_TYPE_INT32) {
    std::vector<int32_t> narrow(all.size());
    std::memcpy(narrow.data(), from.bytes.data(), from.bytes.size());
    std::ranges::copy(narrow, all.begin());
  } else {
    std::memcpy(all.data(), from.bytes.data(), from.bytes.size());
  }
  return all;
}

double Descriptor::real(Attribute attribute, double otherwise) const {
  if (!has(attribute)) return otherwise;
  const Value& from = value(attribute);
  double wide = 0;
  float narrow = 0;
  if (from.type == CUDNN_TYPE_FLOAT) {
    std::memcpy(&narrow, from.bytes.data(), sizeof(narrow));
    return narrow;
  }
  std::memcpy(&wide, from.bytes.data(), sizeof(wide));
  return wide;
}

bool Descriptor::boolean(Attribute attribute) const {
  return has(attribute) && value(attribute).bytes[0] != std::byte{0};
}

uint32_t Descriptor::enumerator(Attribute attribute) const {
  uint32_t read = 0;
  std::memcpy(&read, value(attribute).bytes.data(), sizeof(read));
  return read;
}

std::string Descriptor::text(Attribute attribute) const {
  const auto& bytes = value(attribute).bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const Descriptor& Descriptor::descriptor(Attribute attribute) const {
  return *value(attribute).descriptors[0];
}

namespace {

template <class T>
const char* name_in(std::span<const std::pair<T, const char*>> names, T value) {
  const auto found = std::ranges::find(names, value, &std::pair<T, const char*>::first);
  return found == names.end() ? "(none)" : found->second;
}

}  // namespace

#define X(name, value) {name, #name},
const char* name_of(Attribute attribute) {
  constexpr std::pair<Attribute, const char*> kNames[] = { FAKE_CUDNN_ATTRIBUTES(X) };
  return name_in<Attribute>(kNames, attribute);
}
const char* name_of(DescriptorType type) {
  constexpr std::pair<DescriptorType, const char*> kNames[] = { FAKE_CUDNN_DESCRIPTOR_TYPES(X) };
  return name_in<DescriptorType>(kNames, type);
}
const char* name_of(DataType type) {
  constexpr std::pair<DataType, const char*> kNames[] = { FAKE_CUDNN_DATA_TYPES(X) };
  return name_in<DataType>(kNames, type);
}
#undef X

}  // namespace anneal::fake_cudnn
