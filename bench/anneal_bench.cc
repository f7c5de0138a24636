// Every CPU kernel that accepts a layer, timed in turn against the op's reference. Ratios within
// one run are the result; absolute times depend on the machine.
//
//   anneal_bench [FILTER]     only layers whose text contains FILTER
//   anneal_bench LAYER...     these layers, written as those below: "x: f32[8]|y = Neg(x)"
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <string_view>

#include "anneal/core/channels_last.h"
#include "anneal/core/isa.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/graph/text/text.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

// NOLINTBEGIN(bugprone-suspicious-missing-comma): long texts are split.
constexpr std::string_view kLayers[] = {
    "x: f32[1,64,56,56]|y = Conv(x, f32[64,64,3,3]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] "
    "dilations=[1,1]",
    "x: f32[1,128,28,28]|y = Conv(x, f32[128,128,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1]",
    "x: f32[1,256,14,14]|y = Conv(x, f32[256,256,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1]",
    "x: f32[1,512,7,7]|y = Conv(x, f32[512,512,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1]",
    "x: f32[1,16,256,256]|y = Conv(x, f32[16,16,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1]",
    "x: f32[1,32,128,128]|y = Conv(x, f32[32,32,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1]",
    "x: f32[1,16,55,55]|y = Conv(x, f32[64,16,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1]",
    "x: f32[1,96,28,28]|y = Conv(x, f32[128,96,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1]",
    "x: f32[1,256,14,14]|y = Conv(x, f32[256,256,1,1]) strides=[1,1] pads_begin=[0,0] "
    "pads_end=[0,0] dilations=[1,1]",
    "x: f32[1,144,56,56]|y = Conv(x, f32[144,1,3,3]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] "
    "dilations=[1,1] "
    "groups=144",
    "x: f32[1,64,56,56]|y = Conv(x, f32[128,1,3,3]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] "
    "dilations=[1,1] groups=64",
    "x: f32[1,64,56,56]|y = Conv(x, f32[64,2,3,3]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] "
    "dilations=[1,1] groups=32",
    "x: f32[1,128,56,56]|y = Conv(x, f32[128,4,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1] groups=32",
    "x: f32[1,256,28,28]|y = Conv(x, f32[256,8,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1] groups=32",
    "x: f32[1,256,28,28]|y = Conv(x, f32[256,16,3,3]) strides=[1,1] pads_begin=[1,1] "
    "pads_end=[1,1] dilations=[1,1] groups=16",
    "x: f32[1,192,28,28]|y, z, w = Conv(x, f32[176,192,1,1]) strides=[1,1] pads_begin=[0,0] "
    "pads_end=[0,0] dilations=[1,1] split=[64,96,16]",
    "x: f32[1,192,28,28]|y = Conv(x, f32[64,192,1,1]) strides=[1,1] pads_begin=[0,0] "
    "pads_end=[0,0] dilations=[1,1]",
    "x: f32[1,192,28,28]|y = Conv(x, f32[96,192,1,1]) strides=[1,1] pads_begin=[0,0] "
    "pads_end=[0,0] dilations=[1,1]",
    "x: f32[1,192,28,28]|y = Conv(x, f32[16,192,1,1]) strides=[1,1] pads_begin=[0,0] "
    "pads_end=[0,0] dilations=[1,1]",
    "x: f32[128,768]|y = MatMul(x, f32[768,768])",
    "x: f32[128,768]|y, z, w = MatMul(x, f32[768,2304]) split=[768,768,768]",
    "x: f32[1,1024]|y = MatMul(x, f32[1024,1000])",
    "x: f32[1,64,112,112]|y = Pool(x) kernel=[3,3] strides=[2,2] pads_begin=[0,0] pads_end=[0,0] "
    "dilations=[1,1]",
    "x: f32[12,128,128]|y = Softmax(x) axis=2",
    "x: f32[1,1000]|y, i = TopK(x, i64{5}) axis=1",
    "x: f32[64,1000]|y, i = TopK(x, i64{5}) axis=1",
    "x: f32[1,8400]|y, i = TopK(x, i64{300}) axis=1",
    "x: f32[1,1000000]|y, i = TopK(x, i64{100}) axis=1",
    "x: f32[1000,64]|y, i = TopK(x, i64{10}) axis=0",
    "x: u8[16,4096]|y, i = TopK(x, i64{16}) axis=1",
    "x: f32[64,1000]|y, i = TopK(x, i64{5}) axis=1 of=softmax",
    "x: f32[1,30522]|y, i = TopK(x, i64{50}) axis=1 of=softmax",
    "q: f32[1,12,128,64], k: f32[1,12,128,64], v: f32[1,12,128,64], m: f32[1,1,1,128]|"
    "y = Attention(q, k, v, m) score=\"(f32,f32)->(f32) add(mul($0,0.125f32),$1)\"",
    "q: f32[1,3,197,64], k: f32[1,3,197,64], v: f32[1,3,197,64]|"
    "y = Attention(q, k, v) score=\"(f32)->(f32) mul($0,0.125f32)\"",
    "x: f32[128,768]|y = Normalize(x) axes=[1]",
    "x: f32[1,1280,7,7]|y = Reduce(x, i64{2, 3}) kind=mean",
    "x: f32[1,64,56,56]|y = Pointwise(x) program=\"(f32)->(f32) mul($0,sigmoid($0))\"",
    "x: f32[1,64,56,56]|y = Pointwise(x) program=\"(f32)->(f32) pow($0,2.4f32)\"",
    "x: i8[1,64,56,56]|y = Pointwise(x) program=\"(i8)->(i8) max($0,3i32)\"",
    "x: i8[1,64,56,56]|y = Pointwise(x) program=\"(i8)->(u8) "
    "saturate_u8(rint(mul(sigmoid(mul(f32($0),0.05f32)),255f32)))\"",
    "x: f32[64,56,56]|y = Transpose(x) permutation=[1,2,0]",
    "x: f32[1,32,64,64]|y = Resize(x, i64{128, 128}) mode=linear axes=[2,3]",
    "x: f32[1,32,64,64]|y = Quantize(x, f32[], u8[])",
};
// NOLINTEND(bugprone-suspicious-missing-comma)

