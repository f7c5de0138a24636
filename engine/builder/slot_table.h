// SlotTable: the slots of a plan, and the slot of each value of the graph.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/engine/builder/layout.h"
#include "anneal/engine/builder/placement.h"
#include "anneal/engine/builder/stored_constants.h"
#include "anneal/engine/builder/views.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

// A value has one slot per place at most. Adds slots to the plan, never steps. The last place is
// the CPU, where the ports are, but for some of a body.
class SlotTable {
 public:
  // outside: of a body, the symbols that are solvable in the outer graph.
  SlotTable(const Graph& graph, std::span<const Place> places, Plan& plan,
            std::vector<bool> outside);

  // Ports are row-major. A value that is an output and comes from a kernel is written to its port
  // directly.
  // body: of one that uses several places; null: all ports are on the last.
  void add_ports(const BodyPlaces* body);
  // Gives ports other strides. REQUIRES: add_ports(), and no slot was asked for
  void lay_out_ports(const std::unordered_map<ValueId, Shape>& strides);
  // Where values that are not ports shall lie. REQUIRES: once, before a value's slot is asked for
  void set_layouts(Layouts layouts, ValuePlacement placement);

  size_t host() const { return places_.size() - 1; }
  const std::vector<bool>& solvable() const { return solvable_; }
  bool is_data_dependent(const Type& type) const;
  // The output of the graph that the value is written to without a copy.
  std::optional<size_t> direct_output(ValueId value) const;
  size_t place_of_output(size_t index) const { return plan_.slots[plan_.outputs[index]].device; }
  // The value that this one is a part of.
  std::optional<ValuePlacement::Inside> inside(ValueId value) const;
  bool is_moved_view(LayerId id) const { return placement_.moved_views.contains(id); }
  const Slot& operator[](uint32_t slot) const { return plan_.slots[slot]; }

  // kNoSlot if the value has none there.
  uint32_t home(ValueId value, size_t place);
  uint32_t set_home(ValueId value, size_t place, uint32_t slot);
  // The place where the value had its first slot; the first one of all if it has none.
  size_t first_place(ValueId value);
  // Where a layer writes the value: its port, a part of another value, or memory of its own.
  uint32_t output(ValueId value, size_t place);
  // The part of a base slot where a value that is inside others lies.
  struct Region {
    uint32_t base = kNoSlot;
    ViewOf view;
  };
  Region region(ValueId value, size_t place);

  uint32_t add(std::string name, const Type& type, const Shape& strides, Storage storage,
               size_t place);
  uint32_t add_view(const std::string& name, const Type& type, const ViewOf& view, uint32_t of);
  uint32_t add_constant(ValueId value, const Shape& strides, size_t place);
  // Gives the pool the constants that a slot holds.
  void pool_constants(WeightPool& weights) const { constants_.pool(plan_, weights); }

  Operand operand(uint32_t slot, const Tensor* constant = nullptr) const;
  LayerOperands operands(const Layer& layer, std::span<const uint32_t> inputs,
                         std::span<const uint32_t> outputs) const;

 private:
  struct Homes {
    std::vector<uint32_t> by_place;
    size_t first = 0;
  };
  Homes& homes_of(ValueId value);
  bool may_be(const Type& type, const Dims& dims) const;

  const Graph& graph_;
  std::span<const Place> places_;
  Plan& plan_;
  std::vector<bool> solvable_;
  Layouts layouts_;
  ValuePlacement placement_;
  std::unordered_map<ValueId, Homes> homes_;
  std::unordered_map<ValueId, size_t> direct_outputs_;
  StoredConstants constants_;
};

}  // namespace anneal
