// compose_slices: chains of slices and concats are shortened.
//
//   y = Slice(Slice(x))                              =>   y = Slice(x)
//   y = Slice(Concat(a, b, c)) within b              =>   y = Slice(b), or b if that is all of b
//   y = Concat(a, Concat(b, c)) along one axis       =>   y = Concat(a, b, c)
//   y = Concat(a, Slice(x, 0, 2), Slice(x, 2, 5))    =>   y = Concat(a, Slice(x, 0, 5)), or a and x
//   y = Concat(a, an empty tensor)              =>   y = Concat(a)
//
// A slice reads the operand even where other layers read the concat: that costs nothing. A concat
// joins another only if it is the only reader, or the operands would be copied twice. The slice
// must be known: its starts and, where sizes are symbols, that they are not cut. Runs after
// solve_indices, which makes slices of gathers, and remove_identity.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// An axis that is longer does not fit into memory.
constexpr int64_t kLongestStep = int64_t{1} << 40;

// Along each axis of the sliced tensor, `counts` positions from `starts` on, `steps` >= 1 apart.
struct SliceRange {
  std::vector<int64_t> starts, steps;
  Shape from, counts;

  explicit SliceRange(const Shape& shape)
      : starts(static_cast<size_t>(shape.rank())),
        steps(static_cast<size_t>(shape.rank()), 1),
        from(shape),
        counts(shape) {}
  bool is_all(int axis) const { return counts[axis] == from[axis]; }
  bool is_all() const { return counts == from; }
};

std::optional<std::vector<int64_t>> known_integers(const Graph& graph, ValueId value) {
  const auto& elements = graph.value(value).fact.elements;
  if (!elements) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Size element : *elements) {
    if (!element.known()) return std::nullopt;
    integers.push_back(element.value());
  }
  return integers;
}

// The range of a Slice; nullopt if it is not known, or has negative steps.
std::optional<SliceRange> cut_of(const Graph& graph, LayerId id) {
  if (!op_as<Slice>(graph, id) || !graph.layer(id).epilogues.empty()) return std::nullopt;
  const Layer& layer = graph.layer(id);
  const auto starts = known_integers(graph, layer.inputs[1]);
  const auto axes = known_integers(graph, layer.inputs[3]);
  const auto steps = known_integers(graph, layer.inputs[4]);
  if (!starts || !axes || !steps) return std::nullopt;
  SliceRange cut(graph.value(layer.inputs[0]).type().shape);
  cut.counts = graph.value(layer.outputs[0]).type().shape;
  for (size_t i = 0; i < axes->size(); ++i) {
    const int rank = cut.from.rank();
    const auto axis = static_cast<int>((*axes)[i] < 0 ? (*axes)[i] + rank : (*axes)[i]);
    const Size size = cut.from[axis];
    int64_t start = (*starts)[i];
    if ((*steps)[i] < 1) return std::nullopt;
    if (size.known())
      start = std::clamp<int64_t>(start < 0 ? start + size.value() : start, 0, size.value());
    else if (start < 0 || start > graph.sizes().range(size).min)
      return std::nullopt;
    // Where one element is taken, no step is.
    const int64_t step = cut.counts[axis] == Size(1) ? 1 : (*steps)[i];
    if (step > kLongestStep) return std::nullopt;
    cut.starts[static_cast<size_t>(axis)] = start;
    cut.steps[static_cast<size_t>(axis)] = step;
  }
  return cut;
}

// The value itself where the cut is all of it; kNone if it cannot be written down.
ValueId apply(Graph& graph, Rewrite& rewrite, ValueId x, const SliceRange& cut) {
  std::vector<int64_t> starts, ends, axes, steps;
  for (int axis = 0; axis < cut.from.rank(); ++axis) {
    if (cut.is_all(axis)) continue;
    const auto i = static_cast<size_t>(axis);
    const int64_t start = cut.starts[i], step = cut.steps[i];
    SizeTable& sizes = graph.sizes();
    int64_t end = std::numeric_limits<int64_t>::max();
    if (cut.counts[axis].known()) {
      const int64_t count = cut.counts[axis].value();
      end = count == 0 ? start : start + (count - 1) * step + 1;
    } else if (cut.counts[axis] != sizes.ceil_div(sizes.sub(cut.from[axis], start), step)) {
      return ValueId::kNone;
    }
    starts.push_back(start), ends.push_back(end), axes.push_back(axis), steps.push_back(step);
  }
  return axes.empty() ? x : rewrite.slice(x, starts, ends, axes, steps);
}

