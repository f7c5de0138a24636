// Products, convolutions and pools in ways that the op suite has not: by every configuration that
// could be chosen, and off the alignment of vectors. On the device of ANNEAL_TEST_DEVICE.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/core/bytes.h"
#include "anneal/core/channels_last.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/depthwise_config.h"
#include "anneal/kernels/cuda/cost/mma_config.h"
#include "anneal/kernels/cuda/cost/tactic_text.h"
#include "anneal/kernels/cuda/cost/tile_config.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"
#include "anneal/tests/kernels/tolerance.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Way {
  std::string name, kernel;
  Op op;
  std::vector<std::string> inputs;
  bool channels_last = false;
  int64_t offset = 0;  // of the first element of each input, in elements
  std::vector<std::byte> tactic = {};
  // For the first output: a program, which reads the inputs after the op's own.
  std::string program = {};
  size_t op_inputs = 0;
  int64_t output_offset = 0;
  bool outputs_channels_last = false;
};

class FusedProductKernels : public ::testing::Test {
 protected:
  // Makes all, compiles them at once, and compares each with the reference.
  void expect_agreement(const std::vector<Way>& ways) {
    std::vector<Run> runs;
    for (const Way& way : ways) runs.push_back(make(way));
    device_->prepare_code({});
    for (size_t i = 0; i < ways.size(); ++i) {
      const auto wanted =
          run_layer(*reference_entry(cpu_backend(), ways[i].op.index()), runs[i].layer, *cpu_);
      for (size_t k = 0; k < runs[i].outputs.size(); ++k) {
        const Tensor got = run(runs[i], k);
        const auto problem = disagreement(runs[i].layer, got, wanted.outputs[k]);
        EXPECT_FALSE(problem) << ways[i].name << ", output " << k << ": " << *problem;
      }
    }
  }

  struct Run {
    TestLayer layer;
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<TensorView> inputs, outputs;
    std::unique_ptr<Kernel> kernel;
    std::vector<Tactic> tactics = {};  // that the entry lists
  };

  TensorView place(Run& run, DataType dtype, const Dims& dims, const Dims& strides,
                   int64_t offset) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    run.buffers.push_back(device_->allocate(static_cast<size_t>((count(dims) + offset) * size)));
    return {dtype, dims, strides, run.buffers.back()->data() + offset * size};
  }

  Run make(const Way& way) {
    Run run;
    run.layer.op = way.op;
    std::vector<Operand> operands;
    const auto stream = device_->make_stream();
    for (const std::string& text : way.inputs) {
      const Tensor tensor = tensor_from_text(text, 7 + run.inputs.size());
      run.layer.inputs.emplace_back(tensor);
      const Dims& dims = tensor.dims();
      const bool last = way.channels_last && run.inputs.size() < 2;  // weights, too
      const Dims strides = last ? channels_last_strides(dims) : row_major_strides(dims);
      TensorView view = place(run, tensor.dtype(), dims, strides, way.offset);
      auto bytes = allocate_tensor(tensor.dtype(), dims);
      TensorView host{tensor.dtype(), dims, strides, bytes.data.data()};
      copy(tensor.view(), host);
      device_->copy(view.data, host.data, bytes.data.size(), *stream);
      stream->wait();
      run.inputs.push_back(view);
      operands.push_back({.type = type_of(tensor), .strides = shape_of(strides)});
    }
    run.layer.op_input_count = static_cast<int>(way.inputs.size());
    if (!way.program.empty()) {
      run.layer.op_input_count = static_cast<int>(way.op_inputs);
      run.layer.epilogues = {parse_program(way.program)};
    }
    SizeTable sizes;
    std::vector<Operand> results;
    for (const Fact& fact : infer_with(run.layer, own_types(run.layer), sizes)) {
      const Dims dims = dims_of(fact.type.shape);
      run.layer.outputs.push_back(fact.type);
      run.layer.output_dims.push_back(dims);
      const Dims strides =
          way.outputs_channels_last ? channels_last_strides(dims) : row_major_strides(dims);
      run.outputs.push_back(place(run, fact.type.dtype, dims, strides, way.output_offset));
      results.push_back({.type = fact.type, .strides = shape_of(run.outputs.back().strides)});
    }
    const KernelEntry& entry = *find_kernel(cuda_backend(), way.kernel);
    Request request = {way.op,
                       run.layer.epilogues,
                       run.layer.op_input_count,
                       operands,
                       results,
                       sizes,
                       *device_,
                       {},
                       true};
    if (entry.tactics != nullptr) run.tactics = entry.tactics(request);
    request.tactic = way.tactic;
    KernelResult made = entry.make(request);
    EXPECT_EQ(made.reason(), "") << way.name;
    check(made.has_value(), "the kernel accepts the layer");
    if (!way.tactic.empty()) {
      EXPECT_EQ((*made)->tactic(), way.tactic) << way.name;
    }
    run.kernel = *std::move(made);
    return run;
  }

  static void copy(const ConstTensorView& from, const TensorView& to) {
    const auto size = static_cast<int64_t>(size_of(from.dtype));
    Dims at = Dims::filled(from.dims.rank(), 0);
    for (int64_t i = 0, elements = count(from.dims); i < elements; ++i) {
      int64_t source = 0, target = 0;
      for (int axis = 0; axis < at.rank(); ++axis) {
        source += at[axis] * from.strides[axis];
        target += at[axis] * to.strides[axis];
      }
      std::copy_n(from.data + source * size, size, to.data + target * size);
      for (int axis = at.rank() - 1; axis >= 0 && ++at[axis] == from.dims[axis]; --axis)
        at[axis] = 0;
    }
  }

  Tensor run(const Run& run, size_t output) {
    const auto stream = device_->make_stream();
    const auto prepared = run.kernel->prepare(run.inputs, run.outputs, 1);
    ThreadTeam team(1);
    run.kernel->launch({run.inputs, run.outputs, prepared.get(), nullptr, *stream, team});
    const TensorView& from = run.outputs[output];
    auto bytes = allocate_tensor(from.dtype, from.dims);
    device_->copy(bytes.data.data(), from.data, bytes.data.size(), *stream);
    stream->wait();
    auto result = allocate_tensor(from.dtype, from.dims);
    copy({from.dtype, from.dims, from.strides, bytes.data.data()},
         row_major_view(from.dtype, from.dims, result.data.data()));
    return result.tensor;
  }

  std::unique_ptr<Device> device_ = cuda_backend().open(cuda::device_under_test());

 private:
  std::unique_ptr<Device> cpu_ = cpu_backend().open("cpu");
};

