// What the main kernels do to memory on the emulated device, line by line: tests/golden/
// access_table.txt holds the table, and no line may waste more than is_wasteful() allows unless it
// is among the exceptions here, with the reason. ANNEAL_UPDATE_GOLDEN=1 writes the table anew.
//
// A row is a line of a function's text, identified by its words, so that it stays when other lines
// move it:
//   kind, memory, bytes of a thread | requests | sectors of a request / ideal | bank conflict
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "anneal/core/file.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/counted_steps.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

constexpr const char* kGolden = "tests/golden/access_table.txt";
constexpr size_t kMostText = 90;      // of a line
constexpr int64_t kLeastShare = 100;  // of a function's accesses: one in this number

// The layers of a graph: inputs, then the lines of its text.
struct Case {
  std::string_view name, inputs, layers;
};
constexpr std::string_view kSame3 = "strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]";
constexpr std::string_view kHalf3 = "strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]";
constexpr std::string_view kHalf7 = "strides=[2,2] pads_begin=[3,3] pads_end=[3,3] dilations=[1,1]";
constexpr std::string_view kPoint = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]";

constexpr Case kCases[] = {
    {"conv_3x3_f16", "x: f16[1,64,28,28]", R"txt(
  const w: f16[64,64,3,3] = random(1)
  const b: f32[64,1,1] = random(2)
  c = Conv(x, w) {same3}
  y = Pointwise(c, b) program="(f16,f32)->(f16) round_f16(max(add($0,$1),0f32))")txt"},
    {"conv_3x3_stride_2_f16", "x: f16[1,64,28,28]", R"txt(
  const w: f16[128,64,3,3] = random(1)
  y = Conv(x, w) {half3})txt"},
    {"conv_stem_f16", "x: f16[1,3,64,64]", R"txt(
  const w: f16[64,3,7,7] = random(1)
  const b: f32[64,1,1] = random(2)
  c = Conv(x, w) {half7}
  y = Pointwise(c, b) program="(f16,f32)->(f16) round_f16(max(add($0,$1),0f32))")txt"},
    {"conv_1x1_residual_silu_f16", "x: f16[1,64,28,28]", R"txt(
  const w: f16[128,64,1,1] = random(1)
  const b: f32[128,1,1] = random(2)
  const v: f16[64,128,1,1] = random(3)
  const u: f16[128,64,1,1] = random(4)
  z = Conv(x, u) {point}
  c = Conv(x, w) {point}
  d = Pointwise(c, b) program="(f16,f32)->(f16) round_f16(add($0,$1))"
  s = Pointwise(d, z) program="(f16,f16)->(f16) round_f16(add(mul($0,sigmoid($0)),$1))"
  y = Conv(s, v) {point})txt"},
    {"conv_3x3_f32", "x: f32[1,32,28,28]", R"txt(
  const w: f32[64,32,3,3] = random(1)
  y = Conv(x, w) {same3})txt"},
    {"conv_3x3_int8", "x: u8[1,64,28,28]", R"txt(
  const w: i8[64,64,3,3] = random(1)
  const b: i32[64,1,1] = random(2)
  c = Conv(x, w) {same3}
  y = Pointwise(c, b) program="(i32,i32)->(u8) saturate_u8(rint(mul(f32(add($0,$1)),0.01f32)))")txt"},
    {"conv_stem_int8", "x: u8[1,3,64,64]", R"txt(
  const w: i8[64,3,7,7] = random(1)
  c = Conv(x, w) {half7}
  y = Pointwise(c) program="(i32)->(u8) saturate_u8(rint(mul(f32($0),0.01f32)))")txt"},
    {"conv_grouped_f16", "x: f16[1,128,28,28]", R"txt(
  const w: f16[128,16,3,3] = random(1)
  y = Conv(x, w) {same3} groups=8)txt"},
    {"conv_depthwise_f16", "x: f16[1,96,28,28]", R"txt(
  const v: f16[96,96,1,1] = random(2)
  const w: f16[96,1,3,3] = random(1)
  p = Conv(x, v) {point}
  y = Conv(p, w) {same3} groups=96)txt"},
    {"conv_depthwise_f32", "x: f32[1,96,28,28]", R"txt(
  const v: f32[96,96,1,1] = random(2)
  const w: f32[96,1,3,3] = random(1)
  p = Conv(x, v) {point}
  y = Conv(p, w) {half3} groups=96)txt"},
    {"conv_depthwise_int8", "x: u8[1,96,28,28]", R"txt(
  const v: i8[96,96,1,1] = random(2)
  const w: i8[96,1,3,3] = random(1)
  s = Conv(x, v) {point}
  p = Pointwise(s) program="(i32)->(u8) saturate_u8(rint(mul(f32($0),0.01f32)))"
  c = Conv(p, w) {same3} groups=96
  y = Pointwise(c) program="(i32)->(u8) saturate_u8(rint(mul(f32($0),0.01f32)))")txt"},
    {"matmul_nn_f16", "a: f16[128,256]", R"txt(
  const b: f16[256,192] = random(1)
  const s: f32[192] = random(2)
  c = MatMul(a, b)
  y = Pointwise(c, s) program="(f16,f32)->(f16) round_f16(add($0,$1))")txt"},
    {"matmul_nt_f16", "a: f16[128,256], b: f16[192,256]", R"txt(
  t = Transpose(b) permutation=[1,0]
  y = MatMul(a, t))txt"},
    {"matmul_f32", "a: f32[128,256]", R"txt(
  const b: f32[256,192] = random(1)
  y = MatMul(a, b))txt"},
    {"matmul_int8", "a: u8[128,256]", R"txt(
  const b: i8[256,192] = random(1)
  c = MatMul(a, b)
  y = Pointwise(c) program="(i32)->(i8) saturate_i8(rint(mul(f32($0),0.01f32)))")txt"},
    {"matmul_skinny_f16", "a: f16[1,512]", R"txt(
  const b: f16[512,256] = random(1)
  y = MatMul(a, b))txt"},
    {"attention_f16", "q: f16[1,4,64,64], k: f16[1,4,64,64], v: f16[1,4,64,64]", R"txt(
  y = Attention(q, k, v))txt"},
    {"attention_f32", "q: f32[1,4,64,64], k: f32[1,4,64,64], v: f32[1,4,64,64]", R"txt(
  y = Attention(q, k, v))txt"},
    {"softmax_f16", "x: f16[96,128]", R"txt(
  y = Softmax(x) axis=1)txt"},
    {"softmax_long_f32", "x: f32[16,1000]", R"txt(
  y = Softmax(x) axis=1)txt"},
    {"softmax_of_columns_f32", "x: f32[4,64,512]", R"txt(
  y = Softmax(x) axis=1)txt"},
    {"layer_norm_f16", "x: f16[64,768]", R"txt(
  const s: f32[768] = random(1)
  const b: f32[768] = random(2)
  n = Normalize(x) axes=[1]
  y = Pointwise(n, s, b) program="(f16,f32,f32)->(f16) round_f16(add(mul($0,$1),$2))")txt"},
    {"layer_norm_f32", "x: f32[64,768]", R"txt(
  y = Normalize(x) axes=[1])txt"},
    {"group_norm_f16", "x: f16[1,8,8,14,14]", R"txt(
  y = Normalize(x) axes=[2,3,4])txt"},
    {"group_norm_channels_last_f16", "x: f16[1,64,14,14]", R"txt(
  const w: f16[64,64,1,1] = random(1)
  c = Conv(x, w) {point}
  r = Reshape(c, i64{1,8,8,14,14})
  n = Normalize(r) axes=[2,3,4]
  y = Reshape(n, i64{1,64,14,14}))txt"},
    {"reduce_rows_f32", "x: f32[64,1000]", R"txt(
  y = Reduce(x, i64{1}) kind=sum)txt"},
    {"reduce_columns_f32", "x: f32[4,64,512]", R"txt(
  y = Reduce(x, i64{1}) kind=max)txt"},
    {"cumulative_f32", "x: f32[16,2500]", R"txt(
  y = Cumulative(x, i64{1}))txt"},
    {"cumulative_of_columns_f32", "x: f32[2,24,3000]", R"txt(
  y = Cumulative(x, i64{1}))txt"},
    {"topk_long_f32", "x: f32[4,3000]", R"txt(
  y, z = TopK(x, i64{40}) axis=1)txt"},
    {"topk_short_f16", "x: f16[64,64]", R"txt(
  y, z = TopK(x, i64{8}) axis=1)txt"},
    {"lstm_f32", "x: f32[6,4,32]", R"txt(
  const w: f32[1,256,32] = random(1)
  const r: f32[1,256,64] = random(2)
  const b: f32[1,512] = random(3)
  y, h, c = Recurrent(x, w, r, b))txt"},
    {"gru_step_f16", "x: f16[1,1,64]", R"txt(
  const w: f16[1,192,64] = random(1)
  const r: f16[1,192,64] = random(2)
  y, h = Recurrent(x, w, r) kind=gru)txt"},
    {"dequantize_blocks", "x: i8[64,256], s: f32[64,8]", R"txt(
  y = Dequantize(x, s) axis=1 block_size=32)txt"},
    {"conv_transpose_f16", "x: f16[1,64,14,14]", R"txt(
  const v: f16[64,64,1,1] = random(2)
  const w: f16[64,32,4,4] = random(1)
  p = Conv(x, v) {point}
  y = ConvTranspose(p, w) {half3} output_padding=[0,0])txt"},
    {"conv_transpose_groups_f16", "x: f16[1,64,14,14]", R"txt(
  const v: f16[64,64,1,1] = random(2)
  const w: f16[64,16,4,4] = random(1)
  p = Conv(x, v) {point}
  y = ConvTranspose(p, w) {half3} output_padding=[0,0] groups=2)txt"},
    {"mean_of_images_f16", "x: f16[2,128,14,14]", R"txt(
  const w: f16[64,128,1,1] = random(1)
  c = Conv(x, w) {point}
  y = Reduce(c, i64{2,3}) kind=mean)txt"},
    {"transpose_f16", "x: f16[4,96,64]", R"txt(
  y = Transpose(x) permutation=[0,2,1])txt"},
    {"transpose_f32", "x: f32[4,96,64]", R"txt(
  y = Transpose(x) permutation=[0,2,1])txt"},
    {"transpose_bytes", "x: u8[4,96,64]", R"txt(
  y = Transpose(x) permutation=[0,2,1])txt"},
    {"concat_f16", "x: f16[2,24,14,14]", R"txt(
  a = Pointwise(x) program="(f16)->(f16) round_f16(mul($0,2f32))"
  y = Concat(a, x, a) axis=1)txt"},
    {"gather_f16", "x: f16[512,256]", R"txt(
  const at: i64[12] = {3,501,-1,3,77,260,259,12,-300,8,511,64}
  y = Gather(x, at) axis=0)txt"},
    {"scatter_f32", "x: f32[64,256], u: f32[6,256]", R"txt(
  const at: i64[6,1] = {3,-1,60,3,17,5}
  y = ScatterND(x, at, u) reduction=add)txt"},
    {"max_pool_f16", "x: f16[1,64,28,28]", R"txt(
  const w: f16[64,64,1,1] = random(1)
  c = Conv(x, w) {point}
  y = Pool(c) kernel=[3,3] {half3})txt"},
    {"relu_f16", "x: f16[2,64,28,28]", R"txt(
  y = Pointwise(x) program="(f16)->(f16) max($0,0f32)")txt"},
    {"add_f32", "x: f32[2,64,28,28], z: f32[64,1,1]", R"txt(
  y = Pointwise(x, z) program="(f32,f32)->(f32) add($0,$1)")txt"},
};

