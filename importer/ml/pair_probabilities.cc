#include "anneal/importer/ml/pair_probabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace anneal {
namespace {

// The layers of one iteration.
class Iteration {
 public:
  Iteration(Graph& body, int64_t classes) : body_(body), classes_(classes) {}

  // q[rows, classes, classes], p[rows, classes]. Rows within the tolerance keep their p.
  struct Result {
    ValueId p = ValueId::kNone;
    ValueId goes_on = ValueId::kNone;  // bool scalar: whether a row was outside the tolerance
  };
  Result run(ValueId q, ValueId p) {
    const ValueId row = layer(Reshape{}, {p, integers({0, 1, classes_}, "p_shape")}, "p_of_rows");
    ValueId qp = sum_of_products({q, row}, 2, "qp");
    ValueId pqp = sum_of_products({p, qp}, 1, "pqp_sum");
    pqp = layer(Reshape{}, {pqp, integers({-1, 1}, "column")}, "pqp");
    const ValueId error = pointwise({qp, pqp}, DataType::kF32, "error", [](Expressions in) {
      return (in[0] - in[1]).apply(Opcode::kAbs);
    });
    const ValueId largest = layer(Reduce{.kind = ReduceKind::kMax},
                                  {error, integers({1}, "classes_axis")}, "largest_error");
    const double tolerance = 0.005 / static_cast<double>(classes_);
    const ValueId open = pointwise({largest}, DataType::kBool, "open",
                                   [&](Expressions in) { return !(in[0] < tolerance); });
    const ValueId goes_on = layer(Reduce{.kind = ReduceKind::kMax, .keepdims = false},
                                  {open, integers({0, 1}, "all_axes")}, "goes_on");
    const ValueId old = p;
    for (int64_t t = 0; t < classes_; ++t) improve(t, q, p, qp, pqp);
    const ValueId kept = pointwise({open, p, old}, DataType::kF32, "next_p",
                                   [](Expressions in) { return select(in[0], in[1], in[2]); });
    return {kept, goes_on};
  }

 private:
  // p of class t moves to its best value, and all p are divided by their sum.
  void improve(int64_t t, ValueId q, ValueId& p, ValueId& qp, ValueId& pqp) {
    const std::string name = fmt::format("class{}", t);
    const ValueId place = integers({t}, name + "/place");
    const ValueId row = layer(Reshape{},
                              {layer(Gather{.axis = 1}, {q, place}, name + "/q_row"),
                               integers({-1, classes_}, name + "/row")},
                              name + "/q");
    const ValueId diagonal = layer(Gather{.axis = 1}, {row, place}, name + "/q_diagonal");
    const ValueId own = layer(Gather{.axis = 1}, {qp, place}, name + "/own");
    const ValueId step = pointwise({pqp, own, diagonal}, DataType::kF32, name + "/step",
                                   [](Expressions in) { return (in[0] - in[1]) / in[2]; });
    p = pointwise({p, step}, DataType::kF32, name + "/p", [&](Expressions in) {
      const Expression is_own = in[0].index(1) == static_cast<double>(t);
      return select(is_own, in[0] + in[1], in[0]) / (in[1] + 1.0);
    });
    const ValueId new_pqp =
        pointwise({pqp, step, diagonal, own}, DataType::kF32, name + "/pqp", [](Expressions in) {
          const Expression sum = in[1] + 1.0;
          return (in[0] + in[1] * (in[1] * in[2] + in[3] * 2.0)) / sum / sum;
        });
    qp = pointwise({qp, step, row}, DataType::kF32, name + "/qp",
                   [](Expressions in) { return (in[0] + in[1] * in[2]) / (in[1] + 1.0); });
    pqp = new_pqp;
  }

  std::string name_of(std::string_view suffix) const {
    return fmt::format("{}/{}", body_.name, suffix);
  }
  ValueId layer(Op op, std::vector<ValueId> inputs, std::string_view suffix) {
    return body_
        .layer(body_.add({.name = name_of(suffix),
                          .op = std::move(op),
                          .inputs = std::move(inputs),
                          .output_names = {name_of(suffix)}}))
        .outputs[0];
  }
  ValueId integers(const std::vector<int64_t>& values, std::string_view suffix) {
    const Dims dims = {static_cast<int64_t>(values.size())};
    return body_.add_constant(name_of(suffix), Tensor::of<int64_t>(DataType::kI64, dims, values));
  }
  ValueId pointwise(const std::vector<ValueId>& inputs, DataType dtype, std::string_view suffix,
                    Formula formula) {
    std::vector<DataType> types;
    for (const ValueId input : inputs) types.push_back(body_.value(input).type().dtype);
    return layer(Pointwise{program_of(types, dtype, formula)}, inputs, suffix);
  }
  ValueId sum_of_products(const std::vector<ValueId>& factors, int64_t axis,
                          const std::string& suffix) {
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kF32};
    const Reduce sum = {
        .keepdims = false,
        .map = program_of(kTypes, DataType::kF32, [](Expressions in) { return in[0] * in[1]; })};
    return layer(sum, {factors[0], integers({axis}, suffix + "_axis"), factors[1]}, suffix);
  }

