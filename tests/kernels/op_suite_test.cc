// Every op case on every kernel of the backend that accepts it, against the reference, in all
// placements, with and without an epilogue, with known and symbolic sizes, with 1 and 2 threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <set>

#include "anneal/graph/infer.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/op_cases.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {

void PrintTo(const OpCase& each, std::ostream* out) { *out << each.name; }

namespace {

// A further input for an epilogue of an op output.
Tensor filled(DataType dtype, const Dims& dims, uint64_t seed) {
  return tensor_from_text(fmt::format("{}{}", name(dtype), to_text(dims)), seed);
}

// One value per channel: of axis 1 for images, else of the last axis.
Dims channels(const Op& op, const Dims& dims) {
  const bool image = std::holds_alternative<Conv>(op) || std::holds_alternative<Pool>(op) ||
                     std::holds_alternative<ConvTranspose>(op) ||
                     std::holds_alternative<Resize>(op);
  if (dims.rank() == 0) return dims;
  if (!image || dims.rank() < 3) return {dims[dims.rank() - 1]};
  Dims result = Dims::filled(dims.rank() - 1, 1);
  result[0] = dims[1];
  return result;
}

struct Epilogue {
  Program program;
  std::vector<Tensor> inputs;
};
// of: the op's output.
using MakeEpilogue = Epilogue (*)(const Op& op, DataType of, const Dims& dims);

Epilogue none(const Op&, DataType, const Dims&) { return {}; }

Epilogue bias_relu(const Op& op, DataType of, const Dims& dims) {
  if (of == DataType::kBool) return {parse_program("(bool)->(bool) not($0)"), {}};
  ProgramBuilder b;
  const Reg sum = b.apply(Opcode::kAdd, b.input(0, accumulator(of)), b.input(1, of));
  const Reg result = b.apply(Opcode::kMax, sum, b.constant(sum.type, int64_t{0}));
  return {b.finish(result, of), {filled(of, channels(op, dims), 7)}};
}

Epilogue residual_index(const Op&, DataType of, const Dims& dims) {
  if (of == DataType::kBool)
    return {parse_program("(bool,bool)->(bool) xor($0,$1)"), {filled(of, dims, 8)}};
  ProgramBuilder b;
  Reg result = b.apply(Opcode::kAdd, b.input(0, accumulator(of)), b.input(1, of));
  if (dims.rank() > 0)
    result = b.apply(Opcode::kSub, result, b.cast(b.index(dims.rank() - 1), result.type));
  return {b.finish(result, of), {filled(of, dims, 8)}};
}

// To another type, and a second result.
Epilogue requantize(const Op& op, DataType of, const Dims& dims) {
  if (of == DataType::kBool) return {parse_program("(bool)->(f32) f32($0)"), {}};
  ProgramBuilder b;
  const Reg acc = b.cast(b.input(0, accumulator(of)), RegisterType::kF32);
  const Reg scaled = b.apply(Opcode::kMul, acc, b.input(1, DataType::kF32));
  const Reg byte = b.saturate(b.apply(Opcode::kRoundEven, scaled), DataType::kI8);
  const std::pair<Reg, DataType> results[] = {{byte, DataType::kI8}, {acc, DataType::kF32}};
  return {b.finish(results), {filled(DataType::kF32, channels(op, dims), 9)}};
}

constexpr std::pair<const char*, MakeEpilogue> kEpilogues[] = {{"no epilogue", none},
                                                               {"bias_relu", bias_relu},
                                                               {"residual_index", residual_index},
                                                               {"requantize", requantize}};

struct Built {
  TestLayer layer;
  std::vector<int> constants;
};

Built build(const OpCase& each, MakeEpilogue make_epilogue, const KernelEntry& reference,
            Device& device) {
  Built built{{each.op}, {}};
  TestLayer& layer = built.layer;
  constexpr std::string_view kConstant = "const ";
  for (std::string_view text : each.inputs) {
    if (text.substr(0, kConstant.size()) == kConstant) {
      built.constants.push_back(static_cast<int>(layer.inputs.size()));
      text.remove_prefix(kConstant.size());
    }
    const uint64_t seed = 100 + layer.inputs.size();
    layer.inputs.push_back(text == "-" ? std::nullopt
                                       : std::optional(tensor_from_text(text, seed)));
  }
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  for (const Fact& fact : run_time_facts(layer, reference, device)) {
    Epilogue epilogue = make_epilogue(each.op, fact.type.dtype, dims_of(fact.type.shape));
    layer.epilogues.push_back(std::move(epilogue.program));
    for (Tensor& input : epilogue.inputs) layer.inputs.emplace_back(std::move(input));
  }
  if (make_epilogue == none) layer.epilogues.clear();
  for (const Fact& fact : run_time_facts(layer, reference, device)) {
    layer.outputs.push_back(fact.type);
    layer.output_dims.push_back(dims_of(fact.type.shape));
  }
  return built;
}

// The same layer, made without knowing the sizes of its first input. Nullopt if its shapes cannot
// be inferred then.
struct Symbolic {
  TestLayer layer;
  std::vector<Type> input_types;
  SizeTable sizes;
};
std::optional<Symbolic> symbolic(const TestLayer& layer) {
  if (layer.inputs.empty() || !layer.inputs[0]) return std::nullopt;
  Symbolic result{layer, own_types(layer), {}};
  Shape& shape = result.input_types[0].shape;
  for (int axis = 0; axis < shape.rank(); ++axis)
    shape[axis] = result.sizes.symbol(fmt::format("D{}", axis));
  try {
    result.layer.outputs.clear();
    for (const Fact& fact : infer_with(layer, result.input_types, result.sizes)) {
      Type type = fact.type;
      for (int axis = 0; axis < type.shape.rank(); ++axis)
        if (type.shape[axis].is_unknown()) type.shape[axis] = result.sizes.fresh("unknown");
      result.layer.outputs.push_back(type);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return result;
}

class OpSuite : public ::testing::TestWithParam<OpCase> {
 protected:
  // Compares what one kernel gives with `wanted`, and its bits with 1 and with 2 threads, and when
  // it is made again from its tactic.
  void compare(const KernelEntry& entry, const TestLayer& layer, RunOptions options,
               const std::vector<Tensor>& wanted, const std::string& what) {
    const bool is_reference = &entry == reference_entry(cpu_backend(), entry.op);
    for (const Placement placement : {Placement::kRowMajor, Placement::kChannelsLast,
                                      Placement::kPadded, Placement::kReversed}) {
      options.placement = placement;
      options.threads = 1;
      options.tactic = {};
      const RunResult once = run_layer(entry, layer, *device_, options);
      if (!once.why_not.empty()) {
        if (is_reference) complain(entry, what, placement, "refuses: " + once.why_not);
        continue;
      }
      for (size_t i = 0; i < wanted.size(); ++i) {
        const double tolerance = default_tolerance(wanted[i].dtype());
        if (const auto problem = difference(once.outputs[i], wanted[i], tolerance))
          complain(entry, what, placement, fmt::format("output {}: {}", i, *problem));
      }
      options.threads = 2;
      options.tactic = once.tactic;
      const RunResult again = run_layer(entry, layer, *device_, options);
      if (!again.why_not.empty()) {
        complain(entry, what, placement, "refuses its own tactic: " + again.why_not);
      } else if (!(again.outputs == once.outputs)) {
        complain(entry, what, placement, "other bits with 2 threads");
      }
    }
  }

  std::unique_ptr<Device> device_ = cpu_backend().open("cpu");

 private:
  void complain(const KernelEntry& entry, const std::string& what, Placement placement,
                const std::string& problem) {
    ADD_FAILURE() << entry.name << ", " << what << ", " << name(placement) << ": " << problem
                  << "\nagain: kernels_test --gtest_filter='*OpSuite*/" << GetParam().name << "'";
  }
};

TEST_P(OpSuite, AgreesWithReference) {
  const OpCase& each = GetParam();
  const KernelEntry* reference = reference_entry(cpu_backend(), each.op.index());
  ASSERT_NE(reference, nullptr);
  for (const auto& [epilogue, make_epilogue] : kEpilogues) {
    const Built built = build(each, make_epilogue, *reference, *device_);
    const RunResult wanted = run_layer(*reference, built.layer, *device_);
    ASSERT_EQ(wanted.why_not, "") << epilogue;
    const auto unknown = symbolic(built.layer);
    for (const KernelFamily family : cpu_backend().families) {
      for (const KernelEntry& entry : family()) {
        if (entry.op != each.op.index()) continue;
        RunOptions options;
        compare(entry, built.layer, options, wanted.outputs, epilogue);
        if (unknown) {
          options.sizes = &unknown->sizes;
          options.input_types = unknown->input_types;
          compare(entry, unknown->layer, options, wanted.outputs,
                  std::string(epilogue) + ", symbolic sizes");
        }
        if (built.constants.empty()) continue;
        RunOptions with_constants;
        with_constants.constants = built.constants;
        compare(entry, built.layer, with_constants, wanted.outputs,
                std::string(epilogue) + ", constant weights");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpSuite, ::testing::ValuesIn(op_cases()),
                         [](const ::testing::TestParamInfo<OpCase>& info) {
                           return info.param.name;
                         });

TEST(OpTables, EveryOpHasAReferenceAndCases) {
  std::set<size_t> with_case;
  for (const OpCase& each : op_cases()) with_case.insert(each.op.index());
  for (size_t op = 1; op < std::variant_size_v<Op>; ++op) {
    // Control flow is run by the context.
    if (op == op_index<If> || op == op_index<Loop> || op == op_index<Scan>) continue;
    EXPECT_NE(reference_entry(cpu_backend(), op), nullptr) << op_name(op);
    EXPECT_TRUE(with_case.contains(op)) << op_name(op);
  }
}

TEST(OpTables, TheReferenceBackendHoldsTheReferences) {
  std::set<const KernelEntry*> references;
  for (const KernelFamily family : cpu_reference_backend().families)
    for (const KernelEntry& entry : family()) references.insert(&entry);
  for (size_t op = 0; op < std::variant_size_v<Op>; ++op) {
    const KernelEntry* reference = reference_entry(cpu_backend(), op);
    EXPECT_TRUE(!reference || references.erase(reference)) << op_name(op);
  }
  for (const KernelEntry* more : references) ADD_FAILURE() << more->name << " is no reference";
}

TEST(OpTables, KernelNamesAreUnique) {
  std::set<std::string_view> names;
  for (const KernelFamily family : cpu_backend().families)
    for (const KernelEntry& entry : family())
      EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
}

}  // namespace
}  // namespace anneal::testing
