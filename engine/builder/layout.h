// The device of each layer, and the activations that are channels-last. Both follow from the
// available kernels and the preference of the best kernel of each layer.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/kernels/kernel.h"
#include "anneal/kernels/laid_out.h"

namespace anneal {

// Strides of a value of this type in this layout; kChannelsLast below three axes is row-major.
Shape strides_of(const Type& type, Layout layout, SizeTable& sizes);

// A layer's operands if every activation of three or more axes had this layout. Constants are
// row-major.
struct LayerOperands {
  std::vector<Operand> inputs, outputs;
};
LayerOperands ideal_operands(const Graph& graph, const Layer& layer, Layout layout);
LayerOperands ideal_operands(const Graph& graph, std::span<const ValueId> inputs,
                             std::span<const Type> outputs, Layout layout);
Request request_of(const Graph& graph, const Layer& layer, const LayerOperands& operands,
                   Device& device);

// A device of the plan, and the kernels for it.
struct Place {
  const Backend* backend;
  Device* device;
  KernelOptions kernels = {};
  // Fast kernels are asked from the last of the table on, which is the most general one.
  bool general_first = false;
  // Values are row-major; kernels that take channels-last memory only have copies beside them.
  bool row_major = false;
};
// Its best kernel for the layer, with inputs laid out as it asks for. The kernel must not run: its
// packed constants are not filled.
struct LaidOutChoice : KernelChoice {
  std::vector<LaidOutInput> laid_out = {};
};
LaidOutChoice choose_kernel(const Place& place, const Request& request, FreeInputs free);
LaidOutChoice choose_kernel(const Place& place, const Graph& graph, const Layer& layer,
                            const LayerOperands& operands,
                            FreeInputs free = FreeInputs::kConstants);

// For the kernel of `best`, which takes `ideal`: `actual` with as few other strides as it needs.
LayerOperands nearest_operands(const Place& place, const Graph& graph, const Layer& layer,
                               const LaidOutChoice& best, LayerOperands ideal,
                               const LayerOperands& actual);

struct Layouts;

// Where the ports of a body lie whose layers use all places, and its layouts.
struct BodyPlaces {
  std::vector<size_t> inputs, outputs;
  std::shared_ptr<const Layouts> layouts;
};
// Where the bodies of a layer of control flow want its operands. One that values decide the size of
// lies on the last place all the same.
struct ControlPlaces {
  std::vector<size_t> inputs, outputs;
  std::vector<BodyPlaces> bodies = {};  // as bodies_of() has them; none: all are for the last place
  bool uses_first() const { return !bodies.empty(); }
};

// A layer runs on the first place that has a kernel for it, on the last (the CPU) if it computes
// only what others' shapes are made of. One whose best kernel prefers channels-last makes its
// outputs so; one that does not care follows its first input that has as many axes as its output.
// Between a Reshape that cuts the axes of a channels-last value and one that joins them again, such
// a layer leaves the elements in their order.
struct Layouts {
  struct OfLayer {
    Layout layout = Layout::kAny;  // what its best kernel prefers
    size_t place = 0;
    std::string why_not_first;  // it runs on the last of several places
    // That is so because it computes only what shapes are made of: no fallback, since the CPU does
    // this for every device.
    bool decides_shapes = false;
  };
  std::vector<OfLayer> of_layer;               // by layer id
  std::vector<Layout> of_value;                // by value id: kRowMajor or kChannelsLast
  std::unordered_map<ValueId, Shape> between;  // strides of values between two such Reshapes
  std::unordered_map<ValueId, Shape> ports;    // of appended ports (state_ports.h)
  std::unordered_map<LayerId, ControlPlaces> control;  // of several places
  Shape strides_of_value(const Graph& graph, ValueId id) const;
  const ControlPlaces* control_of(LayerId id) const;  // null: it has no bodies, or one place
  // Where the layer reads an input that is no host value.
  size_t place_of_input(LayerId id, size_t input) const;
};
struct LayoutQuestion {
  const Graph& graph;
  std::span<const Place> places;
  std::function<bool(ValueId)> late;                   // whether a value's size depends on values
  std::function<ControlPlaces(const Layer&)> control;  // of several places
  std::vector<bool> on_host = {};  // by output, or empty: wanted on the last place, if small
};
Layouts choose_layouts(const LayoutQuestion& question);
// Whether the host does this for every device: the op gives sizes, or checks a condition.
bool is_host_work(const Op& op);
bool is_host_value(const Layer& layer, size_t input);  // as that of its op (graph/op/op.h)
// "; cuda.conv.direct: only f32", of each kernel that refused.
std::string refusals_text(const KernelChoice& chosen);

}  // namespace anneal
