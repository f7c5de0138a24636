// push_slice: a slice of a value computed from constants moves before the layers that compute it,
// so that they compute only the part that is read.
//
//   t = Pointwise(e) program=f($0,index(0)); y = Slice(t, from, to)
//     =>   s = Slice(e, from, to); y = Pointwise(s) program=f($0,add(index(0),from))
//   e = Expand(c, shape); y = Slice(e, from, to)   =>   y = Expand(c, sizes of y)
//   y = Gather(e, {2, 3, 4})   =>   y = Slice(e, 2, 5), to move on
//
// Only where the whole is larger than PassOptions::fold_budget_bytes: a smaller one becomes a
// constant, of which a slice is a view. Runs before fold_constants.
#include <algorithm>

#include "anneal/optimizer/analysis/index_box.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/rewrite_program.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

constexpr int kMaxDepth = 16;  // of layers that make a value

bool is_made_of_constants(const Graph& graph, ValueId value, int depth = 0) {
  if (value == ValueId::kNone || graph.constant(value)) return true;
  const LayerId by = producer(graph, value);
  if (by == LayerId::kNone || depth == kMaxDepth) return false;
  const Layer& layer = graph.layer(by);
  if (op_as<SizeTensor>(graph, by)) return true;
  if (!op_as<Pointwise>(graph, by) && !op_as<Expand>(graph, by) && !op_as<Slice>(graph, by))
    return false;
  return layer.epilogues.empty() && std::ranges::all_of(layer.inputs, [&](ValueId input) {
           return is_made_of_constants(graph, input, depth + 1);
         });
}

bool is_large(const Graph& graph, ValueId value, const PassRun& run) {
  const Type& type = graph.value(value).type();
  if (!known(type.shape) || type.dtype == DataType::kString) return false;
  auto bytes = static_cast<double>(size_of(type.dtype));
  for (const Size size : type.shape) bytes *= static_cast<double>(size.value());
  return bytes > static_cast<double>(run.options.fold_budget_bytes);
}

struct SlicedAxis {
  int axis = 0;
  Size start = 0, end = {};  // end: unknown if only a run tells
  int64_t step = 1;
};

// The axes that a Slice layer of a value with known sizes cuts. nullopt: negative steps, or starts
// that are known only at run time.
std::optional<std::vector<SlicedAxis>> sliced_axes(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  const Shape& shape = shape_of(graph, layer.inputs[0]);
  const auto numbers = [&](size_t input) { return graph.value(layer.inputs[input]).fact.elements; };
  const auto starts = numbers(1), ends = numbers(2), axes = numbers(3), steps = numbers(4);
  if (!starts || !axes || !steps) return std::nullopt;
  std::vector<SlicedAxis> sliced;
  for (size_t i = 0; i < axes->size(); ++i) {
    const Size axis = (*axes)[i], step = (*steps)[i];
    Size start = (*starts)[i];
    if (!axis.known() || !step.known() || step.value() < 1 || start.is_unknown())
      return std::nullopt;
    const int at = static_cast<int>(axis.value() < 0 ? axis.value() + shape.rank() : axis.value());
    const int64_t size = shape[at].value();
    if (start.known())
      start =
          std::clamp<int64_t>(start.value() < 0 ? start.value() + size : start.value(), 0, size);
    else if (graph.sizes().range(start).min < 0)
      return std::nullopt;
    sliced.push_back({at, start, ends ? (*ends)[i] : Size::unknown(), step.value()});
  }
  return sliced;
}

class PushedSlice {
 public:
  PushedSlice(Graph& graph, LayerId id, std::vector<SlicedAxis> sliced)
      : graph_(graph), id_(id), sliced_(std::move(sliced)), rewrite_(graph, id) {}

  bool before_expand(LayerId expand) {
    const ValueId small = slice_of(graph_.layer(expand).inputs[0]);
    const ValueId sizes = sizes_of(shape_of(graph_, graph_.layer(id_).outputs[0]));
    if (small == ValueId::kNone || sizes == ValueId::kNone) return false;
    return rewrite_.finish(rewrite_.add("expand", Expand{}, {small, sizes}));
  }

  bool before_pointwise(LayerId pointwise) {
    const std::vector<ValueId> wholes = graph_.layer(pointwise).inputs;
    const Program program = op_as<Pointwise>(graph_, pointwise)->program;
    std::vector<ValueId> inputs;
    for (const ValueId whole : wholes) {
      inputs.push_back(slice_of(whole));
      if (inputs.back() == ValueId::kNone) return false;
    }
    bool possible = true;
    const Program counted =
        rewrite_program(program, [&](ProgramBuilder& builder, size_t reg, std::span<const Reg>) {
          return place_in_whole(builder, program.code()[reg], inputs, possible);
        });
    return possible && rewrite_.finish(rewrite_.add("sliced", Pointwise{counted}, inputs));
  }

