// Layers built for a GPU, one engine each: the time of the layer's step beside the least that the
// card's published figures allow (kernels/cuda/roofline.h), as JSON on stdout.
//
//   anneal_gpu_times [DEVICE] [FILTER]    DEVICE: cuda (default), cuda:1, emulated
//
// Times are those of events around one launch, so that they hold what starting it costs. On the
// emulated device they say nothing.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "anneal/engine/build/builder.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/engine.h"
#include "anneal/graph/text.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/device.h"
#include "anneal/kernels/cuda/roofline.h"

namespace anneal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWindow3 =
    "strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]";

// Input, then a layer that may use the weights "w: TYPE".
struct Case {
  std::string_view name, input, weights, layer;
};
constexpr Case kCases[] = {
    {"add_f32", "f32[32,64,56,56]", "f32[64,1,1]",
     R"~(Pointwise(x, w) program="(f32,f32)->(f32) max(add($0,$1),0f32)")~"},
    {"silu_f16", "f16[32,64,56,56]", "",
     R"~(Pointwise(x) program="(f16)->(f16) round_f16(mul($0,sigmoid($0)))")~"},
    {"transpose_f32", "f32[32,256,1024]", "", "Transpose(x) permutation=[0,2,1]"},
    {"softmax_f32", "f32[12,512,512]", "", "Softmax(x) axis=2"},
    {"mean_f32", "f32[32,1280,7,7]", "i64[2]", "Reduce(x, w) kind=mean"},
    {"max_pool_f32", "f32[8,64,112,112]", "",
     "Pool(x) kernel=[3,3] strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]"},
    {"matmul_f32", "f32[512,768]", "f32[768,3072]", "MatMul(x, w)"},
    {"matmul_f16", "f16[512,768]", "f16[768,3072]", "MatMul(x, w)"},
    {"matmul_f16_large", "f16[4096,4096]", "f16[4096,4096]", "MatMul(x, w)"},
    {"conv3x3_f32", "f32[8,64,56,56]", "f32[64,64,3,3]", "Conv(x, w) {window}"},
    {"conv1x1_f32", "f32[8,256,14,14]", "f32[1024,256,1,1]",
     "Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"},
    {"conv3x3_f16", "f16[8,64,56,56]", "f16[64,64,3,3]", "Conv(x, w) {window}"},
    {"depthwise3x3_f32", "f32[8,144,56,56]", "f32[144,1,3,3]", "Conv(x, w) {window} groups=144"},
    {"depthwise3x3_f16", "f16[8,144,56,56]", "f16[144,1,3,3]", "Conv(x, w) {window} groups=144"},
};

// It does about 50 million a second.
constexpr double kMostEmulatedFlops = 2.5e8;

std::string graph_text(const Case& each) {
  std::string layer(each.layer);
  if (const size_t at = layer.find("{window}"); at != std::string::npos)
    layer.replace(at, 8, kWindow3);
  std::string weights;
  if (!each.weights.empty())
    weights = each.weights.starts_with("i64")
                  ? fmt::format("  const w: {} = {{2, 3}}\n", each.weights)
                  : fmt::format("  const w: {} = random(1)\n", each.weights);
  return fmt::format("graph layer(x: {})\n{}  y = {}\n  return y\n", each.input, weights, layer);
}

double bytes_of(const Plan& plan, const std::vector<uint32_t>& slots) {
  double bytes = 0;
  for (const uint32_t slot : slots) {
    if (slot == kNoSlot) continue;
    const Type& type = plan.slots[slot].type;
    bytes +=
        static_cast<double>(count(dims_of(type.shape))) * static_cast<double>(size_of(type.dtype));
  }
  return bytes;
}

// Multiplications and additions of a product or a convolution.
double flops_of(const Plan& plan, const Step& step) {
  const auto dims = [&](uint32_t slot) { return dims_of(plan.slots[slot].type.shape); };
  if (!std::holds_alternative<MatMul>(step.op) && !std::holds_alternative<Conv>(step.op)) return 0;
  double outputs = 0;
  for (const uint32_t output : step.outputs) outputs += static_cast<double>(count(dims(output)));
  if (std::holds_alternative<MatMul>(step.op)) {
    const Dims a = dims(step.inputs[0]);
    return 2 * outputs * static_cast<double>(a[a.rank() - 1]);
  }
  const Dims w = dims(step.inputs[1]);
  const int64_t window = count(w) / w[0];
  return 2 * outputs * static_cast<double>(window);
}

Json measured(const Case& each, const std::string& device) {
  const auto opened = cuda_backend().open(device);
  Json json = {{"case", each.name}, {"input", each.input}};
  BuildOptions options;
  options.targets = {device == "emulated" ? device : opened->target()};
  const auto engine =
      Engine::make(build(parse_graph(graph_text(each)), options), {.device = device});
  ExecutionContext context(engine);
  const Port& port = engine->inputs()[0];
  const Tensor input = random_sample(port.dtype, port.dims, 7);
  context.set_input(port.name, input.view());
  const bool emulated = device == "emulated";
  std::vector<double> times;
  const Plan& plan = engine->plan();
  const auto step = std::find_if(plan.steps.begin(), plan.steps.end(), [](const Step& candidate) {
    return candidate.kernel != kTransfer && candidate.op.index() != op_index<SizeTensor>;
  });
  json["kernel"] = step->kernel;
  if (emulated && flops_of(plan, *step) > kMostEmulatedFlops) {
    json["left_out"] = "too large for the emulated device";
    return json;
  }
  for (int i = 0; i < (emulated ? 1 : 23); ++i) {
    double sum = 0;
    for (const StepTime& time : context.profile())
      if (time.kernel != kTransfer) sum += time.microseconds;
    if (i >= 3 || emulated) times.push_back(sum);
  }
  std::sort(times.begin(), times.end());
  const cuda::DeviceSpec& spec = cuda::spec_of(*opened);
  const bool tensor_cores = step->kernel.find("mma") != std::string::npos;
  cuda::Work work{.bytes = bytes_of(plan, step->inputs) + bytes_of(plan, step->outputs),
                  .blocks = spec.multiprocessors,
                  .threads_per_block = 256};
  (tensor_cores ? work.f16_tensor_flops : work.f32_flops) = flops_of(plan, *step);
  const cuda::Floor floor = cuda::floor_of(spec, work);
  json["steps_on_the_device"] = std::count_if(
      plan.steps.begin(), plan.steps.end(),
      [](const Step& other) { return other.device == 0 && other.kernel != kTransfer; });
  json["microseconds"] = {{"median", times[times.size() / 2]},
                          {"least", times.front()},
                          {"memory_floor", 1e6 * floor.memory_seconds},
                          {"arithmetic_floor", 1e6 * floor.arithmetic_seconds}};
  return json;
}

int run(const std::string& device, const std::string& filter) {
  Json all = Json::array();
  int failed = 0;
  for (const Case& each : kCases) {
    if (std::string_view(each.name).find(filter) == std::string_view::npos) continue;
    try {
      all.push_back(measured(each, device));
    } catch (const Error& error) {
      all.push_back({{"case", each.name}, {"error", error.what()}});
      ++failed;
    }
  }
  fmt::print("{}\n", all.dump(1));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace anneal

int main(int argc, char** argv) {
  return anneal::run(argc > 1 ? argv[1] : "cuda", argc > 2 ? argv[2] : "");
}