bool slice_of_slice(Graph& graph, LayerId id, PassRun& run) {
  const LayerId inner = producer(graph, graph.layer(id).inputs[0]);
  const auto first = cut_of(graph, inner), second = cut_of(graph, id);
  if (!first || !second || finds_sizes(graph, inner)) return false;
  SliceRange both(first->from);
  both.counts = second->counts;
  for (size_t i = 0; i < both.starts.size(); ++i) {
    int64_t skipped = 0;
    if (__builtin_mul_overflow(second->starts[i], first->steps[i], &skipped) ||
        __builtin_add_overflow(first->starts[i], skipped, &both.starts[i]) ||
        __builtin_mul_overflow(first->steps[i], second->steps[i], &both.steps[i]) ||
        both.steps[i] > kLongestStep)
      return false;
  }
  Rewrite rewrite(graph, id);
  const std::string name = graph.layer(id).name, of = graph.layer(inner).name;
  if (!rewrite.finish(apply(graph, rewrite, graph.layer(inner).inputs[0], both))) return false;
  run.did(name, fmt::format("slices what \"{}\" slices", of));
  return true;
}

bool slice_of_concat(Graph& graph, LayerId id, PassRun& run) {
  const LayerId inner = producer(graph, graph.layer(id).inputs[0]);
  const auto* concat = op_as<Concat>(graph, inner);
  if (!concat || !graph.layer(inner).epilogues.empty()) return false;
  const auto cut = cut_of(graph, id);
  const auto axis = static_cast<int>(concat->axis);
  if (!cut || !cut->counts[axis].known() || cut->counts[axis].value() == 0) return false;
  const auto i = static_cast<size_t>(axis);
  int64_t begin = cut->starts[i];
  const int64_t extent = (cut->counts[axis].value() - 1) * cut->steps[i] + 1;
  for (const ValueId operand : graph.layer(inner).inputs) {
    const Shape shape = graph.value(operand).type().shape;
    const Size size = shape[axis];
    const Bounds range = graph.sizes().range(size);
    if (begin + extent <= range.min) {
      SliceRange part = *cut;
      part.from = shape;
      part.starts[i] = begin;
      Rewrite rewrite(graph, id);
      const std::string name = graph.layer(id).name, of = graph.layer(inner).name;
      if (!rewrite.finish(apply(graph, rewrite, operand, part))) return false;
      run.did(name,
              fmt::format("slices \"{}\", which \"{}\" copies", graph.value(operand).name, of));
      return true;
    }
    if (!size.known() || begin < size.value()) return false;
    begin -= size.value();
  }
  return false;
}

// Another Concat with these operands, or the operand itself if there is only one.
bool replace_concat(Graph& graph, LayerId id, std::vector<ValueId> operands, Rewrite& rewrite) {
  const int64_t axis = op_as<Concat>(graph, id)->axis;
  if (operands.size() == 1) return rewrite.finish(operands[0]);
  return rewrite.finish(rewrite.concat(std::move(operands), axis));
}