  Graph& body_;
  int64_t classes_;
};

// Q of the paper's equation 20.
ValueId coupling_matrix(Node& node, ValueId r) {
  const ValueId turned = node.layer(Transpose{{0, 2, 1}}, {r}, "r_turned");
  const auto square =
      program_of({{DataType::kF32}}, DataType::kF32, [](Expressions in) { return in[0] * in[0]; });
  const ValueId diagonal =
      node.layer(Reduce{.keepdims = true, .map = square},
                 {turned, node.integers_value({2}, "others_axis")}, "diagonal");
  return pointwise(node, "q", {r, turned, diagonal}, DataType::kF32, [](Expressions in) {
    const Expression is_diagonal = in[0].index(1) == in[0].index(2);
    return select(is_diagonal, in[2], -(in[0] * in[1]));
  });
}

}  // namespace

ValueId pair_matrix(Node& node, ValueId pairs, int64_t classes, std::string_view name,
                    FunctionRef<Expression(Expression)> of) {
  const auto side = static_cast<size_t>(classes);
  std::vector<int64_t> places(side * side), signs(side * side);
  int64_t pair = 0;
  for (size_t i = 0; i < side; ++i)
    for (size_t j = i + 1; j < side; ++j, ++pair) {
      places[i * side + j] = places[j * side + i] = pair;
      signs[i * side + j] = 1, signs[j * side + i] = -1;
    }
  const ValueId numbers = node.layer(
      Gather{.axis = 1}, {pairs, node.integers_value(places, fmt::format("{}_places", name))},
      fmt::format("{}_pairs", name));
  const ValueId matrix = pointwise(
      node, name, {numbers, node.integers_value(signs, fmt::format("{}_signs", name))},
      DataType::kF32, [&](Expressions in) {
        const Expression number = of(in[0]);
        return select(in[1] == 0, number.number(0), select(in[1] == 1, number, 1.0 - number));
      });
  const Size rows = node.graph().value(pairs).type().shape[0];
  return reshape(node, matrix, {rows, classes, classes}, fmt::format("{}_matrix", name));
}

ValueId coupled_probabilities(Node& node, ValueId pairs, int64_t classes) {
  Graph& graph = node.graph();
  const ValueId r = pair_matrix(node, pairs, classes, "r", [](Expression p) { return p; });
  const ValueId q = coupling_matrix(node, r);
  const Size rows = graph.value(pairs).type().shape[0];
  const float share = 1 / static_cast<float>(classes);
  const ValueId start =
      node.layer(Expand{},
                 {node.constant_value(Tensor::of<float>(DataType::kF32, {}, {{share}}), "share"),
                  node.sizes_value({rows, classes}, "p_shape")},
                 "first_p");

  Graph body = graph.make_body();
  body.name = node.name() + "/coupling";
  body.add_input(body.name + "/iteration", {DataType::kI64, {}});
  body.add_input(body.name + "/condition", {DataType::kBool, {}});
  const ValueId p = body.add_input(body.name + "/p", graph.value(start).type());
  const ValueId q_inside = body.add_input(body.name + "/q", graph.value(q).type());
  const Iteration::Result next = Iteration(body, classes).run(q_inside, p);
  body.mark_output(next.goes_on, body.name + "/goes_on");
  body.mark_output(next.p, body.name + "/next_p");

  const int64_t most = std::max<int64_t>(100, classes);
  const ValueId trips =
      node.constant_value(Tensor::of<int64_t>(DataType::kI64, {}, {{most}}), "most_iterations");
  const ValueId go =
      node.constant_value(Tensor::of<uint8_t>(DataType::kBool, {}, {{1}}), "first_condition");
  const Loop loop{.body = static_cast<int64_t>(graph.bodies().size()), .carried = 1};
  graph.add_body(std::move(body));
  return node.layer(loop, {trips, go, start, q}, "coupled");
}

}  // namespace anneal
