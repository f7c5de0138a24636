#include "anneal/optimizer/analysis/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// The limit on the bytes that folding creates, as a multiple of the bytes of the constants.
constexpr double kMaxGrowth = 8;
// No matter what they are made of.
constexpr double kMaxScratchBytes = 1 << 30;
// Results from this size on are computed by fast kernels.
constexpr double kManyBytes = 1 << 18;
// Products transpose matrices from this size on, which may be those of a mapped file.
constexpr size_t kLargeMatrix = 1 << 20;

double bytes_of(const Type& type) {
  auto bytes = static_cast<double>(size_of(type.dtype));
  for (const Size size : type.shape) {
    if (!size.known()) return 0;  // it depends on values, which are known
    bytes *= static_cast<double>(size.value());
  }
  return bytes;
}

// Whether a layer computes each element of its result from few elements of its inputs, so that its
// reader can include it.
bool is_elementwise(const Layer& layer) {
  return std::holds_alternative<Pointwise>(layer.op) || std::holds_alternative<Expand>(layer.op) ||
         std::holds_alternative<Dequantize>(layer.op);
}

class Folding {
 public:
  Folding(Graph& graph, PassRun& run, FoldDequantize dequantize)
      : graph_(graph),
        run_(run),
        budget_(static_cast<double>(run.options.fold_budget_bytes)),
        dequantize_(dequantize) {}

  bool once() {
    const std::vector<LayerId> order = graph_.order();
    for (const LayerId id : order) visit(id);
    for (auto at = order.rbegin(); at != order.rend(); ++at) decide(*at);
    bool changed = false;
    for (const LayerId id : order) {
      if (!run_.may_rewrite()) break;
      const auto found = derived_.find(id);
      if (found == derived_.end() || !found->second.wanted || !is_used(id)) continue;
      if (!inputs_are_constant(id)) continue;
      fold(id);
      changed = true;
    }
    return changed;
  }

 private:
  // A layer with constant inputs only.
  struct Derived {
    double bytes = 0;   // of its results
    double source = 0;  // of the constants that it is made of
    std::string why_not = {};
    bool wanted = false;
  };

  bool is_used(LayerId id) const {
    return std::ranges::any_of(graph_.layer(id).outputs, [&](ValueId output) {
      return !graph_.value(output).users.empty() || graph_.is_output(output);
    });
  }
  bool inputs_are_constant(LayerId id) const {
    return std::ranges::all_of(graph_.layer(id).inputs, [&](ValueId input) {
      return input == ValueId::kNone || graph_.constant(input);
    });
  }
  Derived* derived(LayerId id) {
    const auto found = derived_.find(id);
    return found == derived_.end() ? nullptr : &found->second;
  }

  void visit(LayerId id) {
    const Layer& layer = graph_.layer(id);
    if (layer.inputs.empty() || !bodies_of(layer.op).empty() || !is_pure(layer.op)) return;
    if (products_transpose(id)) return;
    if (dequantize_ == FoldDequantize::kLater && op_as<Dequantize>(graph_, id) &&
        (scaling_of(graph_, id) || is_in_blocks(id) || is_in_floats(id)))
      return;
    Derived made;
    for (const ValueId output : layer.outputs) {
      const Type& type = graph_.value(output).type();
      if (type.container != Container::kTensor || type.dtype == DataType::kString) return;
      made.bytes += bytes_of(type);
    }
    for (const ValueId input : layer.inputs) {
      if (input == ValueId::kNone) continue;
      if (const Tensor* constant = graph_.constant(input)) {
        made.source += static_cast<double>(constant->bytes().size());
        continue;
      }
      const Derived* from = derived(producer(graph_, input));
      if (!from) return;
      made.source += from->source;
      if (made.why_not.empty()) made.why_not = from->why_not;
    }
    if (made.why_not.empty()) made.why_not = why_not_computed(made);
    derived_.emplace(id, std::move(made));
  }

  bool swaps_matrix(LayerId id) const {
    const auto* transpose = op_as<Transpose>(graph_, id);
    return transpose && transpose->permutation == std::vector<int64_t>{1, 0};
  }

