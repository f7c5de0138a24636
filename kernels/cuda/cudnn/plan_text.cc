#include "anneal/kernels/cuda/cudnn/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "anneal/kernels/cuda/cudnn/operation_graph.h"

namespace anneal::cuda {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20;  // with compiled code
constexpr size_t kMostBefore = 200;             // bytes before the tensors
constexpr int kMostNesting = 16;
constexpr size_t kMostLetters = 255;  // of the device's name
constexpr std::string_view kTensors = "\"tensors\":[", kName = "\"deviceName\":\"";

std::string_view json_type(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_HALF:
      return "CUDNN_DATA_HALF";
    case CUDNN_DATA_BFLOAT16:
      return "CUDNN_DATA_BFLOAT16";
    case CUDNN_DATA_INT8:
      return "CUDNN_DATA_INT8";
    case CUDNN_DATA_UINT8:
      return "CUDNN_DATA_UINT8";
    case CUDNN_DATA_INT32:
      return "CUDNN_DATA_INT32";
    case CUDNN_DATA_INT64:
      return "CUDNN_DATA_INT64";
    case CUDNN_DATA_BOOLEAN:
      return "CUDNN_DATA_BOOLEAN";
    default:
      return "CUDNN_DATA_FLOAT";
  }
}

// As cuDNN 9.19 writes them.
std::string tensors_text(const Operations& operations) {
  std::string text;
  for (size_t i = 0; i < operations.tensors.size(); ++i) {
    const CudnnTensor& each = operations.tensors[i];
    text += fmt::format(
        "{}{{\"name\":\"{}\",\"dataType\":\"{}\",\"dim\":[{}],\"stride\":[{}],\"isVirtual\":{},"
        "\"isByValue\":{},\"vectCount\":1,\"vectDim\":-1,\"ptrAlignment\":{},"
        "\"reordering\":\"CUDNN_TENSOR_REORDERING_NONE\"}}",
        i == 0 ? "" : ",", unique_id(i), json_type(each.dtype), fmt::join(each.dims.span(), ","),
        fmt::join(each.strides.span(), ","), each.place == TensorPlace::kVirtual,
        each.place == TensorPlace::kValue, each.alignment);
  }
  return text + "]";
}

bool is_too_nested(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMostNesting) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// cuDNN copies the name into a fixed array.
bool has_long_name(std::string_view json) {
  for (size_t at = json.find("deviceName"); at != std::string_view::npos;
       at = json.find("deviceName", at + 1)) {
    if (at == 0 || !json.substr(at - 1).starts_with(kName)) return true;
    const size_t begin = at - 1 + kName.size(), end = json.find('"', begin);
    if (end == std::string_view::npos || end - begin > kMostLetters) return true;
  }
  return false;
}

}  // namespace

std::string why_unsafe(std::string_view json) {
  if (json.size() > kMostBytes) return fmt::format("the text has more than {} bytes", kMostBytes);
  if (is_too_nested(json))
    return fmt::format("the text is nested more than {} times", kMostNesting);
  // Such a name could be another one for cuDNN.
  if (json.find('\\') != std::string_view::npos) return "the text has an escaped character";
  if (has_long_name(json)) return "the text has no valid name of a device";
  return {};
}

std::string why_no_plan_of(std::string_view json, const Operations& operations) {
  if (std::string reason = why_unsafe(json); !reason.empty()) return reason;
  const auto is_repeated = [&](std::string_view key) {
    const size_t first = json.find(key);
    return first != std::string_view::npos && json.find(key, first + 1) != std::string_view::npos;
  };
  if (is_repeated("\"tensors\"") || is_repeated("\"operationGraph\""))
    return "the plan has two lists of tensors";
  const size_t tensors = json.find(kTensors);
  const std::string_view before = json.substr(0, tensors);
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_\",:{").find(c) != std::string_view::npos;
  };
  if (tensors == std::string_view::npos || before.size() > kMostBefore ||
      !std::ranges::all_of(before, is_plain))
    return "the plan has a form that Anneal does not know";
  if (!json.substr(tensors + kTensors.size()).starts_with(tensors_text(operations)))
    return "the plan has other tensors than the layer";
  return {};
}

}  // namespace anneal::cuda
