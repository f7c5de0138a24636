// The memory of a context as a function of one open size of the inputs, such as the batch.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anneal/engine/onnx/batch_formula.h"
#include "anneal/engine/onnx/memory_formula.h"
#include "anneal/engine/run/context/batch_split.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/symbols.h"

namespace anneal {

// Inputs that a run accepts, in order: of these dims, nullopt: of any that go with the others.
using MakeInputs = std::function<std::vector<Tensor>(const std::vector<std::optional<Dims>>& dims)>;

// Of what contexts are predicted to hold, for the first 64 batches or fewer.
struct FormulasByBatch {
  BatchFormula arenas, workspaces;
};

struct BatchMemory {
  int64_t batch = 0;
  RowCut cut;           // whole where the plan cannot split the batch
  uint64_t inputs = 0;  // bytes that the caller holds
  HeldMemory predicted = {}, measured = {};
};

// Predicts without allocating: the plan gives the bytes of arenas and ports, and its kernels those
// of workspaces. What follows from neither lies on lines through measured batches: bodies of
// control flow, values and ports whose sizes depend on values. A batch that runs in slices takes
// what these take (engine/run/context/batch_split.h). A context is prepared for the sizes that were
// declared at build, so it has room for the largest of these at any batch.
class MemoryByBatch {
 public:
  // Finds the size: the rows of a batch that the plan can split, else the first axis of an input,
  // else the first open size. Runs contexts of two batches, of six if the plan has bodies; sizes
  // of inputs that differ between the first two grow with the batch. dims: of all inputs, for the
  // other sizes. Fails with kInvalidArgument if the inputs have no open size, and as running does.
  MemoryByBatch(std::shared_ptr<const Engine> engine, const std::vector<Dims>& dims,
                const ContextOptions& options, MakeInputs make_inputs);

  // Without `staging` if a measured batch held other bytes.
  MemoryFormula formula() const;
  // nullopt: no batch is possible.
  std::optional<FormulasByBatch> formulas_by_batch() const;
  int profile() const { return options_.profile; }
  size_t profiles() const { return EngineInternals::profile_count(*engine_); }  // of the engine
  // Whether steps run on a GPU, whose memory is its own.
  bool is_for_gpu() const { return plan_->devices.size() > 1; }
  const std::string& size() const { return size_; }  // its name, "N"
  bool is_batch() const { return is_batch_; }        // it is the first axis of an input
  int64_t least() const { return bounds_.min; }
  int64_t most() const { return bounds_.max; }
  const std::vector<int64_t>& probes() const { return probed_; }
  // The other open sizes of the inputs that stay the same in all batches: names and values.
  std::vector<std::pair<std::string, int64_t>> other_sizes() const;
  // The names of those that grow with it.
  std::vector<std::string> growing_sizes() const;
  bool has_bodies() const { return !plan_->bodies.empty(); }
  bool has_declared_sizes() const { return !declared_.empty(); }

  HeldMemory predict(int64_t batch) const;
  // The prediction, and a context that runs once. Fails as running does.
  BatchMemory measure(int64_t batch) const;
  uint64_t input_bytes(int64_t batch) const;  // that the caller of a run holds
  // The largest batch for which the weights and `contexts` contexts, each with its inputs, take at
  // most `bytes`; with a GPU those are bytes of the GPU, where the caller's inputs are not.
  // nullopt: none does.
  std::optional<int64_t> largest(uint64_t bytes, uint64_t weights, int contexts) const;

 private:
  using Binding = std::vector<Dims>;  // of all inputs
  // What a context binds: with all threads together, and with each thread alone.
  struct Bindings {
    std::vector<Binding> together, alone;
    size_t threads = 1;
    size_t count() const { return together.size() + alone.size() * threads; }
  };
  void find_size(const Binding& dims);
  // The other open sizes of the inputs.
  std::vector<uint32_t> sizes_beside() const;
  Binding dims_at(int64_t batch) const;
  RowCut cut_of(const Binding& dims) const;
  Bindings bindings_for(int64_t batch) const;
  // What the plan and its kernels say: for one binding, and for a context.
  const HeldMemory& planned(const Binding& dims, int threads) const;
  HeldMemory plan_binding(const Binding& dims, int threads) const;
  HeldMemory planned(const Bindings& bindings) const;
  HeldMemory run_once(const std::vector<Tensor>& inputs) const;
  std::vector<std::optional<Dims>> given_dims(int64_t batch) const;
  void probe();
  size_t staged_bytes(int64_t batch) const;  // of ports, by their shapes
  // Of a field of beyond_, by lines between the probes; the last one goes on.
  size_t beyond(size_t HeldMemory::*field, int64_t batch) const;

  std::shared_ptr<const Engine> engine_;
  ContextOptions options_;  // with the profile and the number of threads
  MakeInputs make_inputs_;
  const LoadedPlan* loaded_ = nullptr;
  const Plan* plan_ = nullptr;
  uint32_t symbol_ = 0;
  std::string size_;
  bool is_batch_ = false;
  Bounds bounds_;
  SymbolValues at_first_, per_row_;  // of symbols: the value at the first probe, and its growth
  std::vector<Binding> declared_;
  mutable std::map<std::vector<int64_t>, HeldMemory> planned_;  // by the threads and all sizes
  std::vector<int64_t> probed_;
  std::vector<HeldMemory> beyond_;  // planned(), by probe
  bool has_staging_ = false;        // staged_bytes() are those of all probes
  double bytes_of_binding_ = 0;     // of HeldMemory::shapes, beside the bound plan's;
                                    // with bodies an estimate
};

// A bar for each batch as an SVG. model: its name; size: that of MemoryByBatch.
std::string memory_svg(const std::string& model, const std::string& size,
                       std::span<const BatchMemory> batches);

}  // namespace anneal