 private:
  // The index along an axis of the whole, for one along that of the slice.
  std::optional<Reg> place_in_whole(ProgramBuilder& builder, const Instruction& one,
                                    std::vector<ValueId>& inputs, bool& possible) {
    if (one.opcode != Opcode::kIndex) return std::nullopt;
    const auto axis = static_cast<int>(one.immediate);
    const auto sliced = std::ranges::find(sliced_, axis, &SlicedAxis::axis);
    if (sliced == sliced_.end()) return std::nullopt;
    const Reg scaled = builder.apply(Opcode::kMul, builder.index(axis),
                                     builder.constant(RegisterType::kI64, sliced->step));
    if (sliced->start.known())
      return builder.apply(Opcode::kAdd, scaled,
                           builder.constant(RegisterType::kI64, sliced->start.value()));
    inputs.push_back(sizes_of({sliced->start}));
    possible &= inputs.back() != ValueId::kNone;
    return builder.apply(Opcode::kAdd, scaled,
                         builder.input(static_cast<int>(inputs.size()) - 1, DataType::kI64));
  }

  // A list of sizes; kNone if some are known only at run time.
  ValueId sizes_of(const Shape& sizes) {
    if (known(sizes)) {
      const Dims dims = dims_of(sizes);
      return rewrite_.list("sizes", 0, {dims.begin(), dims.end()});
    }
    const std::vector<bool> decided = graph_.symbols_of_inputs();
    for (const Size size : sizes)
      if (size.is_unknown() || !is_made_of(graph_.sizes(), size, decided)) return ValueId::kNone;
    return rewrite_.add("sizes", SizeTensor{{sizes.begin(), sizes.end()}, false}, {});
  }

  // The slice of a value that broadcasts to the whole: the value itself if the slice takes all of
  // it.
  ValueId slice_of(ValueId value) {
    const Shape shape = shape_of(graph_, value);
    const int missing = shape_of(graph_, graph_.layer(id_).inputs[0]).rank() - shape.rank();
    std::vector<int64_t> axes, steps;
    std::vector<Size> starts, ends;
    for (const SlicedAxis& sliced : sliced_) {
      const int axis = sliced.axis - missing;
      if (axis < 0 || shape[axis] == Size(1)) continue;
      axes.push_back(axis);
      starts.push_back(sliced.start);
      ends.push_back(sliced.end);
      steps.push_back(sliced.step);
    }
    if (axes.empty()) return value;
    const std::vector<ValueId> bounds = graph_.layer(id_).inputs;
    const bool all = axes.size() == sliced_.size();
    const auto numbers = [&](int argument, const std::vector<Size>& sizes) {
      if (std::ranges::all_of(sizes, &Size::known)) {
        std::vector<int64_t> values;
        for (const Size size : sizes) values.push_back(size.value());
        return rewrite_.list("slice", argument, values);
      }
      return all ? bounds[static_cast<size_t>(argument)] : ValueId::kNone;
    };
    const ValueId from = numbers(1, starts), to = numbers(2, ends);
    if (from == ValueId::kNone || to == ValueId::kNone) return ValueId::kNone;
    return rewrite_.add(
        "slice", Slice{},
        {value, from, to, rewrite_.list("slice", 3, axes), rewrite_.list("slice", 4, steps)});
  }

  Graph& graph_;
  LayerId id_;
  std::vector<SlicedAxis> sliced_;
  Rewrite rewrite_;
};

bool push_slice_of(Graph& graph, LayerId id, LayerId by) {
  auto sliced = sliced_axes(graph, id);
  if (!sliced || graph.layer(by).outputs.size() != 1) return false;
  PushedSlice pushed(graph, id, std::move(*sliced));
  if (op_as<Expand>(graph, by)) return pushed.before_expand(by);
  return op_as<Pointwise>(graph, by) && pushed.before_pointwise(by);
}

// The Gather becomes a Slice.
bool slice_gathered(Graph& graph, LayerId id, int axis) {
  const Layer& layer = graph.layer(id);
  const Tensor* indices = graph.constant(layer.inputs[1]);
  if (!indices || indices->count() == 0 || indices->dims().rank() > 1) return false;
  const ValueId x = layer.inputs[0], output = layer.outputs[0];
  const auto box = box_of_list(*indices, shape_of(graph, x)[axis], graph.sizes());
  if (!box || box->steps[0] < 1) return false;
  Rewrite rewrite(graph, id);
  ValueId result = rewrite.slice(x, {box->starts[0]},
                                 {box->starts[0] + (box->counts[0] - 1) * box->steps[0] + 1},
                                 {axis}, {box->steps[0]});
  if (rewrite.shape(result) != rewrite.shape(output))
    result = rewrite.reshape(result, rewrite.shape(output));
  return rewrite.finish(result);
}

bool push_slice_at(Graph& graph, LayerId id, PassRun& run) {
  const auto* gather = op_as<Gather>(graph, id);
  const Layer& layer = graph.layer(id);
  if ((!gather && !op_as<Slice>(graph, id)) || !layer.epilogues.empty()) return false;
  const ValueId whole = layer.inputs[0];
  const LayerId by = producer(graph, whole);
  if (by == LayerId::kNone || !is_large(graph, whole, run) || !is_made_of_constants(graph, whole))
    return false;
  const std::string name = layer.name, of = graph.layer(by).name;
  if (gather ? !slice_gathered(graph, id, static_cast<int>(gather->axis))
             : !push_slice_of(graph, id, by))
    return false;
  run.did(name, gather ? "its indices describe a slice" : "\"" + of + "\" makes only this part");
  return true;
}

}  // namespace

bool push_slice(Graph& graph, PassRun& run) { return sweep(graph, run, push_slice_at); }

}  // namespace anneal
