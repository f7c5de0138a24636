#include "anneal/importer/node/node_attributes.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/onnx/tensor_proto.h"

namespace anneal {
namespace {

using anneal_onnx::AttributeProto;

// Files before IR version 2 leave the type out.
bool holds(const AttributeProto& data, int type) {
  if (data.has_type() && data.type() != AttributeProto::UNDEFINED) return data.type() == type;
  switch (type) {
    case AttributeProto::FLOAT:
      return data.has_f();
    case AttributeProto::INT:
      return data.has_i();
    case AttributeProto::STRING:
      return data.has_s();
    case AttributeProto::TENSOR:
      return data.has_t();
    case AttributeProto::FLOATS:
      return data.floats_size() > 0;
    case AttributeProto::INTS:
      return data.ints_size() > 0;
    case AttributeProto::STRINGS:
      return data.strings_size() > 0;
    default:
      return false;
  }
}

}  // namespace

const AttributeProto* NodeAttributes::find(std::string_view name, int type) {
  for (Attribute& attribute : attributes_) {
    if (attribute.name != name) continue;
    attribute.read = true;
    if (!holds(*attribute.data, type))
      fail(ErrorCode::kInvalidModel,
           fmt::format("attribute \"{}\" is not of kind {}", name,
                       AttributeProto::AttributeType_Name(
                           static_cast<AttributeProto::AttributeType>(type))));
    return attribute.data;
  }
  return nullptr;
}

bool NodeAttributes::has_attribute(std::string_view name) const {
  return std::ranges::any_of(attributes_,
                             [&](const Attribute& attribute) { return attribute.name == name; });
}

void NodeAttributes::ignore(std::string_view name) {
  for (Attribute& attribute : attributes_) attribute.read |= attribute.name == name;
}

std::optional<int64_t> NodeAttributes::find_integer(std::string_view name) {
  const auto* data = find(name, AttributeProto::INT);
  return data ? std::optional(data->i()) : std::nullopt;
}

int64_t NodeAttributes::integer(std::string_view name) {
  if (const auto value = find_integer(name)) return *value;
  fail(ErrorCode::kInvalidModel, fmt::format("attribute \"{}\" is missing", name));
}

int64_t NodeAttributes::integer(std::string_view name, int64_t otherwise) {
  return find_integer(name).value_or(otherwise);
}

bool NodeAttributes::flag(std::string_view name, bool otherwise) {
  const int64_t value = integer(name, otherwise);
  if (value != 0 && value != 1)
    fail(ErrorCode::kInvalidModel, fmt::format("attribute \"{}\" is {}, not 0 or 1", name, value));
  return value == 1;
}

float NodeAttributes::number(std::string_view name, float otherwise) {
  const auto* data = find(name, AttributeProto::FLOAT);
  return data ? data->f() : otherwise;
}

std::string NodeAttributes::text(std::string_view name, std::string_view otherwise) {
  const auto* data = find(name, AttributeProto::STRING);
  return data ? data->s() : std::string(otherwise);
}

int NodeAttributes::choice(std::string_view name, std::initializer_list<std::string_view> allowed) {
  const std::string value = text(name, *allowed.begin());
  const auto* found = std::ranges::find(allowed, value);
  if (found == allowed.end())
    fail(ErrorCode::kInvalidModel, fmt::format("attribute \"{}\" is \"{}\"", name, value));
  return static_cast<int>(found - allowed.begin());
}

std::optional<std::vector<int64_t>> NodeAttributes::find_integers(std::string_view name) {
  const auto* data = find(name, AttributeProto::INTS);
  if (!data) return std::nullopt;
  return std::vector<int64_t>(data->ints().begin(), data->ints().end());
}

std::optional<std::vector<float>> NodeAttributes::find_numbers(std::string_view name) {
  const auto* data = find(name, AttributeProto::FLOATS);
  if (!data) return std::nullopt;
  return std::vector<float>(data->floats().begin(), data->floats().end());
}

std::optional<std::vector<std::string>> NodeAttributes::find_texts(std::string_view name) {
  const auto* data = find(name, AttributeProto::STRINGS);
  if (!data) return std::nullopt;
  return std::vector<std::string>(data->strings().begin(), data->strings().end());
}

std::optional<Tensor> NodeAttributes::find_tensor(std::string_view name, int32_t* narrow_type) {
  const auto* data = find(name, AttributeProto::TENSOR);
  if (!data) return std::nullopt;
  const int32_t type = data->t().data_type();
  if (narrow_type) *narrow_type = is_narrow(type) ? type : 0;
  return with_context([&] { return fmt::format("attribute \"{}\"", name); },
                      [&] {
                        if (!narrow_type && is_narrow(type))
                          fail(ErrorCode::kUnsupported,
                               fmt::format("{} in an attribute", onnx_type_name(type)));
                        return to_tensor(data->t(), folder_);
                      });
}

std::vector<CustomAttribute> NodeAttributes::all_attributes() {
  std::vector<CustomAttribute> all;
  for (Attribute& attribute : attributes_) {
    attribute.read = true;
    const AttributeProto& data = *attribute.data;
    CustomAttribute& to = all.emplace_back();
    to.name = attribute.name;
    if (holds(data, AttributeProto::INT))
      to.value = std::vector<int64_t>{data.i()};
    else if (holds(data, AttributeProto::INTS))
      to.value = std::vector<int64_t>(data.ints().begin(), data.ints().end());
    else if (holds(data, AttributeProto::FLOAT))
      to.value = std::vector<float>{data.f()};
    else if (holds(data, AttributeProto::FLOATS))
      to.value = std::vector<float>(data.floats().begin(), data.floats().end());
    else if (holds(data, AttributeProto::STRING))
      to.value = std::vector<std::string>{data.s()};
    else if (holds(data, AttributeProto::STRINGS))
      to.value = std::vector<std::string>(data.strings().begin(), data.strings().end());
    else if (holds(data, AttributeProto::TENSOR))
      to.value = *find_tensor(attribute.name);
    else
      fail(ErrorCode::kUnsupported,
           fmt::format("attribute \"{}\" is neither numbers, texts nor a tensor", attribute.name));
  }
  return all;
}

void NodeAttributes::expect_all_read() const {
  for (const Attribute& attribute : attributes_)
    if (!attribute.read)
      fail(ErrorCode::kUnsupported,
           fmt::format("attribute \"{}\" is not understood", attribute.name));
}

}  // namespace anneal