// Lines that may waste: of a case (empty: of all), in a kernel, with these words in the line.
struct Exception {
  std::string_view name, kernel, words, reason;
};
constexpr Exception kExceptions[] = {
    {"conv_3x3_int8", "cuda.conv.mma", "store(y0", "a row of a warp is 16 bytes"},
    {"conv_stem_int8", "cuda.conv.mma", "store(y0", "a row of a warp is 16 bytes"},
    {"conv_depthwise_int8", "cuda.conv.mma", "store(y0", "a row of a warp is 16 bytes"},
    {"matmul_int8", "cuda.matmul.mma", "store(y0", "a row of a warp is 16 bytes"},
    {"", "cuda.conv.direct", "to[(fast + lane) * kPitch", "what is read along the depth is turned"},
    {"", "cuda.matmul.simt", "to[(fast + lane) * kPitch", "what is read along the depth is turned"},
    {"conv_stem_f16", "cuda.pointwise.strided", "y0[", "three channels are stored one by one"},
    {"conv_stem_int8", "cuda.pointwise.strided", "y0[", "three channels are stored one by one"},
    {"conv_stem_f16", "cuda.conv.mma", "copy_async", "lanes read pixels of 6 bytes, 8 apart"},
    {"conv_stem_int8", "cuda.conv.mma", "copy_async", "lanes read pixels of 3 bytes, 4 apart"},
    {"", "cuda.topk.lines", "y0[base_y0", "the chosen elements lie anywhere in the line"},
    {"", "cuda.conv_transpose.direct", "load<N>(from, i)", "next rounds read the rest of a sector"},
    {"conv_transpose_f16", "cuda.transpose.strided", "x0[",
     "channels of a pixel are side by side: other warps read the rest of a sector"},
    {"conv_transpose_f16", "cuda.pointwise.strided", "x0[",
     "rows without pads begin within a sector"},
    {"", "cuda.recurrent.steps", "to[(fast + lane) * kPitch",
     "what is read along the depth is turned"},
    {"", "cuda.recurrent.steps", "put_y(", "lanes have a unit of several sequences"},
    {"", "cuda.recurrent.steps", "projected(", "lanes have a unit of several sequences"},
    {"", "cuda.recurrent.steps", "layer.states[", "lanes have a unit of several sequences"},
    {"", "cuda.recurrent.steps", "layer.cells[", "lanes have a unit of several sequences"},
};