Conv conv(int64_t stride, int64_t pad, int64_t groups = 1) {
  return {{stride, stride}, {pad, pad}, {pad, pad}, {1, 1}, groups};
}

TEST_F(FusedProductKernels, EveryTile) {
  std::vector<Way> ways;
  for (const cuda::TileConfig& tile : cuda::tile_configs()) {
    const auto tactic = tactic_of(tile);
    const std::string name = to_string(tile);
    ways.push_back({name, "cuda.matmul.simt", MatMul{}, {"f32[37,44]", "f32[44,36]"}});
    ways.back().tactic = tactic;
    ways.push_back({"transposed, " + name,
                    "cuda.matmul.simt",
                    MatMul{true, true},
                    {"f16[45,132]", "f16[131,45]"}});
    ways.back().tactic = tactic;
    ways.push_back(
        {"conv, " + name, "cuda.conv.direct", conv(1, 1), {"f32[1,8,7,5]", "f32[19,8,3,3]"}, true});
    ways.back().tactic = tactic;
    // Outputs that end within a tile, and vectors of columns that begin where they do.
    ways.push_back({"split, " + name,
                    "cuda.matmul.simt",
                    MatMul{false, false, {34, 2, 100}},
                    {"f32[37,44]", "f32[44,136]"}});
    ways.back().tactic = tactic;
    if (tile.thread_rows * tile.thread_columns > 16) continue;
    ways.push_back({"f64, " + name, "cuda.matmul.simt", MatMul{}, {"f64[37,44]", "f64[44,36]"}});
    ways.back().tactic = tactic;
  }
  expect_agreement(ways);
}

