#include "anneal/cli/measure/measured_forms.h"

#include <fmt/format.h>

#include "anneal/cli/output/print.h"

namespace anneal {

std::string load_text(const MachineLoad& load) {
  std::string text = fmt::format(
      "other processes used {:.2f} of {}, runs waited {:.1f} % of their time", load.other_cores,
      count_text(static_cast<uint64_t>(load.cores), "core"), 100 * load.waited_share);
  if (load.busy()) text += ": BUSY, the times above are too long";
  return text;
}

Json load_json(const MachineLoad& load) {
  return {{"other_cores", load.other_cores},
          {"waited_share", load.waited_share},
          {"cores", load.cores},
          {"busy", load.busy()}};
}

Json latency_json(const Latency& latency) {
  return {{"min", latency.min}, {"mean", latency.mean}, {"median", latency.median},
          {"p90", latency.p90}, {"p95", latency.p95},   {"p99", latency.p99},
          {"max", latency.max}};
}

std::string input_text(const TensorInfo& port, const Tensor& tensor) {
  return fmt::format("{}: {}{}", port.name, to_string(tensor.dtype()), to_string(tensor.dims()));
}

}  // namespace anneal
