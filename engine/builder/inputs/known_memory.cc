#include "anneal/engine/builder/inputs/known_memory.h"

#include <algorithm>

#include "anneal/engine/plan_check.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {

void KnownMemory::write(uint32_t slot, const Fact& fact) {
  const uint32_t base = base_of(plan_, slot);
  if (!fact.elements && !buffers_.contains(base)) return;
  const auto where = places(slot, fact.type.shape);
  if (!where || (fact.elements && where->size() != fact.elements->size())) {
    buffers_.erase(base);
    return;
  }
  Buffer& buffer = buffers_[base];
  if (buffer.dtype != fact.type.dtype) buffer = {fact.type.dtype, {}};
  for (size_t i = 0; i < where->size(); ++i) {
    const size_t place = (*where)[i];
    if (place >= buffer.elements.size()) buffer.elements.resize(place + 1, Size::unknown());
    buffer.elements[place] = fact.elements ? (*fact.elements)[i] : Size::unknown();
  }
}

std::optional<std::vector<Size>> KnownMemory::read(uint32_t slot, const Type& type) const {
  const auto buffer = buffers_.find(base_of(plan_, slot));
  if (buffer == buffers_.end() || buffer->second.dtype != type.dtype) return std::nullopt;
  const auto where = places(slot, type.shape);
  if (!where) return std::nullopt;
  std::vector<Size> elements;
  const std::vector<Size>& all = buffer->second.elements;
  for (const size_t place : *where)
    elements.push_back(place < all.size() ? all[place] : Size::unknown());
  if (std::ranges::all_of(elements, [](Size size) { return size.is_unknown(); }))
    return std::nullopt;
  return elements;
}

// Of the slot's elements in its base, row-major; nullopt if they are unknown, or too many.
std::optional<std::vector<size_t>> KnownMemory::places(uint32_t slot, const Shape& shape) const {
  const Slot& it = plan_.slots[slot];
  if (!known(shape) || count(dims_of(shape)) > kMaxKnownElements) return std::nullopt;
  const Dims dims = dims_of(shape);
  const Size offset = it.storage == Storage::kView ? number_of_(it.base_offset) : Size(0);
  if (!offset.known()) return std::nullopt;
  Dims strides = row_major_strides(dims);
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (dims[axis] == 1 || axis >= it.strides.rank()) continue;
    const Size stride = number_of_(it.strides[axis]);
    // A late buffer is dense, and one axis of it has no gaps.
    if (!stride.known() && dims.rank() > 1) return std::nullopt;
    if (stride.known()) strides[axis] = stride.value();
  }
  std::vector<size_t> where;
  bool is_near = true;
  rules::for_elements(dims, [&](const Dims& at) {
    const int64_t place = offset.value() + rules::flat_index(at, strides);
    is_near &= place >= 0 && place < 16 * kMaxKnownElements;
    where.push_back(static_cast<size_t>(place));
  });
  return is_near ? std::optional(where) : std::nullopt;
}

}  // namespace anneal