std::string graph_text(const Case& each) {
  std::string text = fmt::format("graph layers({}){}\n  return y\n", each.inputs, each.layers);
  const std::pair<std::string_view, std::string_view> windows[] = {
      {"{same3}", kSame3}, {"{half3}", kHalf3}, {"{half7}", kHalf7}, {"{point}", kPoint}};
  for (const auto& [mark, window] : windows)
    for (size_t at; (at = text.find(mark)) != std::string::npos;)
      text.replace(at, mark.size(), window);
  return text;
}

// One line of a function's text; lines of the same words are one.
struct Row {
  std::string place;
  SiteCounts counts;
};

std::string place_of(const SiteCounts& site) {
  std::string text = site.text.substr(0, kMostText);
  while (text.ends_with(' ')) text.pop_back();
  return fmt::format("{}{}", site.file.empty() ? "" : site.file + ": ", text);
}

// Of those lines that touch memory.
std::vector<Row> rows_of(const std::vector<FunctionCounts>& functions) {
  std::vector<Row> rows;
  for (const FunctionCounts& function : functions)
    for (const SiteCounts& site : function.sites) {
      if (!is_global(site.kind) && !is_shared(site.kind)) continue;
      const auto same = std::ranges::find_if(rows, [&](const Row& row) {
        return row.place == place_of(site) && row.counts.kind == site.kind &&
               row.counts.memory == site.memory && row.counts.lane_bytes == site.lane_bytes;
      });
      if (same == rows.end())
        rows.push_back({place_of(site), site});
      else
        same->counts.add(site);
    }
  return rows;
}

