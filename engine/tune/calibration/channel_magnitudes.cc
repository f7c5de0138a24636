#include "anneal/engine/tune/calibration/channel_magnitudes.h"
#include "anneal/engine/run/make_engine.h"

#include <algorithm>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/tune/calibration/channel_reduction.h"

namespace anneal {

void ChannelMagnitudes::add(ValueId value, int channel_axis) {
  if (outputs_.contains({value, channel_axis})) return;
  const std::string name = graph_.value(value).name;
  const auto reduce = [&](const char* stem, ReduceKind kind, Program program) {
    return add_channel_reduction(graph_, name + stem, kind, std::move(program), {value},
                                 channel_axis);
  };
  outputs_[{value, channel_axis}] = {reduce("/least", ReduceKind::kMin, {}),
                                     reduce("/most", ReduceKind::kMax, {}),
                                     reduce("/square", ReduceKind::kMean, square_program())};
}

void ChannelMagnitudes::run(const PassOptions& passes,
                            const std::shared_ptr<const Dataset>& samples,
                            const SampleRunOptions& options) {
  GraphBuildOptions build_options;
  build_options.passes = passes;
  build_options.passes.precision = {};
  const auto engine = make_engine(build(std::move(graph_), build_options),
                                  {.device = "cpu", .threads = options.threads});
  int64_t runs = 0;
  run_samples(engine, samples, options, [&](const SampleRun& run) {
    take(run.context);
    ++runs;
  });
  for (auto& [channels, magnitudes] : magnitudes_)
    for (double& square : magnitudes.square) square /= static_cast<double>(runs);
}

void ChannelMagnitudes::take(const ExecutionContext& context) {
  const auto join = [&](std::vector<double>& known, const std::string& output, const auto& joined) {
    const Tensor dense = dense_copy(context.output(output));
    const auto values = dense.as<float>();
    if (known.empty())
      known.assign(values.begin(), values.end());
    else
      for (size_t i = 0; i < known.size(); ++i) known[i] = joined(known[i], double{values[i]});
  };
  for (const auto& [channels, outputs] : outputs_) {
    Magnitudes& known = magnitudes_[channels];
    join(known.least, outputs.least, [](double a, double b) { return std::min(a, b); });
    join(known.most, outputs.most, [](double a, double b) { return std::max(a, b); });
    join(known.square, outputs.square, [](double a, double b) { return a + b; });
  }
}

}  // namespace anneal
