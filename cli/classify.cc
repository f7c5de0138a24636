#include "anneal/cli/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "anneal/cli/print.h"
#include "anneal/engine/data/batch_reader.h"
#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse(const std::string& why) { fail(Code::kInvalidArgument, why); }

const SampleTensor& tensor_for(const std::vector<SampleTensor>& tensors, const Port& port) {
  for (const SampleTensor& one : tensors)
    if (one.input == port.name) return one;
  refuse(fmt::format("the data has nothing for the input \"{}\"", port.name));
}

// Samples per run. Those of the data may themselves be batches of what the engine wants.
int64_t batch_size(const Engine& engine, const std::vector<SampleTensor>& sample, int64_t wanted) {
  int64_t batch = std::max<int64_t>(wanted, 1);
  for (const Port& port : engine.inputs()) {
    const Dims& dims = tensor_for(sample, port).tensor.dims();
    if (dims.rank() == 0 || dims.rank() != port.dims.rank() || dims[0] < 1) {
      if (wanted > 1)
        refuse(fmt::format("--batch {}: the input {} has no batch", wanted, port_text(port)));
      return 1;
    }
    const int64_t rows = dims[0];
    if (port.dims[0] == -1) {
      const int64_t most = std::max<int64_t>(port.max_dims[0] / rows, 1);
      if (wanted > most)
        refuse(
            fmt::format("--batch {}: the engine was built for batches of up to {}", wanted, most));
      batch = std::max(batch, (port.min_dims[0] + rows - 1) / rows);
    } else if (wanted > 0 && wanted * rows != port.dims[0]) {
      refuse(fmt::format("--batch {}: the engine was built for batches of {}", wanted,
                         port.dims[0] / rows));
    } else {
      batch = std::max<int64_t>(port.dims[0] / rows, 1);
    }
  }
  return batch;
}

// With zeros for the samples that a last batch lacks, so that its shape is that of the others.
Tensor padded(const Tensor& tensor, int64_t samples, int64_t batch) {
  if (samples == batch || tensor.dims().rank() == 0) return tensor;
  Dims dims = tensor.dims();
  dims[0] = dims[0] / samples * batch;
  auto whole = Tensor::allocate(tensor.dtype(), dims);
  std::memcpy(whole.data.data(), tensor.bytes().data(), tensor.bytes().size());
  return whole.tensor;
}

const Port& score_port(const Engine& engine, const std::string& name) {
  for (const Port& port : engine.outputs())
    if (name.empty() || port.name == name) return port;
  refuse(fmt::format("the engine has no output \"{}\"", name));
}

}  // namespace

bool Prediction::among_five() const {
  return std::any_of(best.begin(), best.end(),
                     [&](const Ranked& ranked) { return label == ranked.index; });
}

Classified classify(const std::shared_ptr<const Engine>& engine,
                    const std::shared_ptr<const Dataset>& samples, const ClassifyOptions& options,
                    Progress& progress) {
  const Port& scores_port = score_port(*engine, options.output);
  Classified result;
  result.batch = batch_size(*engine, samples->read(0), options.batch);
  ExecutionContext context(engine, options.context);
  BatchReader reader(samples, {.batch = result.batch, .threads = options.data_threads});
  bool first = true;
  while (const auto batch = reader.next()) {
    std::vector<Tensor> inputs;
    for (const Port& port : engine->inputs()) {
      inputs.push_back(padded(tensor_for(batch->tensors, port).tensor, batch->count, result.batch));
      context.set_input(port.name, inputs.back().view());
    }
    // The first run of a context places its memory; it is not what a batch takes.
    if (std::exchange(first, false)) context.run();
    const auto start = Clock::now();
    context.run();
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    result.batch_milliseconds.push_back(took);
    result.total_milliseconds += took;

    const Tensor scores = dense_copy(context.output(scores_port.name));
    const auto layout = score_layout(DataType::kF32, scores.dims(), 2);
    if (!layout || layout->samples != result.batch)
      refuse(
          fmt::format("the output \"{}\" is {}{}, which are no scores of {}; --output names "
                      "another",
                      scores_port.name, name(scores.dtype()), to_text(scores.dims()),
                      count_text(static_cast<uint64_t>(result.batch), "sample")));
    for (int64_t i = 0; i < batch->count; ++i) {
      const int64_t at = batch->first + i;
      Prediction one{samples->name(at), samples->label(at), best_classes(scores, *layout, i, 5)};
      if (one.label && (*one.label < 0 || *one.label >= layout->classes))
        refuse(
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