std::string text_of(const Row& row) {
  const SiteCounts& counts = row.counts;
  const auto per_request = [&](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(counts.requests);
  };
  std::string text =
      fmt::format("    {}\n      {} {}, {} bytes | {}", row.place, to_string(counts.kind),
                  counts.memory, counts.lane_bytes, counts.requests);
  if (is_global(counts.kind))
    text += fmt::format(" | {:.2f} / {:.2f}", per_request(counts.sectors),
                        per_request(counts.ideal_sectors));
  if (is_shared(counts.kind)) text += fmt::format(" | {:.2f}", counts.bank_conflict());
  return text + (counts.is_wasteful() ? "  *\n" : "\n");
}

class AccessTable : public ::testing::TestWithParam<Case> {
 protected:
  struct StepRows {
    std::string kernel;
    std::vector<Row> rows;
  };
  static std::vector<StepRows> steps_of(const Case& each) {
    GraphBuildOptions options;
    options.targets = {"emulated"};
    const EngineFile file = build_text(graph_text(each), options);
    const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
    const auto engine =
        make_engine(load_engine_file(*bytes, bytes), {.device = std::string(kCountingTarget)});
    ExecutionContext context(engine);
    std::vector<Tensor> inputs;
    for (const TensorInfo& port : engine->inputs())
      inputs.push_back(random_sample(port.dtype, port.dims, inputs.size() + 1));
    for (size_t i = 0; i < inputs.size(); ++i)
      context.set_input(engine->inputs()[i].name, inputs[i].view());
    std::vector<StepRows> steps;
    for (const CountedStep& time : profile_counted(context)) {
      if (time.kernel == kTransfer) continue;
      EXPECT_FALSE(time.functions.empty()) << time.step << " ran on the CPU";
      steps.push_back({std::string(time.kernel), rows_of(time.functions)});
    }
    return steps;
  }
};