  // What reads the matrix but transposes.
  std::vector<LayerId> direct_readers(ValueId matrix) const {
    std::vector<LayerId> readers = users_of(graph_, matrix);
    std::erase_if(readers, [&](LayerId reader) { return swaps_matrix(reader); });
    return readers;
  }

  // Whether it is a product by the matrix as its right side, which it can transpose.
  bool multiplies_by(LayerId reader, ValueId matrix) const {
    const Layer& product = graph_.layer(reader);
    return op_as<MatMul>(graph_, reader) && product.op_input_count == 2 &&
           std::ranges::count(product.inputs, matrix) == 1 && product.inputs[1] == matrix;
  }

  // Whether only such products read the matrix.
  bool only_products_read(ValueId matrix, const std::vector<LayerId>& readers) const {
    return !graph_.is_output(matrix) && !readers.empty() &&
           std::ranges::all_of(readers,
                               [&](LayerId reader) { return multiplies_by(reader, matrix); });
  }
  bool only_products_read(ValueId matrix) const {
    return only_products_read(matrix, users_of(graph_, matrix));
  }

  // A transpose that products absorb (compose_moves), of a large matrix, which the build would hold
  // twice, or of one that other layers read untransposed: the engine would hold it twice, as the
  // embeddings of a language model and the weights of its last product.
  bool products_transpose(LayerId id) const {
    if (!swaps_matrix(id)) return false;
    const ValueId matrix = graph_.layer(id).inputs[0], swapped = graph_.layer(id).outputs[0];
    const Tensor* constant = graph_.constant(matrix);
    const bool is_large = constant && constant->bytes().size() >= kLargeMatrix;
    return (is_large || !direct_readers(matrix).empty()) && only_products_read(swapped);
  }

  // The same where products read the matrix itself, and others its transpose.
  void let_products_transpose(ValueId matrix, ValueId swapped) {
    const std::vector<LayerId> products = direct_readers(matrix);
    if (!only_products_read(matrix, products)) return;
    for (const LayerId id : products) {
      NewLayer product = copy_of(graph_, id);
      auto& op = std::get<MatMul>(product.op);
      op.transpose_b = !op.transpose_b;
      product.inputs[1] = swapped;
      graph_.replace_layer(id, graph_.add(std::move(product)));
    }
  }

  // Constants that keep_quantized_weights may use. insert_quantize reads weights that are floats.
  bool is_in_blocks(LayerId id) const {
    const Tensor* integers = graph_.constant(graph_.layer(id).inputs[0]);
    return op_as<Dequantize>(graph_, id)->block_size >= kLeastWeightBlock && integers != nullptr &&
           is_8bit(integers->dtype()) && integers->dims().rank() == 2 &&
           !run_.options.precision.allows(Precision::kI8);
  }

  // Codes of floats, likewise.
  bool is_in_floats(LayerId id) const {
    const Layer& layer = graph_.layer(id);
    const Tensor* codes = graph_.constant(layer.inputs[0]);
    if (!has_float_codes(id) || !codes || codes->dims().rank() != 2 ||
        run_.options.precision.allows(Precision::kI8))
      return false;
    const ValueId reals = layer.outputs[0];
    const std::vector<LayerId> readers = users_of(graph_, reals);
    return std::ranges::all_of(readers, [&](LayerId reader) {
      return swaps_matrix(reader) ? only_products_read(graph_.layer(reader).outputs[0])
                                  : multiplies_by(reader, reals);
    });
  }

  bool has_float_codes(LayerId id) const {
    const auto* dequantize = op_as<Dequantize>(graph_, id);
    return dequantize && !has_integers(dequantize->encoding);
  }

  // Dequantize layers that stay for later passes have constant scales and zero points.
  bool reads_as_scale(LayerId reader, ValueId value) const {
    return op_as<Dequantize>(graph_, reader) && graph_.layer(reader).inputs[0] != value;
  }