TEST_F(FusedProductKernels, EveryTileOfTensorCores) {
  std::vector<Way> ways;
  for (const cuda::MmaConfig& tile : cuda::mma_configs()) {
    const auto tactic = tactic_of(tile);
    const std::string name = to_string(tile);
    const auto add = [&](const char* what, const char* kernel, Op op,
                         std::vector<std::string> inputs, bool channels_last = false) {
      ways.push_back({what + name, kernel, std::move(op), std::move(inputs), channels_last});
      ways.back().tactic = tactic;
    };
    add("", "cuda.matmul.mma", MatMul{}, {"f16[37,200]", "f16[200,136]"});
    add("transposed, ", "cuda.matmul.mma", MatMul{true, true}, {"bf16[72,136]", "bf16[37,72]"});
    add("split, ", "cuda.matmul.mma", MatMul{false, false, {72, 8, 56}},
        {"f16[37,72]", "f16[72,136]"});
    Conv split = conv(1, 0);
    split.split = {19, 1, 13};
    add("conv, split, ", "cuda.conv.mma", split, {"f16[1,64,7,5]", "f16[33,64,1,1]"}, true);
    add("conv, ", "cuda.conv.mma", conv(1, 1), {"f16[1,64,7,5]", "f16[19,64,3,3]"}, true);
    add("conv 1x1, ", "cuda.conv.mma", conv(2, 0), {"f16[1,40,9,7]", "f16[33,40,1,1]"}, true);
    // Results that are stored in vectors, whole tiles of them and parts of one.
    const auto add_stored = [&](const char* what, Op op, std::vector<std::string> inputs) {
      add(what, "cuda.conv.mma", std::move(op), std::move(inputs), true);
      ways.back().outputs_channels_last = true;
    };
    add_stored("conv to vectors, ", conv(1, 1), {"f16[2,64,7,5]", "f16[136,64,3,3]"});
    add_stored("conv of groups to vectors, ", conv(1, 1, 3), {"f16[1,48,7,5]", "f16[72,16,3,3]"});
    split.split = {24, 8, 40};
    add_stored("conv, split, to vectors, ", split, {"f16[1,64,7,5]", "f16[72,64,1,1]"});
    // Bytes in squares along the lines; in vectors of 16 and 8; with zero points.
    cuda::ProductSizes of_bytes;
    of_bytes.element_bytes = 1;
    if (!mma_for(of_bytes, cuda::spec_of(*device_), tactic)) continue;  // too few for the threads
    add("bytes, ", "cuda.matmul.mma", MatMul{true, false},
        {"u8[152,36]=0..255", "i8[152,136]=-128..127"});
    add("bytes along the depth, ", "cuda.matmul.mma", MatMul{false, true},
        {"i8[37,288]=-128..127", "u8[133,288]=0..255", "i8[]={7}", "u8[133]=0..255"});
    add("conv of bytes, ", "cuda.conv.mma", conv(1, 1),
        {"u8[1,24,7,5]=0..255", "i8[19,24,3,3]=-128..127", "u8[]={131}", "i8[19]=-128..127"}, true);
  }
  expect_agreement(ways);
}

TEST_F(FusedProductKernels, EveryShareOfDepthwise) {
  std::vector<Way> ways;
  for (const int channels : {1, 2, 4})
    for (const int columns : {1, 2, 4})
      for (const int stride : {1, 2}) {
        const cuda::DepthwiseConfig config{channels, columns, true};
        ways.push_back({fmt::format("{}, stride {}", to_string(config), stride),
                        "cuda.conv.depthwise",
                        conv(stride, 1, 12),
                        {"f32[1,12,7,9]", "f32[12,1,3,3]"},
                        true});
        ways.back().tactic = tactic_of(config);
      }
  ways.push_back({"weights in memory",
                  "cuda.conv.depthwise",
                  conv(1, 1, 12),
                  {"f32[1,12,7,9]", "f32[12,1,3,3]"},
                  true});
  ways.back().tactic = tactic_of(cuda::DepthwiseConfig{1, 1, false});
  ways.push_back({"a large kernel",
                  "cuda.conv.depthwise",
                  conv(1, 4, 5),
                  {"f32[1,5,9,13]", "f32[5,1,9,9]"},
                  true});
  expect_agreement(ways);
}

