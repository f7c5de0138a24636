// Every op case on every kernel of the backend that accepts it, against the reference, in all
// placements, with and without an epilogue, with known and symbolic sizes, with 1 and 2 threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <set>

#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/op_variants.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {

void PrintTo(const OpCase& each, std::ostream* out) { *out << each.name; }

namespace {

class OpSuite : public ::testing::TestWithParam<OpCase> {
 protected:
  // Compares what one kernel gives with `wanted`, and its bits with 1 and with 2 threads, and when
  // it is made again from its tactic.
  void compare(const KernelEntry& entry, const Variant& way, const std::vector<Tensor>& wanted) {
    const bool is_reference = &entry == reference_entry(cpu_backend(), entry.op);
    const TestLayer& layer = *way.layer;
    const std::string& what = way.what;
    RunOptions options = way.options;
    options.ignore_speed_heuristics = true;
    for (const Placement placement : placements_of(layer)) {
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
      options.in_place = overwritten_input(way, placement);
      if (options.in_place >= 0 &&
          !(run_layer(entry, layer, *device_, options).outputs == once.outputs))
        complain(entry, what, placement, "other bits where the output lies over an input");
      options.in_place = -1;
    }
  }

  std::unique_ptr<Device> device_ = cpu_backend().open("cpu");

 private:
  // The input of an epilogue that Kernel::launch() must be able to write over; -1: none.
  static int overwritten_input(const Variant& way, Placement placement) {
    const TestLayer& layer = *way.layer;
    if (layer.outputs.size() != 1 || placement == Placement::kReversed ||
        (!std::holds_alternative<Conv>(layer.op) && !std::holds_alternative<MatMul>(layer.op)))
      return -1;
    for (auto i = static_cast<size_t>(layer.op_input_count); i < layer.inputs.size(); ++i)
      if (layer.inputs[i]->dims() == layer.output_dims[0] &&
          layer.inputs[i]->dtype() == layer.outputs[0].dtype)
        return static_cast<int>(i);
    return -1;
  }

  void complain(const KernelEntry& entry, const std::string& what, Placement placement,
                const std::string& problem) {
    ADD_FAILURE() << entry.name << ", " << what << ", " << to_string(placement) << ": " << problem
                  << "\nagain: kernels_test --gtest_filter='*OpSuite*/" << GetParam().name << "'";
  }
};

TEST_P(OpSuite, AgreesWithReference) {
  const OpCase& each = GetParam();
  for (const Variants& variants : variants_of(each, *device_))
    for (const KernelFamily family : cpu_backend().families)
      for (const KernelEntry& entry : family())
        if (entry.op == each.op.index())
          for (const Variant& way : variants.ways) compare(entry, way, variants.wanted);
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpSuite, ::testing::ValuesIn(op_cases()),
                         [](const ::testing::TestParamInfo<OpCase>& info) {
                           return info.param.name;
                         });

TEST(OpTables, EveryOpHasAReferenceAndCases) {
  std::set<size_t> with_case;
  for (const OpCase& each : op_cases()) with_case.insert(each.op.index());
  for (size_t op = 1; op < std::variant_size_v<Op>; ++op) {
    // Control flow is run by the context. Custom is run by a library: tests/engine/custom/.
    if (op == op_index<If> || op == op_index<Loop> || op == op_index<Scan> ||
        op == op_index<Custom>)
      continue;
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
