// The known contents of memory that slots of a plan share: a step may overwrite its inputs.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/graph/op/infer.h"

namespace anneal {

// Contents of small buffers. Not thread-safe.
class KnownMemory {
 public:
  // number_of: what a size of the plan is, or unknown(). REQUIRES: plan outlives it.
  KnownMemory(const Plan& plan, std::function<Size(Size)> number_of)
      : plan_(plan), number_of_(std::move(number_of)) {}

  // A step wrote the slot.
  void write(uint32_t slot, const Fact& fact);
  // The elements of a slot of that type, row-major; nullopt if none is known.
  std::optional<std::vector<Size>> read(uint32_t slot, const Type& type) const;

 private:
  struct Buffer {
    DataType dtype = DataType::kI64;
    std::vector<Size> elements;
  };
  std::optional<std::vector<size_t>> places(uint32_t slot, const Shape& shape) const;

  const Plan& plan_;
  std::function<Size(Size)> number_of_;
  std::map<uint32_t, Buffer> buffers_;  // by base
};

}  // namespace anneal
