#include "anneal/tests/virtual_card/cudnn/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <stdexcept>

#include "anneal/tests/virtual_card/cudnn/operation.h"

namespace anneal::fake_cudnn {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostElements = int64_t{1} << 40;

Tensor tensor_of(const Descriptor& d) {
  Tensor made;
  made.uid = d.integer(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  made.type = static_cast<DataType>(d.enumerator(CUDNN_ATTR_TENSOR_DATA_TYPE));
  made.dims = d.integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
  made.strides = d.integers(CUDNN_ATTR_TENSOR_STRIDES);
  made.alignment = d.integer(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  made.is_virtual = d.boolean(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  made.is_by_value = d.boolean(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  const auto bad = [&](Attribute attribute, const std::string& why) {
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("{} of tensor {}: {}", name_of(attribute), made.uid, why));
  };
  const size_t bytes = bytes_of(made.type);
  if (bytes == 0) bad(CUDNN_ATTR_TENSOR_DATA_TYPE, "a type that the library does not have");
  if (made.strides.size() != made.dims.size())
    bad(CUDNN_ATTR_TENSOR_STRIDES,
        fmt::format("{} strides of {} dimensions", made.strides.size(), made.dims.size()));
  int64_t count = 1;
  for (size_t i = 0; i < made.dims.size(); ++i) {
    if (made.dims[i] < 1 || made.dims[i] > kMostElements)
      bad(CUDNN_ATTR_TENSOR_DIMENSIONS, fmt::format("dimension {} is {}", i, made.dims[i]));
    if (made.strides[i] < 1 || made.strides[i] > kMostElements)
      bad(CUDNN_ATTR_TENSOR_STRIDES, fmt::format("stride {} is {}", i, made.strides[i]));
    count *= made.dims[i];
    if (count > kMostElements) bad(CUDNN_ATTR_TENSOR_DIMENSIONS, "too many elements");
  }
  // Elements may not share memory: by ascending strides, each is beyond what lies below it.
  std::vector<size_t> order(made.dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(made.strides[i], made.dims[i]); });
  int64_t below = 0;
  for (const size_t i : order) {
    if (made.dims[i] == 1) continue;
    if (made.strides[i] <= below)
      bad(CUDNN_ATTR_TENSOR_STRIDES,
          fmt::format("elements share memory: strides {} of dimensions {}", made.strides,
                      made.dims));
    below += (made.dims[i] - 1) * made.strides[i];
  }
  if (made.alignment <= 0 || made.alignment % static_cast<int64_t>(bytes) != 0 ||
      (made.alignment & (made.alignment - 1)) != 0)
    bad(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
        fmt::format("{} bytes, for elements of {}", made.alignment, bytes));
  if (made.is_virtual && made.is_by_value)
    bad(CUDNN_ATTR_TENSOR_IS_BY_VALUE, "the tensor is virtual, too");
  if (made.is_by_value && count != 1)
    bad(CUDNN_ATTR_TENSOR_IS_BY_VALUE, fmt::format("{} elements", count));
  if (d.integer(CUDNN_ATTR_TENSOR_VECTOR_COUNT, 1) != 1)
    bad(CUDNN_ATTR_TENSOR_VECTOR_COUNT, "the fake has no vectorized tensors");
  if (d.integer(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, -1) != -1)
    bad(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, "the fake has no vectorized tensors");
  if (d.has(CUDNN_ATTR_TENSOR_REORDERING_MODE) &&
      d.enumerator(CUDNN_ATTR_TENSOR_REORDERING_MODE) != 0)
    bad(CUDNN_ATTR_TENSOR_REORDERING_MODE, "the fake has no reordering");
  return made;
}

template <class List>
auto find_tensor(const List& uids, int64_t uid) {
  return std::ranges::find_if(uids, [&](const auto& each) { return each.second == uid; });
}

// Each tensor is written once at most, virtual ones exactly once, and one with memory; each
// operation comes after those that write what it reads.
OperationGraph joined(const Descriptor& d) {
  OperationGraph graph;
  std::vector<Operation> left;
  for (const DescriptorRef& each : d.value(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
    const auto& part = static_cast<const OperationMeaning&>(*each->meaning).part;
    left.push_back(part.operations[0]);
    for (const auto& [uid, tensor] : part.tensors)
      if (const auto [found, is_new] = graph.tensors.emplace(uid, tensor);
          !is_new && found->second != tensor)
        refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
               fmt::format("CUDNN_ATTR_OPERATIONGRAPH_OPS: two different tensors have the id {}",
                           uid));
  }
  std::set<int64_t> written;
  for (const Operation& operation : left)
    for (const auto& [name, uid] : operation.outputs)
      if (!written.insert(uid).second)
        refuse(CUDNN_STATUS_BAD_PARAM,
               fmt::format("CUDNN_ATTR_OPERATIONGRAPH_OPS: two operations write tensor {}", uid));
  for (const auto& [uid, tensor] : graph.tensors) {
    if (tensor.is_virtual && !written.contains(uid))
      refuse(CUDNN_STATUS_BAD_PARAM,
             fmt::format("CUDNN_ATTR_OPERATIONGRAPH_OPS: no operation writes the virtual tensor {}",
                         uid));
    if (tensor.is_by_value && written.contains(uid))
      refuse(CUDNN_STATUS_BAD_PARAM,
             fmt::format("CUDNN_ATTR_OPERATIONGRAPH_OPS: tensor {} is a value, and an operation "
                         "writes it",
                         uid));
  }
  if (std::ranges::all_of(written, [&](int64_t uid) { return graph.tensors.at(uid).is_virtual; }))
    refuse(CUDNN_STATUS_BAD_PARAM, "CUDNN_ATTR_OPERATIONGRAPH_OPS: every result is virtual");
  std::set<int64_t> done;
  while (!left.empty()) {
    const auto next = std::ranges::find_if(left, [&](const Operation& operation) {
      return std::ranges::all_of(operation.inputs, [&](const auto& input) {
        return !written.contains(input.second) || done.contains(input.second);
      });
    });
    if (next == left.end())
      refuse(CUDNN_STATUS_BAD_PARAM, "CUDNN_ATTR_OPERATIONGRAPH_OPS: the operations form a circle");
    for (const auto& [name, uid] : next->outputs) done.insert(uid);
    graph.operations.push_back(std::move(*next));
    left.erase(next);
  }
  return graph;
}

#define X(name, value) name,
constexpr DataType kTypes[] = {FAKE_CUDNN_DATA_TYPES(X)};
#undef X
DataType type_of(const std::string& name) {
  const auto* const found =
      std::ranges::find_if(kTypes, [&](DataType type) { return name == name_of(type); });
  if (found == std::end(kTypes)) throw std::invalid_argument(name);
  return *found;
}

Json json_of(const Tensor& t) {
  return {{"name", std::to_string(t.uid)},
          {"dataType", name_of(t.type)},
          {"dim", t.dims},
          {"stride", t.strides},
          {"isVirtual", t.is_virtual},
          {"isByValue", t.is_by_value},
          {"vectCount", 1},
          {"vectDim", -1},
          {"ptrAlignment", t.alignment},
          {"reordering", "CUDNN_TENSOR_REORDERING_NONE"}};
}
Json json_of(const Operation& o) {
  return {{"type", o.type},       {"compute", o.compute}, {"inputs", o.inputs},
          {"outputs", o.outputs}, {"mode", o.mode},       {"pre", o.pre},
          {"post", o.post},       {"strides", o.strides}, {"dilations", o.dilations},
          {"alpha", o.alpha},     {"beta", o.beta},       {"lower", o.lower},
          {"upper", o.upper},     {"slope", o.slope},     {"factor", o.factor},
          {"axis", o.axis}};
}

}  // namespace

int64_t Tensor::count() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

bool Tensor::is_dense() const {
  int64_t last = 0;  // the place of the last element
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return last + 1 == count();
}

size_t bytes_of(DataType type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
      return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN:
      return 1;
    default:
      return 0;
  }
}

std::shared_ptr<const Meaning> graph_meaning_of(const Descriptor& d) {
  if (d.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    auto made = std::make_shared<TensorMeaning>();
    made->tensor = tensor_of(d);
    return made;
  }
  if (d.type == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) {
    auto made = std::make_shared<ConvolutionMeaning>();
    made->part = convolution_of(d);
    return made;
  }
  if (d.type == CUDNN_BACKEND_POINTWISE_DESCRIPTOR || d.type == CUDNN_BACKEND_MATMUL_DESCRIPTOR ||
      d.type == CUDNN_BACKEND_REDUCTION_DESCRIPTOR) {
    check_part(d);
    return std::make_shared<Meaning>();
  }
  if (d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    auto made = std::make_shared<GraphMeaning>();
    made->graph = joined(d);
    return made;
  }
  auto made = std::make_shared<OperationMeaning>();
  made->part = operation_of(d);
  return made;
}

Json json_of(const OperationGraph& graph) {
  Json tensors = Json::array(), operations = Json::array();
  for (const auto& [uid, tensor] : graph.tensors) tensors.push_back(json_of(tensor));
  for (const Operation& operation : graph.operations) operations.push_back(json_of(operation));
  return {{"tensors", tensors}, {"operations", operations}};
}

OperationGraph graph_of(const Json& json) {
  OperationGraph graph;
  try {
    for (const Json& t : json.at("tensors")) {
      Tensor read{std::stoll(t.at("name").get<std::string>()),
                  type_of(t.at("dataType").get<std::string>()),
                  t.at("dim"),
                  t.at("stride"),
                  t.at("ptrAlignment"),
                  t.at("isVirtual"),
                  t.at("isByValue")};
      graph.tensors.emplace(read.uid, read);
    }
    for (const Json& o : json.at("operations")) {
      Operation read;
      o.at("type").get_to(read.type);
      o.at("compute").get_to(read.compute);
      o.at("inputs").get_to(read.inputs);
      o.at("outputs").get_to(read.outputs);
      o.at("mode").get_to(read.mode);
      o.at("pre").get_to(read.pre);
      o.at("post").get_to(read.post);
      o.at("strides").get_to(read.strides);
      o.at("dilations").get_to(read.dilations);
      o.at("alpha").get_to(read.alpha);
      o.at("beta").get_to(read.beta);
      o.at("lower").get_to(read.lower);
      o.at("upper").get_to(read.upper);
      o.at("slope").get_to(read.slope);
      o.at("factor").get_to(read.factor);
      o.at("axis").get_to(read.axis);
      graph.operations.push_back(read);
    }
  } catch (const std::exception& error) {
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: {}", error.what()));
  }
  return graph;
}

}  // namespace anneal::fake_cudnn
