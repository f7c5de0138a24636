#include "anneal/engine/tune/samples/run_samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/data/batch_reader.h"
#include "anneal/engine/tune/samples/batches.h"

namespace anneal {
namespace {

std::string samples_text(const Dataset& samples, const Batch& batch) {
  const std::string first = samples.name(batch.first);
  if (batch.count == 1) return fmt::format("sample \"{}\"", first);
  return fmt::format("samples \"{}\" to \"{}\"", first,
                     samples.name(batch.first + batch.count - 1));
}

}  // namespace

void run_samples(const std::shared_ptr<const Engine>& engine,
                 const std::shared_ptr<const Dataset>& samples, const SampleRunOptions& options,
                 const std::function<void(const SampleRun&)>& after) {
  ContextOptions context_options;
  context_options.threads = options.threads;
  ExecutionContext context(engine, context_options);
  observe(context, options.observer);
  const int64_t size = batch_size(*engine, samples->read(0), 0);
  BatchReader reader(
      samples,
      {.batch = size, .threads = options.data_threads, .ahead = std::max<int64_t>(4 / size, 1)});
  for (;;) {
    const auto batch = reader.next();
    if (!batch || (options.most > 0 && batch->first >= options.most)) return;
    const auto inputs = fed(*engine, *batch, size);
    const std::string text = samples_text(*samples, *batch);
    with_context([&] { return text; },
                 [&] {
                   for (const SampleTensor& each : inputs)
                     context.set_input(each.input, each.tensor.view());
                   context.run();
                 });
    after({context, inputs, text, batch->first + batch->count});
  }
}

}  // namespace anneal