bool concat_of_concat(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  const int64_t axis = op_as<Concat>(graph, id)->axis;
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId inner = producer(graph, layer.inputs[i]);
    const auto* concat = op_as<Concat>(graph, inner);
    if (!concat || concat->axis != axis || !graph.layer(inner).epilogues.empty() ||
        sole_user(graph, layer.inputs[i]) != id ||
        std::ranges::count(layer.inputs, layer.inputs[i]) > 1)
      continue;
    std::vector<ValueId> operands = layer.inputs;
    const auto at = operands.erase(operands.begin() + static_cast<ptrdiff_t>(i));
    const Layer& joined = graph.layer(inner);
    operands.insert(at, joined.inputs.begin(), joined.inputs.end());
    const std::string name = layer.name, of = joined.name;
    const Saving saved = saving_of(graph, joined.outputs[0]);
    std::vector<std::string> origins = layer.origins;
    origins.insert(origins.end(), joined.origins.begin(), joined.origins.end());
    Rewrite rewrite(graph, id, std::move(origins));
    if (!replace_concat(graph, id, std::move(operands), rewrite)) continue;
    run.did(name, fmt::format("copies what \"{}\" copied", of), saved);
    return true;
  }
  return false;
}

bool concat_of_nothing(Graph& graph, LayerId id, PassRun& run) {
  const int64_t axis = op_as<Concat>(graph, id)->axis;
  std::vector<ValueId> operands = graph.layer(id).inputs;
  const size_t before = operands.size();
  std::erase_if(operands, [&](ValueId operand) {
    return graph.value(operand).type().shape[static_cast<int>(axis)] == Size(0);
  });
  if (operands.size() == before || operands.empty()) return false;
  Rewrite rewrite(graph, id);
  const std::string name = graph.layer(id).name;
  if (!replace_concat(graph, id, std::move(operands), rewrite)) return false;
  run.did(name, "an operand has no elements");
  return true;
}

// b continues a along the axis: slices of one value that agree along all others.
bool continues(const SliceRange& a, const SliceRange& b, size_t along) {
  for (size_t i = 0; i < a.starts.size(); ++i) {
    const auto axis = static_cast<int>(i);
    if (i == along) {
      if (a.steps[i] != 1 || b.steps[i] != 1 || !a.counts[axis].known() ||
          b.starts[i] != a.starts[i] + a.counts[axis].value())
        return false;
    } else if (a.starts[i] != b.starts[i] || a.counts[axis] != b.counts[axis] ||
               a.steps[i] != b.steps[i]) {
      return false;
    }
  }
  return true;
}

bool concat_of_slices(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  const auto along = static_cast<size_t>(op_as<Concat>(graph, id)->axis);
  for (size_t i = 0; i + 1 < layer.inputs.size(); ++i) {
    const LayerId a = producer(graph, layer.inputs[i]), b = producer(graph, layer.inputs[i + 1]);
    auto first = cut_of(graph, a);
    const auto second = cut_of(graph, b);
    if (!first || !second || finds_sizes(graph, a) || finds_sizes(graph, b) ||
        graph.layer(a).inputs[0] != graph.layer(b).inputs[0] || !continues(*first, *second, along))
      continue;
    Size& count = first->counts[static_cast<int>(along)];
    count = graph.sizes().add(count, second->counts[static_cast<int>(along)]);
    Rewrite rewrite(graph, id);
    const ValueId whole = apply(graph, rewrite, graph.layer(a).inputs[0], *first);
    if (whole == ValueId::kNone) continue;
    std::vector<ValueId> operands = layer.inputs;
    operands[i] = whole;
    operands.erase(operands.begin() + static_cast<ptrdiff_t>(i) + 1);
    const std::string name = layer.name;
    const Saving saved = operands.size() == 1 ? saving_of(graph, layer.outputs[0]) : Saving{};
    if (!replace_concat(graph, id, std::move(operands), rewrite)) continue;
    run.did(name, "its operands are slices that meet", saved);
    return true;
  }
  return false;
}

bool compose_or_drop(Graph& graph, LayerId id, PassRun& run) {
  if (!graph.layer(id).epilogues.empty()) return false;
  if (op_as<Slice>(graph, id))
    return slice_of_slice(graph, id, run) || slice_of_concat(graph, id, run);
  if (op_as<Concat>(graph, id))
    return concat_of_nothing(graph, id, run) || concat_of_concat(graph, id, run) ||
           concat_of_slices(graph, id, run);
  return false;
}

}  // namespace

bool compose_slices(Graph& graph, PassRun& run) { return sweep(graph, run, compose_or_drop); }

}  // namespace anneal