bool covers(const Exception& exception, std::string_view name, std::string_view kernel,
            std::string_view place) {
  return (exception.name.empty() || exception.name == name) && exception.kernel == kernel &&
         place.find(exception.words) != std::string_view::npos;
}

bool is_exception(std::string_view name, std::string_view kernel, const Row& row) {
  return std::ranges::any_of(
      kExceptions, [&](const Exception& each) { return covers(each, name, kernel, row.place); });
}

std::string section_of(std::string_view text, std::string_view name) {
  const std::string head = fmt::format("{}\n", name);
  size_t at = text.starts_with(head) ? 0 : text.find("\n" + head);
  if (at == std::string_view::npos) return {};
  at += at == 0 && text.starts_with(head) ? head.size() : head.size() + 1;
  size_t end = at;
  while (end < text.size() && text[end] == ' ') end = text.find('\n', end) + 1;
  return std::string(text.substr(at, end - at));
}

std::string golden_text() {
  std::ostringstream text;
  text << std::ifstream(kGolden).rdbuf();
  return text.str();
}

// In the order of the cases, this one's section new.
void write_golden(std::string_view name, const std::string& section) {
  const std::string before = golden_text();
  std::string text;
  for (const Case& each : kCases)
    text += fmt::format("{}\n{}", each.name,
                        each.name == name ? section : section_of(before, each.name));
  write_file_atomically(kGolden, std::as_bytes(std::span(text)));
}

TEST_P(AccessTable, IsTheGoldenOneAndWastesNothing) {
  const Case& each = GetParam();
  std::string section;
  for (const StepRows& step : steps_of(each)) {
    section += fmt::format("  {}\n", step.kernel);
    int64_t sectors = 0, wavefronts = 0;
    for (const Row& row : step.rows) {
      sectors += row.counts.sectors;
      wavefronts += row.counts.wavefronts;
    }
    for (const Row& row : step.rows) {
      section += text_of(row);
      const bool matters = is_global(row.counts.kind)
                               ? row.counts.sectors * kLeastShare >= sectors
                               : row.counts.wavefronts * kLeastShare >= wavefronts;
      if (row.counts.is_wasteful() && matters && !is_exception(each.name, step.kernel, row))
        ADD_FAILURE() << step.kernel << " wastes, and is no exception in this file:\n"
                      << text_of(row);
    }
  }
  if (std::getenv("ANNEAL_UPDATE_GOLDEN") != nullptr) write_golden(each.name, section);
  EXPECT_EQ(section, section_of(golden_text(), each.name))
      << "if this is meant: ANNEAL_UPDATE_GOLDEN=1 access_table_test, in the source root";
}

// Lines that waste are marked in the golden table: "CASE", "  KERNEL", "    LINE", "      COUNTS
// *".
TEST(AccessTableExceptions, AreNeeded) {
  std::istringstream text(golden_text());
  std::string name, kernel, place;
  std::vector<bool> needed(std::size(kExceptions), false);
  for (std::string line; std::getline(text, line);) {
    const size_t depth = line.find_first_not_of(' ');
    if (depth == 0) name = line;
    if (depth == 2) kernel = line.substr(depth);
    if (depth == 4) place = line.substr(depth);
    if (depth != 6 || !line.ends_with("*")) continue;
    for (size_t i = 0; i < needed.size(); ++i)
      needed[i] = needed[i] || covers(kExceptions[i], name, kernel, place);
  }
  for (size_t i = 0; i < needed.size(); ++i)
    EXPECT_TRUE(needed[i]) << kExceptions[i].kernel << ", " << kExceptions[i].words;
}

INSTANTIATE_TEST_SUITE_P(, AccessTable, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace anneal::testing