TEST_F(FusedProductKernels, OffTheAlignmentOfVectors) {
  Pool pool;
  pool.kind = PoolKind::kAverage;
  pool.kernel = {3, 3}, pool.strides = {2, 2}, pool.dilations = {1, 1};
  pool.pads_begin = pool.pads_end = {1, 1};
  std::vector<Way> ways;
  for (const int64_t offset : {0, 1, 2, 3}) {
    const auto add = [&](const char* kernel, Op op, std::vector<std::string> inputs) {
      ways.push_back({fmt::format("{}, {} elements off", kernel, offset), kernel, std::move(op),
                      std::move(inputs), true, offset});
    };
    add("cuda.pool.window", pool, {"f32[1,12,7,5]"});
    add("cuda.conv.depthwise", conv(1, 1, 12), {"f32[1,12,7,9]", "f32[12,1,3,3]"});
    add("cuda.conv.direct", conv(1, 1), {"f32[1,12,5,7]", "f32[9,12,3,3]"});
    add("cuda.conv.direct", conv(1, 0), {"i8[1,12,5,7]=-9..9", "i8[9,12,1,1]=-9..9"});
    add("cuda.conv.mma", conv(1, 1), {"f16[1,24,5,7]", "f16[9,24,3,3]"});
    add("cuda.conv.mma", conv(1, 0), {"f16[1,24,5,7]", "f16[9,24,1,1]"});
    add("cuda.matmul.simt", MatMul{}, {"f32[9,12]", "f32[12,8]"});
    add("cuda.matmul.mma", MatMul{}, {"f16[9,24]", "f16[24,8]"});
    add("cuda.matmul.mma", MatMul{}, {"i8[9,24]=-9..9", "u8[24,8]=0..9"});
    add("cuda.conv.mma", conv(1, 1), {"i8[1,20,5,7]=-9..9", "i8[9,20,3,3]=-9..9", "i8[]={5}"});
    // As above for outputs; inputs are aligned.
    const auto add_output = [&](const char* kernel, Op op, std::vector<std::string> inputs) {
      add(kernel, std::move(op), std::move(inputs));
      ways.back().name += ", outputs";
      ways.back().outputs_channels_last = true;
      std::swap(ways.back().offset, ways.back().output_offset);
    };
    add_output("cuda.pool.window", pool, {"f16[1,12,7,5]"});
    add_output("cuda.conv.depthwise", conv(1, 1, 12), {"f16[1,12,7,9]", "f16[12,1,3,3]"});
    add_output("cuda.conv.direct", conv(1, 1), {"f16[1,12,5,7]", "f16[12,12,3,3]"});
    add_output("cuda.conv.mma", conv(1, 1), {"f16[1,24,5,7]", "f16[24,24,3,3]"});
  }
  expect_agreement(ways);
}

// A program reads numbers of columns, of rows, of both and of neither; results of 16 bits and of 8.
// Columns in vectors, in smaller ones, and alone; results where no vector begins.
TEST_F(FusedProductKernels, EveryWayToStore) {
  constexpr std::string_view kProgram =
      "(f32,f16,f16,f32,f32)->(f16,i8) %0=mul(add(add($0,$1),$2),mul($3,$4)); "
      "round_f16(%0), saturate_i8(rint(%0))";
  constexpr std::string_view kBytes =
      "(i32,i32,i8,f32,f32)->(i8) "
      "saturate_i8(rint(mul(f32(add(add($0,$1),i32($2))),mul($3,$4))))";
  std::vector<Way> ways;
  for (const cuda::MmaConfig& tile : cuda::mma_configs())
    for (const int columns : {136, 132, 131})
      for (const int64_t offset : {0, 3}) {
        const auto add = [&](std::string_view program, std::string_view a, std::string_view b,
                             const char* bias, const char* residual) {
          Way& way = ways.emplace_back();
          way.name = fmt::format("{} columns at {} of {}, {}", columns, offset, a, to_string(tile));
          way.kernel = "cuda.matmul.mma";
          way.op = MatMul{false, true};
          way.inputs = {fmt::format("{}[37,72]", a),
                        fmt::format("{}[{},72]", b, columns),
                        fmt::format("{}[{}]", bias, columns),
                        fmt::format("{}[37,{}]", residual, columns),
                        "f32[37,1]",
                        "f32[]={0.01}"};
          way.tactic = tactic_of(tile);
          way.program = program;
          way.op_inputs = 2;
          way.output_offset = offset;
        };
        add(kProgram, "f16", "f16", "f16", "f16");
        if (tile.rows + tile.columns <= 96) add(kBytes, "i8", "i8", "i32", "i8");
      }
  for (const cuda::TileConfig& tile : cuda::tile_configs()) {
    Way& way = ways.emplace_back();
    way.name = to_string(tile);
    way.kernel = "cuda.matmul.simt";
    way.op = MatMul{};
    way.inputs = {"f32[37,44]", "f32[44,36]", "f32[36]", "f32[37,36]"};
    way.tactic = tactic_of(tile);
    way.program = "(f32,f32,f32)->(f32) add(add($0,$1),$2)";
    way.op_inputs = 2;
  }
  expect_agreement(ways);
}

