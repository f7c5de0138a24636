// The published figures of GPUs as ceilings.
#include <fmt/format.h>

#include <charconv>

#include "anneal/core/fail.h"
#include "anneal/engine/onnx/roofline/ceilings.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/runtime/device.h"

namespace anneal {
namespace {

// Tensor cores multiply bytes at this many times the rate of f16 with f32 sums. By the papers that
// device_specs.cc names, it is two: 624, 250, 242, 1979 and 4500 TOPS. GeForce cards have half the
// rate of f16 with f32 sums, hence four: 838 TOPS.
double byte_rate(int architecture) { return architecture == 120 ? 4 : 2; }

RooflineCeilings ceilings_of(const cuda::DeviceSpec& spec) {
  RooflineCeilings made;
  made.device = spec.name;
  made.levels = {{"memory", 0, spec.bandwidth, spec.bandwidth}};
  made.rates = {{ProductType::kF32, spec.f32_flops},
                {ProductType::kF16, spec.f16_tensor_flops},
                {ProductType::kBF16, spec.f16_tensor_flops},
                {ProductType::kInt8, spec.f16_tensor_flops * byte_rate(spec.architecture)}};
  made.start_seconds = spec.launch_seconds;
  return made;
}

}  // namespace

RooflineCeilings card_ceilings(const std::string& target) {
  int architecture = 0;
  if (target.starts_with("sm_"))
    std::from_chars(target.data() + 3, target.data() + target.size(), architecture);
  if (const cuda::DeviceSpec* const spec = cuda::find_spec(architecture)) return ceilings_of(*spec);
  if (!is_cuda_target(target))
    fail(ErrorCode::kDevice, fmt::format("no published figures are known for \"{}\"", target));
  return ceilings_of(cuda::spec_of(*cuda::open_device(target)));
}

RooflineCeilings card_ceilings(const Engine& engine) {
  return ceilings_of(cuda::spec_of(EngineInternals::device(engine)));
}

}  // namespace anneal
