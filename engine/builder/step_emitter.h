// StepEmitter: adds the steps of layers, and the copies that their operands need.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anneal/engine/builder/layout.h"
#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/engine/builder/slot_table.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

class StepEmitter {
 public:
  // chooser: null: the order of the kernels' table decides. kernels: gets those of devices.
  StepEmitter(const Graph& graph, std::span<const Place> places, Plan& plan, SlotTable& slots,
              KernelChooser* chooser, std::vector<std::unique_ptr<Kernel>>& kernels)
      : graph_(graph),
        places_(places),
        plan_(plan),
        slots_(slots),
        chooser_(chooser),
        kernels_(kernels) {}

  // The slot from which a layer on the place reads the value: a constant, a copy from another
  // place, or sizes that the run time computes, is added when it is read first.
  uint32_t input(ValueId value, size_t place);
  // Where the first input of a layer that may be a view lies.
  size_t place_of(ValueId value);
  // The slot's tensor with these strides, and whether it was copied for that now.
  std::pair<uint32_t, bool> with_strides(uint32_t slot, const Shape& strides);

  LaidOutChoice choose(const Layer& layer, const LayerOperands& operands, size_t place,
                       FreeInputs free = FreeInputs::kConstants) const {
    return choose_kernel(places_[place], graph_, layer, operands, free);
  }
  // Asks the chooser for one of the CPU's kernels that accept the operands without copies.
  void ask_chooser(const Layer& layer, const LayerOperands& operands, size_t place,
                   KernelChoice& chosen);

  void add(const Layer& layer, LaidOutChoice chosen, size_t place, std::vector<uint32_t> inputs,
           std::vector<uint32_t> outputs);
  void add_copy(uint32_t from, uint32_t to, const std::string& name,
                std::vector<std::string> origins = {});
  static bool is_sizes(const Layer& layer);  // that the run time computes itself
  uint32_t add_sizes(const Layer& layer);
  // The context runs the bodies itself: no kernel, and no layout but that of ports.
  void add_control_flow(const Layer& layer, const ControlPlaces& places);
  void note(std::string stage, std::string subject, std::string text);

 private:
  void add_transfer(uint32_t from, uint32_t to);
  // Replaces constants by copies that lie as the kernel asked for.
  void store_constants(const Layer& layer, const LaidOutChoice& chosen, size_t place,
                       std::vector<uint32_t>& inputs);
  // The slot itself, or a row-major copy of it if it is not one piece of memory.
  uint32_t dense(uint32_t slot);
  uint32_t row_major(uint32_t slot);
  std::string copy_key(uint32_t slot, const Shape& strides) const;

  const Graph& graph_;
  std::span<const Place> places_;
  Plan& plan_;
  SlotTable& slots_;
  KernelChooser* chooser_;
  std::unordered_map<std::string, uint32_t> copies_;  // by slot and strides
  std::vector<std::unique_ptr<Kernel>>& kernels_;     // of devices
};

}  // namespace anneal
