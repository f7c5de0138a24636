// A context whose runs tell each value of the engine as it is computed.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// The name of a value, and which of its computations in a run it is, from 1: loops have several.
using ValueKey = std::pair<std::string, int>;

class WatchedEngine {
 public:
  // A plan of `file` on this CPU. threads: of a run; 0: one per core. With EngineFile::packing,
  // pages of a mapped file are given back after each step. Fails as Engine::load() does.
  WatchedEngine(const EngineFile& file, const Plan& plan, int threads);

  const Plan& plan() const;
  const Engine& engine() const { return *engine_; }
  std::span<const TensorInfo> ports() const { return engine_->inputs(); }
  // One tensor per input. Fails as ExecutionContext::set_input() does.
  void set_inputs(std::vector<Tensor> inputs);

  using Told = std::function<void(const ValueKey& key, const Observation& observed)>;
  // The callback may write into a value that a step has computed: later steps read the new
  // elements. Fails as ExecutionContext::run() does.
  void run(const Told& told);

 private:
  std::shared_ptr<const Engine> engine_;
  ExecutionContext context_;
  std::vector<Tensor> inputs_;  // what the context reads
  // By a step's name: its weights, with EngineFile::packing.
  std::unordered_map<std::string_view, std::vector<Tensor>> in_file_;
};

}  // namespace anneal
