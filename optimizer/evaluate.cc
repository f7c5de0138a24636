#include "anneal/optimizer/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

// The last entry of the op: the reference.
const KernelEntry& reference_of(const Op& op) {
  const KernelEntry* reference = nullptr;
  for (const KernelFamily family : cpu_backend().families)
    for (const KernelEntry& entry : family())
      if (entry.op == op.index()) reference = &entry;
  check(reference != nullptr, "every op has a reference kernel");
  return *reference;
}

std::unique_ptr<Kernel> reference_kernel(const Request& request) {
  const KernelEntry& entry = reference_of(request.op);
  KernelResult made = entry.make(request);
  if (!made)
    fail(ErrorCode::kUnsupported, fmt::format("{} refused: {}", entry.name, made.reason()));
  return *std::move(made);
}

std::unique_ptr<Kernel> fast_kernel(const Request& request) {
  KernelChoice choice = choose_kernel(cpu_backend(), request, {.exact = true});
  return choice.kernel ? std::move(choice.kernel) : reference_kernel(request);
}

using SymbolValues = std::vector<std::optional<int64_t>>;

void bind_symbols(const Graph& graph, ValueId value, const Dims& dims, SymbolValues& symbols) {
  const Shape& shape = graph.value(value).type().shape;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (const auto symbol = graph.sizes().symbol_index(shape[axis]); symbol && !symbols[*symbol])
      symbols[*symbol] = dims[axis];
}

Tensor size_values(const SizeTensor& op, const SizeTable& sizes, const SymbolValues& symbols) {
  std::vector<int64_t> values;
  for (const Size size : op.elements) values.push_back(sizes.evaluate(size, symbols));
  const Dims dims = op.scalar ? Dims{} : Dims{static_cast<int64_t>(values.size())};
  return Tensor::of<int64_t>(DataType::kI64, dims, values);
}

std::vector<Tensor> evaluate_by(std::unique_ptr<Kernel> (*make)(const Request&), const Layer& layer,
                                std::span<const Tensor* const> inputs, const SizeTable& sizes) {
  if (!bodies_of(layer.op).empty())
    fail(ErrorCode::kUnsupported,
         fmt::format("layer \"{}\" ({}) runs only in an engine", layer.name, to_string(layer.op)));
  std::vector<TensorView> in;
  std::vector<Fact> facts(inputs.size());
  std::vector<InferInput> infer_inputs;
  std::vector<Operand> in_operands, out_operands;
  for (const Tensor* input : inputs) in.push_back(input ? kernel_view(*input) : TensorView{});
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) {
      infer_inputs.push_back({});
      in_operands.push_back({.present = false});
      continue;
    }
    facts[i].type = type_of(*inputs[i]);
    infer_inputs.push_back({&facts[i], &in[i]});
    in_operands.push_back({.type = facts[i].type, .strides = shape_of(in[i].strides)});
  }
  SizeTable scratch = sizes;
  const auto infer = [&](std::span<const Dims> found) {
    return infer_layer(layer.op, layer.epilogues, layer.op_input_count,
                       InferInputs(infer_inputs, scratch), found);
  };
  Facts inferred = infer({});
  for (const Fact& fact : inferred) {
    Type type = fact.type;
    for (int axis = 0; axis < type.shape.rank(); ++axis)
      if (type.shape[axis].is_unknown()) type.shape[axis] = scratch.fresh("found");
    out_operands.push_back({.type = type, .strides = row_major_strides(type.shape, scratch)});
  }

  const auto device = cpu_backend().open("cpu");
  const std::unique_ptr<Kernel> kernel = make({.op = layer.op,
                                               .epilogues = layer.epilogues,
                                               .op_input_count = layer.op_input_count,
                                               .inputs = in_operands,
                                               .outputs = out_operands,
                                               .sizes = scratch,
                                               .device = *device,
                                               .tactic = {}});
  const auto stream = device->make_stream();
  ThreadTeam team(1);
  const auto found = kernel->find(in, *stream, team);
  if (found) inferred = infer(found->dims);
  std::vector<Tensor> results;
  std::vector<TensorView> out;
  for (const Fact& fact : inferred) {
    if (!known(fact.type.shape))
      fail(ErrorCode::kUnsupported, fmt::format("layer \"{}\" gives {}, which stays unknown",
                                                layer.name, scratch.text(fact.type.shape)));
    NewTensor fresh = allocate_tensor(fact.type.dtype, dims_of(fact.type.shape));
    out.push_back(row_major_view(fact.type.dtype, dims_of(fact.type.shape), fresh.data.data()));
    results.push_back(std::move(fresh.tensor));
  }
  const auto prepared = kernel->prepare(in, out, 1);
  const auto workspace = device->allocate(std::max<size_t>(prepared->workspace_bytes, 1));
  kernel->launch({in, out, prepared.get(), workspace->data(), *stream, team, found.get()});
  return results;
}

}  // namespace

std::vector<Tensor> evaluate(const Layer& layer, std::span<const Tensor* const> inputs,
                             const SizeTable& sizes) {
  return evaluate_by(reference_kernel, layer, inputs, sizes);
}

std::vector<Tensor> evaluate_fast(const Layer& layer, std::span<const Tensor* const> inputs,
                                  const SizeTable& sizes) {
  return evaluate_by(fast_kernel, layer, inputs, sizes);
}

std::vector<Tensor> evaluate(const Graph& graph, std::span<const Tensor> inputs) {
  check(inputs.size() == graph.inputs().size(), "one tensor per graph input");
  std::unordered_map<ValueId, Tensor> values;
  SymbolValues symbols(graph.sizes().symbols().size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    bind_symbols(graph, graph.inputs()[i], inputs[i].dims(), symbols);
    values.insert_or_assign(graph.inputs()[i], inputs[i]);
  }
  const auto find = [&](ValueId id) -> const Tensor* {
    if (id == ValueId::kNone) return nullptr;
    if (const Tensor* constant = graph.constant(id)) return constant;
    return &values.at(id);
  };
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    std::vector<Tensor> results;
    if (const auto* tensor = std::get_if<SizeTensor>(&layer.op);
        tensor && layer.epilogues.empty()) {
      results.push_back(size_values(*tensor, graph.sizes(), symbols));
    } else {
      std::vector<const Tensor*> operands;
      for (const ValueId input : layer.inputs) operands.push_back(find(input));
      results = evaluate(layer, operands, graph.sizes());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      bind_symbols(graph, layer.outputs[i], results[i].dims(), symbols);
      values.insert_or_assign(layer.outputs[i], results[i]);
    }
  }
  std::vector<Tensor> outputs;
  for (const Graph::Output& output : graph.outputs()) outputs.push_back(*find(output.value));
  return outputs;
}

}  // namespace anneal
