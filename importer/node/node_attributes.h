// NodeAttributes: the attributes of an ONNX node, read by name and kind.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/graph/op/custom_attribute.h"

namespace anneal_onnx {
class AttributeProto;
}  // namespace anneal_onnx

namespace anneal {

// Records which attributes were read: after the row's function returns, an attribute that was not
// read is an error, so that a new attribute of a new opset is never ignored silently. Throws
// kInvalidModel for an attribute of another kind.
class NodeAttributes {
 public:
  struct Attribute {
    std::string_view name;
    const anneal_onnx::AttributeProto* data = nullptr;
    bool read = false;
  };

  // folder: of external data; must outlive this.
  NodeAttributes(std::vector<Attribute> attributes, const std::string& folder)
      : attributes_(std::move(attributes)), folder_(folder) {}

  // Without `otherwise` the attribute is required.
  bool has_attribute(std::string_view name) const;
  void ignore(std::string_view name);  // it has no meaning here, or none for inference
  int64_t integer(std::string_view name);
  int64_t integer(std::string_view name, int64_t otherwise);
  bool flag(std::string_view name, bool otherwise);
  float number(std::string_view name, float otherwise);
  std::string text(std::string_view name, std::string_view otherwise);
  // The index of the attribute's text in allowed, whose first is the default.
  int choice(std::string_view name, std::initializer_list<std::string_view> allowed);
  std::optional<int64_t> find_integer(std::string_view name);
  std::optional<std::vector<int64_t>> find_integers(std::string_view name);
  std::optional<std::vector<float>> find_numbers(std::string_view name);
  std::optional<std::vector<std::string>> find_texts(std::string_view name);
  // narrow_type: where given, set to the element type if that is narrow (is_narrow()), else to 0;
  // null: narrow types are refused.
  std::optional<Tensor> find_tensor(std::string_view name, int32_t* narrow_type = nullptr);
  // As an operator from outside gets them. Fails with kUnsupported on graphs, types and sparse
  // tensors.
  std::vector<CustomAttribute> all_attributes();
  void expect_all_read() const;

 private:
  const anneal_onnx::AttributeProto* find(std::string_view name, int type);

  std::vector<Attribute> attributes_;
  const std::string& folder_;
};

}  // namespace anneal