// The tuner measures what entries list.
TEST_F(FusedProductKernels, EveryListedTacticComputesTheSame) {
  const std::vector<Way> layers = {
      {"matmul of halves", "cuda.matmul.mma", MatMul{}, {"f16[37,72]", "f16[72,136]"}},
      {"matmul of bytes",
       "cuda.matmul.mma",
       MatMul{false, true},
       {"i8[37,288]=-128..127", "u8[133,288]=0..255"}},
      {"matmul", "cuda.matmul.simt", MatMul{}, {"f32[37,44]", "f32[44,36]"}},
      {"matmul of f64", "cuda.matmul.simt", MatMul{}, {"f64[37,44]", "f64[44,36]"}},
      {"conv of halves", "cuda.conv.mma", conv(1, 1), {"f16[1,64,7,5]", "f16[19,64,3,3]"}, true},
      {"conv", "cuda.conv.direct", conv(1, 1), {"f32[1,8,7,5]", "f32[19,8,3,3]"}, true},
      {"depthwise", "cuda.conv.depthwise", conv(1, 1, 24), {"f32[2,24,9,7]", "f32[24,1,3,3]"}},
      {"depthwise, channels last",
       "cuda.conv.depthwise",
       conv(1, 1, 24),
       {"f16[2,24,9,7]", "f16[24,1,3,3]"},
       true},
  };
  compile_in_parallel(*device_, 4);  // as the tuner does
  std::vector<Way> ways;
  for (const Way& layer : layers) {
    const Run run = make(layer);
    ASSERT_GT(run.tactics.size(), 2u) << layer.name;
    EXPECT_EQ(run.tactics[0], run.kernel->tactic()) << layer.name;
    for (const Tactic& tactic : run.tactics) {
      EXPECT_EQ(std::ranges::count(run.tactics, tactic), 1) << layer.name;
      ways.push_back(layer);
      ways.back().tactic = tactic;
      ways.back().name += ", " + cuda::tactic_text(layer.kernel, tactic);
    }
  }
  expect_agreement(ways);
}

TEST_F(FusedProductKernels, AKernelThatRefusesListsNoTactic) {
  const KernelEntry& entry = *find_kernel(cuda_backend(), "cuda.matmul.mma");
  const SizeTable sizes;
  const Op op = MatMul{};
  const Operand side{.type = {DataType::kF32, {8, 8}}, .strides = {8, 1}};
  const std::vector<Operand> inputs = {side, side}, outputs = {side};
  EXPECT_TRUE(entry.tactics({op, {}, 2, inputs, outputs, sizes, *device_, {}, true}).empty());
}

// Of memory that may lie anywhere two functions are made; of known memory one, which takes no
// other.
TEST_F(FusedProductKernels, KnownMemoryNeedsOneFunction) {
  const auto made = [&] {
    return make({"", "cuda.matmul.mma", MatMul{}, {"f16[9,24]", "f16[24,8]"}, false, 1});
  };
  const auto functions = [&] { return cuda::code_of(*device_).functions().size(); };
  {
    const Run anywhere = made();
    EXPECT_EQ(functions(), 2u);
    know_alignments(*anywhere.kernel, std::vector<uint32_t>{64, 0}, std::vector<uint32_t>{64});
    EXPECT_EQ(functions(), 2u);
    know_alignments(*anywhere.kernel, std::vector<uint32_t>{2, 0}, std::vector<uint32_t>{64});
    EXPECT_EQ(functions(), 1u);
    device_->prepare_code({});
    EXPECT_NO_THROW(run(anywhere, 0));
  }
  const Run aligned = made();
  know_alignments(*aligned.kernel, std::vector<uint32_t>{16, 64}, std::vector<uint32_t>{64});
  EXPECT_EQ(functions(), 1u);
  device_->prepare_code({});
  EXPECT_THROW(run(aligned, 0), Error);
}

