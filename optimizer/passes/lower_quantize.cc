// lower_quantize: the remaining Quantize and Dequantize layers become programs, which join their
// neighbours.
//
//   q = Quantize(x, s, z)     =>   q = Pointwise(x) program=saturate_u8(add(rint(div($0,s)),z))
//   y = Dequantize(q, s, z)   =>   y = Pointwise(q) program=mul(f32(sub(i32($0),z)),s)
//   y = Pointwise(Dequantize(q, s), b)  =>   y = Pointwise(q, b), for each such reader
//   y = Dequantize(constant)  =>   const y, and later layers with only constant inputs
//
// With constant parameters, one or one for each position of an axis. Results are equal to the bit.
// Runs after integer_products, which reads the layers, and before fuse_pointwise.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/fold.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// Of the parameters: literals where there is one, else inputs along the axis.
class Parameters {
 public:
  Parameters(Graph& graph, const std::string& name, int rank, const Scaling& scaling)
      : graph_(graph), name_(name), rank_(rank), scaling_(scaling) {}

  Reg scale(ProgramBuilder& builder) {
    if (scaling_.per_tensor()) return builder.constant(scaling_.scales[0]);
    return along_axis(builder, "/scales", DataType::kF32, std::span<const float>(scaling_.scales));
  }
  Reg zero(ProgramBuilder& builder) {
    if (scaling_.zeros.size() == 1)
      return builder.constant(RegisterType::kI32, int64_t{scaling_.zeros[0]});
    return along_axis(builder, "/zero_points", DataType::kI32,
                      std::span<const int32_t>(scaling_.zeros));
  }
  const std::vector<ValueId>& values() const { return values_; }

 private:
  template <class T>
  Reg along_axis(ProgramBuilder& builder, std::string_view what, DataType dtype,
                 std::span<const T> numbers) {
    Dims dims = Dims::filled(rank_ - static_cast<int>(scaling_.axis), 1);
    dims[0] = static_cast<int64_t>(numbers.size());
    values_.push_back(
        graph_.add_constant(name_ + std::string(what), Tensor::of<T>(dtype, dims, numbers)));
    return builder.input(static_cast<int>(values_.size()), dtype);
  }

  Graph& graph_;
  const std::string& name_;
  int rank_;
  const Scaling& scaling_;
  std::vector<ValueId> values_;
};

// A sum with a zero point is exact where the quotient is below 2^24; beyond, the result saturates
// with and without it.
Program quantizing(Parameters& parameters, const Scaling& scaling) {
  ProgramBuilder builder;
  const Reg real = builder.input(0, scaling.real);
  Reg rounded = builder.apply(Opcode::kRoundEven,
                              builder.apply(Opcode::kDiv, real, parameters.scale(builder)));
  if (scaling.has_zeros())
    rounded = builder.apply(Opcode::kAdd, rounded,
                            builder.cast(parameters.zero(builder), RegisterType::kF32));
  return builder.finish(builder.saturate(rounded, scaling.integer), scaling.integer);
}

Program dequantizing(Parameters& parameters, const Scaling& scaling) {
  ProgramBuilder builder;
  Reg integer = builder.cast(builder.input(0, scaling.integer), RegisterType::kI32);
  const Reg scale = parameters.scale(builder);
  if (scaling.has_zeros()) integer = builder.apply(Opcode::kSub, integer, parameters.zero(builder));
  return builder.finish(
      builder.apply(Opcode::kMul, builder.cast(integer, RegisterType::kF32), scale), scaling.real);
}

// The elementwise readers of the dequantized value read the integers instead, so that only these
// are stored. Returns the number of readers. program, inputs: of the dequantizing layer `id`.
int join_readers(Graph& graph, LayerId id, const Program& program,
                 std::span<const ValueId> inputs) {
  int joined_readers = 0;
  const ValueId output = graph.layer(id).outputs[0];
  for (const LayerId reader : users_of(graph, output)) {
    const auto* pointwise = op_as<Pointwise>(graph, reader);
    const Layer& layer = graph.layer(reader);
    if (!pointwise || !layer.epilogues.empty()) continue;
    auto joined = join_programs({program, inputs, graph.layer(id).outputs},
                                {pointwise->program, layer.inputs, layer.outputs}, {});
    if (!joined) continue;
    graph.replace_layer(reader, graph.add({.name = layer.name,
                                           .op = Pointwise{std::move(joined->program)},
                                           .inputs = std::move(joined->inputs),
                                           .origins = layer.origins}));
    ++joined_readers;
  }
  return joined_readers;
}

bool lower(Graph& graph, LayerId id, PassRun& run) {
  const auto scaling = scaling_of(graph, id);
  if (!scaling) return false;
  const bool quantizes = op_as<Quantize>(graph, id) != nullptr;
  const Layer& layer = graph.layer(id);
  const std::string name = layer.name;
  const ValueId x = layer.inputs[0];
  Parameters parameters(graph, name, graph.value(x).type().shape.rank(), *scaling);
  const Program program =
      quantizes ? quantizing(parameters, *scaling) : dequantizing(parameters, *scaling);
  std::vector<ValueId> inputs = {x};
  inputs.insert(inputs.end(), parameters.values().begin(), parameters.values().end());
  if (const int readers = quantizes ? 0 : join_readers(graph, id, program, inputs)) {
    run.did(name, fmt::format("joined {} that read it", readers));
    if (graph.value(graph.layer(id).outputs[0]).users.empty() &&
        !graph.is_output(graph.layer(id).outputs[0]))
      return true;
  }
  Rewrite rewrite(graph, id);
  if (!rewrite.finish(rewrite.add(quantizes ? "quantize" : "dequantize", Pointwise{program},
                                  std::move(inputs))))
    return false;
  run.did(name, "became a program");
  return true;
}

}  // namespace

bool lower_quantize(Graph& graph, PassRun& run) {
  const bool folded = fold_layers(graph, run, FoldDequantize::kNow);
  return sweep(graph, run, lower) || folded;
}

}  // namespace anneal
