#include "anneal/engine/run/shape_cache.h"

#include <algorithm>

#include "anneal/engine/run/memory/held_memory.h"

namespace anneal {
namespace {

// The values of outer symbols that a plan uses; the outermost plan has none.
std::optional<int64_t> symbol_value(const SymbolValues& outer, uint32_t symbol) {
  return symbol < outer.size() ? outer[symbol] : std::nullopt;
}

}  // namespace

size_t BoundShapes::memory_bytes() const {
  size_t bytes = sizeof(*this) + vector_bytes(input_dims) + vector_bytes(outer) +
                 vector_bytes(steps) + held_bytes(plan);
  for (const StepState& step : steps)
    bytes += vector_bytes(step.inputs) + vector_bytes(step.outputs);
  return bytes;
}

ShapeCache::ShapeCache(std::span<const uint32_t> uses, size_t most) : uses_(uses), most_(most) {}

bool ShapeCache::is_for(const BoundShapes& bound, std::span<const Dims> input_dims,
                        const SymbolValues& outer) const {
  if (!std::equal(input_dims.begin(), input_dims.end(), bound.input_dims.begin())) return false;
  for (size_t i = 0; i < uses_.size(); ++i)
    if (bound.outer[i] != symbol_value(outer, uses_[i])) return false;
  return true;
}

BoundShapes* ShapeCache::find(std::span<const Dims> input_dims, const SymbolValues& outer) {
  const auto found = std::find_if(bound_.begin(), bound_.end(), [&](const auto& bound) {
    return is_for(*bound, input_dims, outer);
  });
  if (found == bound_.end()) return nullptr;
  std::rotate(bound_.begin(), found, found + 1);
  return bound_.front().get();
}

std::unique_ptr<BoundShapes> ShapeCache::make(std::span<const Dims> input_dims,
                                              const SymbolValues& outer) {
  std::unique_ptr<BoundShapes> bound;
  if (bound_.size() >= most_) {
    bound = std::move(bound_.back());
    bound_.pop_back();
  } else {
    bound = std::make_unique<BoundShapes>();
  }
  bound->input_dims.assign(input_dims.begin(), input_dims.end());
  bound->outer.clear();
  for (const uint32_t symbol : uses_) bound->outer.push_back(symbol_value(outer, symbol));
  return bound;
}

BoundShapes* ShapeCache::add(std::unique_ptr<BoundShapes> bound) {
  bound_.insert(bound_.begin(), std::move(bound));
  return bound_.front().get();
}

size_t ShapeCache::memory_bytes() const {
  size_t bytes = 0;
  for (const auto& bound : bound_) bytes += bound->memory_bytes();
  return bytes;
}

}  // namespace anneal
