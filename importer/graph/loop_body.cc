#include "anneal/importer/graph/loop_body.h"

#include <fmt/format.h>

#include <utility>

#include "anneal/core/fail.h"
#include "anneal/importer/graph/open_ranks.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;

// The inputs of a loop's body, in which sizes of carried values become symbols.
class CarriedTypes {
 public:
  // varies: by carried value and axis. If the body is imported again because of an outer one, the
  // sizes that varied before vary from the start.
  CarriedTypes(const GraphProto& proto, const Node& node, LoopBodyRequest request,
               std::vector<std::vector<bool>>& varies)
      : proto_(proto), node_(node), request_(std::move(request)), varies_(varies) {
    varies_.resize(request_.carried);
    for (size_t k = 0; k < request_.carried; ++k) {
      varies_[k].resize(static_cast<size_t>(given(k).shape.rank()));
      for (size_t axis = 0; axis < varies_[k].size(); ++axis)
        if (varies_[k][axis]) set_symbol(k, axis);
    }
  }

  const std::vector<Type>& inputs() const { return request_.inputs; }

  // False if every size varies already.
  bool vary_all() {
    bool any = false;
    for (size_t k = 0; k < request_.carried; ++k)
      for (size_t axis = 0; axis < varies_[k].size(); ++axis) any |= vary(k, axis);
    return any;
  }

  // How the body changes the types of the carried values.
  struct Changes {
    std::string of_rank;  // "" if no value changes its rank
    bool of_sizes = false;
  };
  // Sizes that the body gives back otherwise vary from now on. Fails with kInvalidModel if the body
  // changes a dtype.
  Changes compare(const Graph& body) {
    Changes changes;
    for (size_t k = 0; k < request_.carried; ++k) {
      const Type& next = result(k, body);
      const std::string name = fmt::format("carried value \"{}\"", input_name(k));
      if (given(k).dtype != next.dtype)
        node_.invalid(fmt::format("{} becomes {} from {}", name, anneal::to_string(next.dtype),
                                  anneal::to_string(given(k).dtype)));
      if (given(k).shape.rank() != next.shape.rank()) {
        changes.of_rank = name + " changes its rank";
        return changes;
      }
      for (int axis = 0; axis < next.shape.rank(); ++axis)
        if (given(k).shape[axis] != next.shape[axis])
          changes.of_sizes |= vary(k, static_cast<size_t>(axis));
    }
    return changes;
  }

 private:
  const std::string& input_name(size_t k) const {
    return proto_.input(static_cast<int>(request_.first_carried + k)).name();
  }
  const Type& given(size_t k) const { return request_.inputs[request_.first_carried + k]; }
  const Type& result(size_t k, const Graph& body) const {
    const size_t first = request_.first_carried == 0 ? 0 : 1;  // behind a Loop's next condition
    return body.value(body.outputs()[first + k].value).type();
  }
  void set_symbol(size_t k, size_t axis) {
    request_.inputs[request_.first_carried + k].shape[static_cast<int>(axis)] =
        node_.sizes().fresh(fmt::format("{}/{}.size{}", node_.name(), input_name(k), axis));
  }
  bool vary(size_t k, size_t axis) {
    if (varies_[k][axis]) return false;
    varies_[k][axis] = true;
    set_symbol(k, axis);
    return true;
  }

  const GraphProto& proto_;
  const Node& node_;
  LoopBodyRequest request_;
  std::vector<std::vector<bool>>& varies_;
};

void count_iterations_from(int64_t first, const std::string& name, Body& body) {
  ScopedValue& iteration = body.scope.values.at(name);
  ProgramBuilder builder;
  const Reg counted = builder.input(0, DataType::kI64);
  const Program program = builder.finish(
      builder.apply(Opcode::kAdd, counted, builder.constant(RegisterType::kI64, first)),
      DataType::kI64);
  const LayerId layer = body.graph.add({.name = body.scope.prefix + name + "/counted",
                                        .op = Pointwise{program},
                                        .inputs = {iteration.value},
                                        .output_names = {}});
  iteration.value = body.graph.layer(layer).outputs[0];
}

// The number of the iteration as [1].
void add_axis_to_iteration(const std::string& name, Body& body) {
  ScopedValue& iteration = body.scope.values.at(name);
  const std::string layer_name = body.scope.prefix + name + "/declared";
  const ValueId shape = body.graph.add_constant(layer_name + "/shape",
                                                Tensor::of<int64_t>(DataType::kI64, {1}, {{1}}));
  const LayerId layer = body.graph.add({.name = layer_name,
                                        .op = Reshape{.allow_zero = true},
                                        .inputs = {iteration.value, shape},
                                        .output_names = {}});
  iteration.value = body.graph.layer(layer).outputs[0];
}

void check_ports(const GraphProto& proto, const Node& node, const LoopBodyRequest& request) {
  if (static_cast<size_t>(proto.input_size()) != request.inputs.size())
    node.invalid(fmt::format("the body has {} inputs, {} expected", proto.input_size(),
                             request.inputs.size()));
  const size_t conditions = request.first_carried == 0 ? 0 : 1;
  if (static_cast<size_t>(proto.output_size()) < conditions + request.carried)
    node.invalid("the body has too few outputs");
}

}  // namespace

bool counts_with_axis(const GraphProto& body) {
  const auto& type = body.input(0).type();
  return type.has_tensor_type() && type.tensor_type().has_shape() &&
         type.tensor_type().shape().dim_size() == 1;
}

LoopBody import_loop_body(const GraphProto& proto, const Node& node, LoopBodyRequest request,
                          Scope& scope, NodeImporter& nodes) {
  check_ports(proto, node, request);
  ImportContext& context = nodes.context();
  BodyImporter bodies(nodes);
  const int64_t first_iteration = request.first_iteration;
  const size_t first_output = request.first_carried == 0 ? 0 : 1;
  CarriedTypes types(proto, node, std::move(request), context.varying[node.name()]);
  for (;;) {
    auto body = bodies.begin(node.name() + "/body", scope);
    const UnsupportedReport before = context.unsupported;
    const int first_node = context.nodes_done;
    for (size_t i = 0; i < types.inputs().size(); ++i)
      bodies.add_input(proto, static_cast<int>(i), types.inputs()[i], *body);
    if (first_iteration != 0) count_iterations_from(first_iteration, proto.input(0).name(), *body);
    const bool is_loop = first_output != 0;
    if (is_loop) body->model.iteration = body->scope.values.at(proto.input(0).name()).value;
    if (is_loop && counts_with_axis(proto)) add_axis_to_iteration(proto.input(0).name(), *body);
    const Result<bool> imported = bodies.import(proto, *body);
    if (imported) {
      if (!*imported) return {};
      const auto& results = body->graph.outputs();
      for (size_t k = first_output; k < results.size(); ++k)
        if (refuse_open_rank(results[k].value, "result of a body", results[k].name, "", body->scope,
                             context))
          return {};
      CarriedTypes::Changes changes = types.compare(body->graph);
      if (!changes.of_rank.empty()) return {nullptr, std::move(changes.of_rank)};
      if (!changes.of_sizes) return {std::move(body), ""};
    } else if (!types.vary_all()) {
      // The sizes of the first iteration may be none that the body can have in the others.
      fail(ErrorCode::kInvalidModel, imported.reason());
    }
    context.unsupported = before;
    context.choices.count_again(context.nodes_done - first_node);
  }
}

}  // namespace anneal