  // Whatever reads it.
  std::string why_not_computed(const Derived& made) const {
    if (made.bytes > std::max({budget_, kMaxScratchBytes, kMaxGrowth * made.source}))
      return fmt::format("computing it once would take {:.0f} bytes", made.bytes);
    const auto limit = static_cast<double>(run_.options.max_memory);
    if (limit > 0 && made.bytes > budget_ && made.bytes + made.source > limit)
      return fmt::format("computed once it takes {:.0f} bytes, the memory limit is {:.0f}",
                         made.bytes, limit);
    return {};
  }

  // Behind all layers that read it.
  void decide(LayerId id) {
    Derived* made = derived(id);
    if (!made || !is_used(id)) return;
    const Layer& layer = graph_.layer(id);
    // No kernel but the reference has codes of floats.
    bool only_elementwise = true, needed = has_float_codes(id);
    for (const ValueId output : layer.outputs) {
      only_elementwise &= !graph_.is_output(output);
      for (const LayerId reader : graph_.value(output).users) {
        const Derived* of_reader = derived(reader);
        needed |= (of_reader && of_reader->wanted) || reads_as_scale(reader, output);
        only_elementwise &= is_elementwise(graph_.layer(reader));
      }
    }
    std::string why_not = made->why_not;
    if (why_not.empty() && !needed && made->bytes > budget_ && is_elementwise(layer) &&
        (only_elementwise || made->bytes > kMaxGrowth * made->source))
      why_not = "constant, but larger than the budget for folding";
    made->wanted = why_not.empty();
    if (!made->wanted) run_.refused(layer.name, why_not);
  }

  void fold(LayerId id) {
    const Layer& layer = graph_.layer(id);
    const double bytes = derived_.at(id).bytes;
    std::vector<const Tensor*> inputs;
    for (const ValueId input : layer.inputs) inputs.push_back(graph_.constant(input));
    const std::vector<Tensor> results = bytes > kManyBytes
                                            ? evaluate_fast(layer, inputs, graph_.sizes())
                                            : evaluate(layer, inputs, graph_.sizes());
    const std::vector<ValueId> outputs = layer.outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId folded = graph_.add_constant(graph_.value(outputs[i]).name, results[i]);
      graph_.swap_names(folded, outputs[i]);
      graph_.replace_uses(outputs[i], folded);
      if (swaps_matrix(id)) let_products_transpose(layer.inputs[0], folded);
    }
    run_.did(layer.name, "computed while building");
    if (bytes > budget_) graph_.erase_unused();  // frees what it was made of
  }

  Graph& graph_;
  PassRun& run_;
  double budget_;
  FoldDequantize dequantize_;
  std::unordered_map<LayerId, Derived> derived_;
};

// A constant that a body captures becomes the body's own, so that what reads it there can be folded
// and kernels can pack it. The bytes are shared.
bool give_constants_to_bodies(Graph& graph, PassRun& run) {
  bool any = false;
  for (const LayerId id : graph.order())
    for (const BodyUse& use : bodies_of(graph.layer(id).op)) {
      Graph& body = graph.bodies()[static_cast<size_t>(use.body)];
      const Layer& layer = graph.layer(id);
      for (size_t i = 0; static_cast<size_t>(use.outer) + i < layer.inputs.size(); ++i) {
        const ValueId outside = layer.inputs[static_cast<size_t>(use.outer) + i];
        const ValueId inside = body.inputs()[static_cast<size_t>(use.inner) + i];
        const Tensor* constant = graph.constant(outside);
        if (!constant || body.value(inside).users.empty() || !run.may_rewrite()) continue;
        body.replace_uses(inside, body.add_constant(body.value(inside).name, *constant));
        run.did(layer.name, fmt::format("its body reads the constant \"{}\" as its own",
                                        graph.value(outside).name));
        any = true;
      }
    }
  return any;
}

}  // namespace

bool fold_layers(Graph& graph, PassRun& run, FoldDequantize dequantize) {
  bool any = false;
  while (run.may_rewrite() && Folding(graph, run, dequantize).once()) {
    any = true;
    graph.erase_unused();
  }
  any |= give_constants_to_bodies(graph, run);
  if (any) graph.refine();  // contents that became known may narrow sizes
  return any;
}

}  // namespace anneal
