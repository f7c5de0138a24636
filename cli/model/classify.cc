#include "anneal/cli/model/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/tensor_summary.h"
#include "anneal/engine/tune/samples/batches.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

const TensorInfo& score_port(const Engine& engine, const std::string& name) {
  for (const TensorInfo& port : engine.outputs())
    if (name.empty() || port.name == name) return port;
  refuse_argument(fmt::format("the engine has no output \"{}\"", name));
}

}  // namespace

bool Prediction::among_five() const {
  return std::any_of(best.begin(), best.end(),
                     [&](const RankedClass& ranked) { return label == ranked.index; });
}

ClassificationRun classify(const std::shared_ptr<const Engine>& engine,
                           const std::shared_ptr<const Dataset>& samples,
                           const ClassifyOptions& options, ProgressLine& progress) {
  const TensorInfo& scores_port = score_port(*engine, options.output);
  ClassificationRun result;
  result.batch = batch_size(*engine, samples->read(0), options.batch);
  ExecutionContext context(engine, options.context);
  BatchReader reader(samples, {.batch = result.batch, .threads = options.data_threads});
  bool first = true;
  while (const auto batch = reader.next()) {
    const auto inputs = fed(*engine, *batch, result.batch);
    for (const SampleTensor& input : inputs) context.set_input(input.input, input.tensor.view());
    // The first run of a context places its memory; it is not what a batch takes.
    if (std::exchange(first, false)) context.run();
    const auto start = Clock::now();
    context.run();
    const double took = milliseconds_since(start);
    result.batch_milliseconds.push_back(took);
    result.total_milliseconds += took;

    const Tensor scores = dense_copy(context.output(scores_port.name));
    const auto layout = score_layout(DataType::kF32, scores.dims(), 2);
    if (!layout || layout->samples != result.batch)
      refuse_argument(
          fmt::format("the output \"{}\" is {}{}, which are no scores of {}; --output names "
                      "another",
                      scores_port.name, to_string(scores.dtype()), to_string(scores.dims()),
                      count_text(static_cast<uint64_t>(result.batch), "sample")));
    result.classes = layout->classes;
    for (int64_t i = 0; i < batch->count; ++i) {
      const int64_t at = batch->first + i;
      Prediction one{samples->name(at), samples->label(at), best_classes(scores, *layout, i, 5)};
      if (one.label && (*one.label < 0 || *one.label >= layout->classes))
        refuse_argument(
            fmt::format("sample \"{}\" has the label {}, but the network has {} classes; "
                        "--label-offset is added to labels",
                        one.sample, *one.label, layout->classes));
      result.predictions.push_back(std::move(one));
    }
    progress.say(fmt::format("{} of {} samples", batch->first + batch->count, samples->size()));
  }
  return result;
}

}  // namespace anneal