// What a kernel for sm_90 says of operands without memory: its text, or the reason to refuse.
struct Said {
  std::string text, reason;
};
Operand operand_of(DataType dtype, const Dims& dims, const Dims& strides) {
  return {.type = {dtype, shape_of(dims)}, .strides = shape_of(strides)};
}
Said say(std::string_view kernel, const Op& op, const std::vector<Operand>& inputs,
         const Operand& output, std::string_view program = {}, size_t op_inputs = 0) {
  const SizeTable sizes;
  const auto device = cuda_backend().open("sm_90");
  std::vector<Program> epilogues;
  if (!program.empty()) epilogues = {parse_program(std::string(program))};
  const KernelResult made =
      find_kernel(cuda_backend(), kernel)
          ->make({op,
                  epilogues,
                  static_cast<int>(op_inputs == 0 ? inputs.size() : op_inputs),
                  inputs,
                  {&output, 1},
                  sizes,
                  *device,
                  {}});
  Said said = {.text = {}, .reason = made ? "" : made.reason()};
  for (const auto& function : cuda::code_of(*device).functions()) said.text += function->text.text;
  return said;
}

TEST(KernelTexts, AttentionCountsIn32BitsWhereTheyAreEnough) {
  const auto text_of = [](int64_t keys) {
    const Dims dims = {8, 12, keys, 64};
    const Operand each = operand_of(DataType::kF16, dims, row_major_strides(dims));
    return say("cuda.attention.simt", Attention{}, {each, each, each}, each).text;
  };
  EXPECT_THAT(text_of(128), HasSubstr("attention::Strides<i32>"));
  EXPECT_THAT(text_of(int64_t{1} << 18), HasSubstr("attention::Strides<i64>"));
}

TEST(KernelTexts, AStoreComputesNothingThatItDoesNotStore) {
  const Operand x = operand_of(DataType::kF16, {64, 64}, {64, 1});
  const Operand bias = operand_of(DataType::kF16, {64}, {1});
  const std::string text =
      say("cuda.matmul.mma", MatMul{}, {x, x, bias}, x, "(f32,f16)->(f16) round_f16(add($0,$1))", 2)
          .text;
  EXPECT_THAT(text, HasSubstr("= to_h16(r2);"));
  EXPECT_THAT(text, Not(HasSubstr("op::widen(to_h16(")));
}

// Three channels lie in the places of four, as conv_input_layouts() wants them.
TEST(KernelTexts, LargeKernelsOverFewChannelsNeedBitsOnlyForPadding) {
  const auto said = [](int64_t pad) {
    const Operand x = operand_of(DataType::kF16, {1, 3, 224, 224}, {224 * 224 * 4, 1, 224 * 4, 4});
    const Operand w = operand_of(DataType::kF16, {768, 3, 16, 16}, {16 * 16 * 4, 1, 16 * 4, 4});
    const Dims dims = {1, 768, 14 + pad / 8, 14 + pad / 8};
    const Operand y = operand_of(DataType::kF16, dims, channels_last_strides(dims));
    return say("cuda.conv.mma",
               Conv{.strides = {16, 16},
                    .pads_begin = {pad, pad},
                    .pads_end = {pad, pad},
                    .dilations = {1, 1}},
               {x, w}, y);
  };
  EXPECT_EQ(said(0).reason, "");
  EXPECT_THAT(said(0).text, HasSubstr("conv::NearInput<h16"));
  EXPECT_EQ(said(8).reason, "a large kernel with padding over few channels");
}

TEST_F(FusedProductKernels, ATacticOfAnotherKernelIsRefused) {
  const auto tile = tactic_of(cuda::tile_configs()[0]);
  const auto warps = tactic_of(cuda::mma_configs()[0]);
  const TensorView x = row_major_view(DataType::kF16, {16, 16}, nullptr);
  const Operand operand{.type = {x.dtype, shape_of(x.dims)}, .strides = shape_of(x.strides)};
  const Operand inputs[] = {operand, operand};
  const SizeTable sizes;
  const auto device = cuda_backend().open("sm_90");
  const Op op = MatMul{};
  for (const auto& [kernel, tactic] :
       {std::pair("cuda.matmul.mma", tile), std::pair("cuda.matmul.simt", warps)}) {
    const KernelResult made =
        find_kernel(cuda_backend(), kernel)
            ->make({op, {}, 2, inputs, {&operand, 1}, sizes, *device, tactic});
    EXPECT_FALSE(made) << kernel;
    EXPECT_EQ(made.reason(), "a tactic that is none of this kernel's");
  }
}

}  // namespace
}  // namespace anneal::testing
