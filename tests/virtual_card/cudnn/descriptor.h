// Descriptors of the fake cuDNN: typed attributes, checked when they are set and when the
// descriptor is finalized.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/cudnn/abi.h"

namespace anneal::fake_cudnn {

// The call fails: its status, and what cudnnGetLastErrorString() tells.
struct Failure {
  Status status;
  std::string text;
};
[[noreturn]] void refuse(Status status, std::string text);

struct Descriptor;
using DescriptorRef = std::shared_ptr<const Descriptor>;

struct Value {
  AttributeType type = CUDNN_TYPE_INT64;
  int64_t count = 0;
  std::vector<std::byte> bytes;            // of all elements
  std::vector<DescriptorRef> descriptors;  // instead of bytes
};

// What a finalized descriptor stands for: a tensor, an operation, a graph, a plan.
struct Meaning {
  Meaning() = default;
  Meaning(const Meaning&) = delete;
  virtual ~Meaning() = default;
};

struct Descriptor {
  DescriptorType type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool is_final = false;
  std::map<Attribute, Value> values;
  std::shared_ptr<const Meaning> meaning;  // once final

  // Fail unless the attribute was set.
  const Value& value(Attribute attribute) const;
  bool has(Attribute attribute) const { return values.contains(attribute); }
  std::vector<int64_t> integers(Attribute attribute) const;  // of INT64 or INT32
  int64_t integer(Attribute attribute) const { return integers(attribute)[0]; }
  int64_t integer(Attribute attribute, int64_t otherwise) const {
    return has(attribute) ? integer(attribute) : otherwise;
  }
  double real(Attribute attribute, double otherwise) const;  // of FLOAT or DOUBLE
  bool boolean(Attribute attribute) const;                   // false: not set
  uint32_t enumerator(Attribute attribute) const;
  std::string text(Attribute attribute) const;  // of CHAR
  const Descriptor& descriptor(Attribute attribute) const;
  template <class T>
  const T& meaning_of(Attribute attribute) const {
    return static_cast<const T&>(*descriptor(attribute).meaning);
  }
};

// The elements of the caller's array. Fails unless the descriptor's type has the attribute, with
// this type and number of elements. Elements that are descriptors: `descriptors`.
void set_attribute(Descriptor& descriptor, Attribute attribute, AttributeType type, int64_t count,
                   const void* elements, const std::vector<DescriptorRef>& descriptors);
// Fails unless each attribute that the type needs is set, and each descriptor in it is final.
void check_attributes(const Descriptor& descriptor);
size_t bytes_of(AttributeType type);

// The elements of an attribute of a finalized descriptor, which may be computed.
struct Answer {
  AttributeType type = CUDNN_TYPE_INT64;
  std::vector<std::byte> bytes;
};
template <class T>
Answer answer_of(AttributeType type, std::span<const T> elements) {
  const auto bytes = std::as_bytes(elements);
  return {type, {bytes.begin(), bytes.end()}};
}

}  // namespace anneal::fake_cudnn
