// The cache of preparations that a context makes for the shapes of its inputs.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

struct StepState {
  std::vector<TensorView> inputs, outputs;
  std::unique_ptr<PreparedKernel> prepared;
  std::unique_ptr<DataDependentDims> found;
};

// Recordings at one set of addresses.
struct RecordedAt {
  std::vector<std::byte*> addresses = {};  // of slots and then of workspaces
  // By step: the unbroken run of steps that it begins on a device that records.
  std::vector<std::unique_ptr<Recording>> recordings;
  bool has_run = false;  // with these addresses
  uint64_t freed = 0;    // MemoryBudget::freed() at the first recording
};

// A plan for one set of input shapes. Its slots and steps point into buffers of the run, which all
// shapes share: what they point to is right only while the run is bound to these shapes.
struct BoundShapes {
  std::vector<Dims> input_dims;
  SymbolValues outer;  // of those that the plan uses, in their order
  BoundPlan plan;
  std::vector<StepState> steps;
  std::vector<size_t> workspace_bytes;  // by device
  std::vector<RecordedAt> recorded;     // by addresses, used last first

  size_t memory_bytes() const;  // without what kernels hold in PreparedKernel
};

// The shapes used last. An entry is found by comparing its sizes, without allocating.
class ShapeCache {
 public:
  // uses: the symbols of the outer plan that matter to this one; must outlive this. most >= 1.
  ShapeCache(std::span<const uint32_t> uses, size_t most);

  // The entry of these shapes, which becomes the one used last; null if there is none.
  BoundShapes* find(std::span<const Dims> input_dims, const SymbolValues& outer);
  // An entry for these shapes, added by add() when it is complete. Its vectors may hold what they
  // held for the shapes used longest ago, which leave if there are too many.
  std::unique_ptr<BoundShapes> make(std::span<const Dims> input_dims, const SymbolValues& outer);
  BoundShapes* add(std::unique_ptr<BoundShapes> bound);
  size_t memory_bytes() const;

 private:
  bool is_for(const BoundShapes& bound, std::span<const Dims> input_dims,
              const SymbolValues& outer) const;

  std::span<const uint32_t> uses_;
  size_t most_;
  std::vector<std::unique_ptr<BoundShapes>> bound_;  // used last first
};

}  // namespace anneal
