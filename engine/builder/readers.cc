#include "anneal/engine/builder/readers.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/engine/builder/views.h"

namespace anneal {
namespace {

// To upload all V bytes takes V at the link's speed. To upload a part takes the part at the speed
// at which the CPU cuts it out, and then at the link's. Both take as long where the part is V / (1
// + R), R being the link's speed over that of the cut. A core cuts rows at 10 GB/s
// (`anneal bench` of a Slice) and single elements at 3; a link of PCIe 4 or 5 copies 25 to 55 GB/s.
// So R is 2.5 or more. A value near the least keeps copies on the card, whose memory is the
// smaller, to those that are worth it on every machine.
constexpr double kLinkOverCut = 3;
// Tables of positions have a few megabytes.
constexpr size_t kMostOfTable = size_t{64} << 20;

double elements_of(const Graph& graph, ValueId value) {
  double elements = 1;
  for (const Size size : graph.value(value).type().shape)
    elements *= static_cast<double>(graph.sizes().range(size).opt);
  return elements;
}

}  // namespace

Readers::Readers(const Graph& graph, std::span<const Place> places, const Layouts& layouts,
                 std::span<const size_t> output_places)
    : graph_(graph), places_(places) {
  const size_t host = places.size() - 1;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ValueId output = graph.outputs()[i].value;
    add(output_places.empty() ? host : output_places[i], output, elements_of(graph, output));
  }
  const std::vector<LayerId> order = graph.order();
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Layer& layer = graph.layer(*id);
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      const ValueId input = layer.inputs[i];
      if (input == ValueId::kNone) continue;
      if (is_host_value(layer, i)) {
        add(host, input, elements_of(graph, input));
      } else if (is_view_op(layer.op) && layer.epilogues.empty()) {
        for (size_t place = 0; place < places.size(); ++place)
          add(place, input, elements(place, layer.outputs[0]));
      } else {
        add(layouts.place_of_input(*id, i), input, elements_of(graph, input));
      }
    }
  }
}

void Readers::add(size_t place, ValueId value, double elements) {
  const size_t index = static_cast<size_t>(value) * places_.size() + place;
  if (index >= elements_.size())
    elements_.resize((static_cast<size_t>(value) + 1) * places_.size());
  elements_[index] = std::min(elements_[index] + elements, elements_of(graph_, value));
}

bool Readers::want_all_on(size_t place, ValueId value) const {
  const Tensor* const constant = graph_.constant(value);
  if (constant && constant->bytes().size() <= kMostOfTable) return are_on(place, value);
  return (1 + kLinkOverCut) * elements(place, value) >= elements_of(graph_, value);
}

Readers::Views Readers::views(const Layer& layer, size_t home,
                              const std::function<bool(size_t)>& has_copy) const {
  Views views{.places = {}, .why = "is a view of its input"};
  const size_t host = places_.size() - 1;
  if (home != host || host == 0) {
    views.places = {home};
    return views;
  }
  const ValueId from = layer.inputs[0], to = layer.outputs[0];
  bool needs_host = are_on(host, to);
  for (size_t place = 0; place < host; ++place) {
    if (!are_on(place, to)) continue;
    const std::string target = places_[place].device->target();
    if (has_copy(place) || want_all_on(place, from)) {
      views.places.push_back(place);
      views.why += fmt::format(" on {}, where it is read", target);
    } else {
      needs_host = true;
      views.why += fmt::format("; {} reads less than a quarter of that input", target);
    }
  }
  if (!needs_host && !views.places.empty()) return views;
  if (!views.places.empty())
    views.why += fmt::format(", and on {}", places_[host].device->target());
  views.places.insert(views.places.begin(), host);
  return views;
}

}  // namespace anneal
