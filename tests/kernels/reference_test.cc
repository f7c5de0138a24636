// The references against numbers that do not come from them, however their tensors lie in memory.
#include <gtest/gtest.h>

#include <ostream>

#include "anneal/core/error.h"
#include "anneal/graph/program/program.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/reference_cases.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {

void PrintTo(const ReferenceCase& each, std::ostream* out) { *out << each.name; }

namespace {

TestLayer layer_of(Op op, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& epilogues) {
  TestLayer layer{std::move(op)};
  for (const std::string& text : epilogues)
    layer.epilogues.push_back(text.empty() ? Program{} : parse_program(text));
  int further = 0;
  for (const Program& epilogue : layer.epilogues)
    if (!epilogue.empty()) further += static_cast<int>(epilogue.inputs().size()) - 1;
  for (const std::string& text : inputs)
    layer.inputs.push_back(text == "-" ? std::nullopt : std::optional(tensor_from_text(text)));
  layer.op_input_count = static_cast<int>(layer.inputs.size()) - further;
  return layer;
}

void expect_output(TestLayer& layer, const Tensor& tensor) {
  layer.outputs.push_back(type_of(tensor));
  layer.output_dims.push_back(tensor.dims());
}

class Reference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(Reference, GivesTheseNumbers) {
  const ReferenceCase& each = GetParam();
  TestLayer layer = layer_of(each.op, each.inputs, each.epilogues);
  std::vector<Tensor> wanted;
  for (const std::string& text : each.outputs) {
    wanted.push_back(tensor_from_text(text));
    expect_output(layer, wanted.back());
  }
  const auto device = cpu_backend().open("cpu");
  const KernelEntry* entry = reference_entry(cpu_backend(), each.op.index());
  ASSERT_NE(entry, nullptr) << "no CPU reference for " << op_name(each.op.index());
  const Facts facts = run_time_facts(layer, *entry, *device);
  ASSERT_EQ(facts.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(facts[i].type, type_of(wanted[i])) << i;
  for (const Placement placement :
       {Placement::kRowMajor, Placement::kChannelsLast, Placement::kPadded, Placement::kReversed}) {
    RunOptions options;
    options.placement = placement;
    options.threads = 2;
    const RunResult result = run_layer(*entry, layer, *device, options);
    ASSERT_EQ(result.why_not, "");
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double rounding = wanted[i].dtype() == DataType::kF32 ? 2e-7 : 0;
      EXPECT_EQ(difference(result.outputs[i], wanted[i],
                           rounding + default_tolerance(wanted[i].dtype()) / 100),
                std::nullopt)
          << "output " << i << ", " << to_string(placement);
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<ReferenceCase>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Nn, Reference, ::testing::ValuesIn(nn_reference_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Data, Reference, ::testing::ValuesIn(data_reference_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Recurrent, Reference, ::testing::ValuesIn(recurrent_reference_cases()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Detect, Reference, ::testing::ValuesIn(detect_reference_cases()),
                         case_name);

struct Refusal {
  Op op;
  std::vector<std::string> inputs, outputs;
  std::string message;
};

void expect_refused(const KernelEntry& entry, const TestLayer& layer, const Refusal& refusal,
                    Device& device) {
  try {
    run_layer(entry, layer, device);
    ADD_FAILURE() << entry.name << " accepted " << refusal.inputs.back();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(refusal.message), std::string::npos) << error.what();
  }
}

TEST(ReferenceErrors, BadContentsAreRefused) {
  Resize shrink;
  shrink.axes = {0};
  shrink.scales = {0.5f};
  const Refusal refusals[] = {
      {Gather{0}, {"f32[3]", "i64[1]={3}"}, {"f32[1]"}, "index 3 is out of range for 3 elements"},
      {Gather{0}, {"f32[3]", "i32[1]={-4}"}, {"f32[1]"}, "index -4 is out of range"},
      {Gather{0}, {"f32[0]", "i64[1]={0}"}, {"f32[1]"}, "out of range for 0 elements"},
      {GatherElements{0}, {"f32[3]", "i64[1]={7}"}, {"f32[1]"}, "index 7 is out of range"},
      {GatherND{}, {"f32[2,2]", "i64[1,2]={1,2}"}, {"f32[1]"}, "index 2 is out of range"},
      {ScatterElements{0},
       {"f32[3]", "i64[1]={3}", "f32[1]"},
       {"f32[3]"},
       "index 3 is out of range"},
      {ScatterND{}, {"f32[3]", "i64[1,1]={-9}", "f32[1]"}, {"f32[3]"}, "index -9 is out of range"},
      {ArgReduce{true, 0, false}, {"f32[0]"}, {"i64[]"}, "an empty axis"},
      {Cumulative{}, {"f32[3]", "i64[]={1}"}, {"f32[3]"}, "not an axis of the tensor"},
      {Pad{PadMode::kEdge}, {"f32[0]", "i64[2]={1,0}"}, {"f32[1]"}, "an empty axis"},
      {Slice{},
       {"f32[3]", "i64[1]={0}", "i64[1]={3}", "i64[1]={0}", "i64[1]={1}"},
       {"f32[4]"},
       "Slice stays within x"},
      {Recurrent{.kind = RecurrentKind::kRnn},
       {"f32[2,1,1]", "f32[1,1,1]", "f32[1,1,1]", "-", "i32[1]={3}"},
       {"f32[2,1,1,1]", "f32[1,1,1]"},
       "sequence 0 has a length of 3 of 2 steps"},
      {ReverseSequence{},
       {"f32[2,1]", "i64[1]={3}"},
       {"f32[2,1]"},
       "sequence 0 has a length of 3 of 2 steps"},
      {shrink, {"f32[3]"}, {"f32[3]"}, "a scale does not give the output's size"},
  };
  const auto device = cpu_backend().open("cpu");
  for (const Refusal& refusal : refusals) {
    TestLayer layer = layer_of(refusal.op, refusal.inputs, {});
    for (const std::string& output : refusal.outputs)
      expect_output(layer, tensor_from_text(output));
    expect_refused(*reference_entry(cpu_backend(), layer.op.index()), layer, refusal, *device);
    // What copies by indices must check them, too.
    for (const std::string_view copy :
         {"cpu.gather.copy", "cpu.gather_nd.copy", "cpu.scatter_nd.copy"})
      if (const KernelEntry* entry = find_kernel(cpu_backend(), copy);
          entry->op == layer.op.index())
        expect_refused(*entry, layer, refusal, *device);
  }
}

TEST(ReferenceErrors, EpiloguesThatDoNotFitAreRefusedByTheMaker) {
  struct Case {
    std::vector<std::string> inputs;
    std::string epilogue, why_not;
  };
  const Case cases[] = {
      {{"f32[3]"}, "(f32,f32)->(f32) add($0,$1)", "fewer inputs"},
      {{"f32[3]", "i64[3]"}, "(f32,f32)->(f32) add($0,$1)", "input 1 is i64"},
      {{"f32[3]"}, "(f32)->(f16) $0", "output 0 is not of the type"},
      {{"f32[3]", "f32[3]"}, "(f32,f32)->(f32,f32) $0, $1", "more inputs or outputs"},
  };
  const auto device = cpu_backend().open("cpu");
  for (const Case& each : cases) {
    TestLayer layer = layer_of(Softmax{}, each.inputs, {each.epilogue});
    layer.op_input_count = 1;
    expect_output(layer, tensor_from_text("f32[3]"));
    if (each.inputs.size() == 1 && each.why_not == "fewer inputs") layer.op_input_count = 2;
    const RunResult result =
        run_layer(*reference_entry(cpu_backend(), layer.op.index()), layer, *device);
    EXPECT_NE(result.why_not.find(each.why_not), std::string::npos) << result.why_not;
  }
}

TEST(CpuDevice, TargetsAreNamesOfWhatTheCpuHas) {
  EXPECT_EQ(cpu_backend().open("cpu")->target(), "cpu");
  EXPECT_EQ(cpu_backend().open("cpu:baseline")->target(), "cpu:baseline");
  for (const char* wrong : {"", "gpu", "cpu:", "cpu:sse9", "CPU", "cpu:avx2 "}) {
    try {
      cpu_backend().open(wrong);
      ADD_FAILURE() << "accepted \"" << wrong << '"';
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }
}

TEST(CpuDevice, BuffersAreAlignedAndCopied) {
  const auto device = cpu_backend().open("cpu");
  const auto stream = device->make_stream();
  for (const size_t bytes : {0, 1, 64, 1000}) {
    const auto from = device->allocate(bytes), to = device->allocate(bytes);
    EXPECT_EQ(from->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(from->data()) % 64, 0u);
    std::fill_n(from->data(), bytes, std::byte{7});
    device->copy(to->data(), from->data(), bytes, *stream);
    stream->wait();
    EXPECT_EQ(std::count(to->data(), to->data() + bytes, std::byte{7}), bytes);
  }
  EXPECT_THROW(device->allocate(~size_t{0}), Error);
  EXPECT_THROW(device->allocate(size_t{1} << 62), Error);
}

}  // namespace
}  // namespace anneal::testing