// "Conv(x, f32[64,64,3,3])": a type among the arguments is a random constant.
Graph graph_of(std::string_view layer) {
  const size_t bar = layer.find('|');
  std::string body(layer.substr(bar + 1)), constants;
  for (const std::string_view begin :
       {", f32[", ", bf16[", ", u8[", ", i8[", "; f32["}) {  // of an op, or of its epilogue
    for (size_t at; (at = body.find(begin)) != std::string::npos;) {
      const size_t end = body.find(']', at);
      const std::string name = fmt::format("c{}", at);
      constants +=
          fmt::format("  const {}: {} = random({})\n", name, body.substr(at + 2, end - at - 1), at);
      body.replace(at + 2, end - at - 1, name);
    }
  }
  return parse_graph(
      fmt::format("graph g({})\n{}  {}\n  return y\n", layer.substr(0, bar), constants, body));
}

struct Memory {
  std::vector<TensorView> views;
  std::vector<Operand> operands;
  std::vector<Tensor> owners;

  void add(const Graph& graph, ValueId value, Layout layout, uint32_t seed) {
    const Type& type = graph.value(value).type();
    const Dims dims = dims_of(type.shape);
    const Tensor* constant = graph.constant(value);
    const Dims strides = layout == Layout::kChannelsLast && !constant ? channels_last_strides(dims)
                                                                      : row_major_strides(dims);
    NewTensor fresh = allocate_tensor(type.dtype, dims);
    if (constant) {
      std::copy(constant->bytes().begin(), constant->bytes().end(), fresh.data.begin());
    } else if (type.dtype == DataType::kF32) {
      std::mt19937 random(seed);
      std::normal_distribution<float> normal;
      auto* to = reinterpret_cast<float*>(fresh.data.data());
      for (int64_t i = 0; i < count(dims); ++i) to[i] = normal(random);
    }
    views.push_back({type.dtype, dims, strides, fresh.data.data()});
    operands.push_back({.type = type, .strides = shape_of(strides), .constant = constant});
    owners.push_back(std::move(fresh.tensor));
  }
};

// Microseconds of the fastest run within 0.3 s, at least two runs.
double time_of(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  const auto begin = Clock::now();
  for (int runs = 0; runs < 2 || Clock::now() - begin < std::chrono::milliseconds(300); ++runs) {
    const auto start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return best;
}

void bench(std::string_view text, Device& device) {
  const Graph graph = graph_of(text);
  const Layer& layer = graph.layer(graph.order()[0]);
  struct KernelTime {
    std::string_view kernel;
    double microseconds;
  };
  std::vector<KernelTime> timed;
  for (const KernelFamily family : cpu_backend().families) {
    for (const KernelEntry& entry : family()) {
      if (entry.op != layer.op.index()) continue;
      Memory in, out;
      for (const ValueId input : layer.inputs) in.add(graph, input, entry.prefers, 1);
      for (const ValueId output : layer.outputs) out.add(graph, output, entry.prefers, 2);
      KernelResult made = entry.make({.op = layer.op,
                                      .epilogues = layer.epilogues,
                                      .op_input_count = layer.op_input_count,
                                      .inputs = in.operands,
                                      .outputs = out.operands,
                                      .sizes = graph.sizes(),
                                      .device = device,
                                      .tactic = {},
                                      .ignore_speed_heuristics = true});
      if (!made) continue;
      const auto prepared = (*made)->prepare(in.views, out.views, 1);
      const auto workspace = device.allocate(std::max<size_t>(prepared->workspace_bytes, 1));
      const auto stream = device.make_stream();
      ThreadTeam team(1);
      timed.push_back({entry.name, time_of([&] {
                         (*made)->launch({in.views, out.views, prepared.get(), workspace->data(),
                                          *stream, team});
                       })});
    }
  }
  fmt::print("{}\n", text);
  for (const KernelTime& each : timed)
    fmt::print("  {:<28} {:>12.1f} us  {:>8.1f} x the reference's speed\n", each.kernel,
               each.microseconds, timed.back().microseconds / each.microseconds);
}

}  // namespace
}  // namespace anneal

int main(int argc, char** argv) {
  const std::string_view filter = argc > 1 ? argv[1] : "";
  const auto device = anneal::cpu_backend().open("cpu");
  fmt::print("{}, one thread, {}\n", device->description(),
             anneal::to_string(anneal::current_isa()));
  if (filter.find('|') != std::string_view::npos) {
    for (int i = 1; i < argc; ++i) anneal::bench(argv[i], *device);
    return 0;
  }
  for (const std::string_view layer : anneal::kLayers)
    if (layer.find(filter) != std::string_view::npos) anneal::bench(layer, *device);
  return 0;
}
