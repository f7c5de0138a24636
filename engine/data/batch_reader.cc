#include "anneal/engine/data/batch_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/core/refuse.h"

namespace anneal {
namespace {

struct Slot {
  bool ready = false;
  std::vector<SampleTensor> tensors;
  std::exception_ptr error;
};

// Samples behind each other along axis 0.
SampleTensor joined(const std::vector<std::vector<SampleTensor>>& samples, size_t input,
                    const Dataset& names, int64_t first) {
  const SampleTensor& one = samples[0][input];
  if (samples.size() == 1) return one;
  Dims dims = one.tensor.dims();
  if (dims.rank() == 0)
    refuse_argument(
        fmt::format("the input \"{}\" has no axis for a batch; take batches of 1", one.input));
  dims[0] = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Tensor& tensor = samples[i][input].tensor;
    Dims alike = tensor.dims();
    if (alike.rank() == dims.rank()) alike[0] = one.tensor.dims()[0];
    if (alike != one.tensor.dims() || tensor.dtype() != one.tensor.dtype())
      refuse_argument(
          fmt::format("sample \"{}\" is {}{}, sample \"{}\" before it {}{}: take batches of 1, or "
                      "make all of one size",
                      names.name(first + static_cast<int64_t>(i)), to_string(tensor.dtype()),
                      to_string(tensor.dims()), names.name(first), to_string(one.tensor.dtype()),
                      to_string(one.tensor.dims())));
    dims[0] += tensor.dims()[0];
  }
  auto all = allocate_tensor(one.tensor.dtype(), dims);
  std::byte* to = all.data.data();
  for (const auto& sample : samples) {
    const auto bytes = sample[input].tensor.bytes();
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return {one.input, all.tensor};
}

}  // namespace

struct BatchReader::State {
  std::shared_ptr<const Dataset> samples;
  BatchReaderOptions options;
  int64_t size = 0;
  std::exception_ptr failed;  // the caller's alone, as is `taken`
  int64_t taken = 0;          // samples given to the caller

  std::mutex mutex;  // guards what follows
  std::condition_variable_any room, ready;
  std::vector<Slot> slots;  // of sample i: i modulo their number
  int64_t started = 0;      // samples that a thread has begun
  int64_t freed = 0;        // samples whose slots are free again

  std::vector<std::jthread> threads;  // last: they end before what they use

  Slot& slot(int64_t i) { return slots[static_cast<size_t>(i) % slots.size()]; }

  void work(const std::stop_token& stop) {
    while (true) {
      int64_t mine = 0;
      {
        std::unique_lock lock(mutex);
        const auto may_start = [&] {
          return started == size || started < freed + static_cast<int64_t>(slots.size());
        };
        if (!room.wait(lock, stop, may_start) || started == size) return;
        mine = started++;
      }
      Slot read;
      try {
        read.tensors = samples->read(mine);
      } catch (...) {
        read.error = std::current_exception();
      }
      read.ready = true;
      const std::lock_guard lock(mutex);
      slot(mine) = std::move(read);
      ready.notify_all();
    }
  }

  std::vector<SampleTensor> take() {
    if (options.ahead == 0) return samples->read(taken++);
    Slot found;
    {
      std::unique_lock lock(mutex);
      ready.wait(lock, [&] { return slot(taken).ready; });
      found = std::exchange(slot(taken), {});
      freed = ++taken;
    }
    room.notify_all();
    if (found.error) std::rethrow_exception(found.error);
    return std::move(found.tensors);
  }
};

BatchReader::BatchReader(std::shared_ptr<const Dataset> samples, const BatchReaderOptions& options)
    : state_(std::make_unique<State>()) {
  if (samples == nullptr || options.batch < 1 || options.threads < 0 || options.ahead < 0)
    refuse_argument("batches of at least 1 sample, 0 threads or more, 0 batches ahead or more");
  State& state = *state_;
  state.size = samples->size();
  state.samples = std::move(samples);
  state.options = options;
  if (options.ahead == 0) return;
  const int64_t wanted = options.threads > 0 ? options.threads : hardware_threads();
  const int64_t batch = std::min(options.batch, std::max<int64_t>(state.size, 1));
  const int64_t batches = std::min(options.ahead, state.size / batch + 1) + 1;
  state.slots.resize(static_cast<size_t>(batch * batches));
  const int64_t threads = std::min<int64_t>({wanted, batch * batches, state.size});
  for (int64_t i = 0; i < threads; ++i) try {
      state.threads.emplace_back([&state](const std::stop_token& stop) { state.work(stop); });
    } catch (const std::system_error& error) {
      if (i > 0) break;  // those that started read all samples
      fail(ErrorCode::kDevice,
           fmt::format("the system cannot start a thread that reads samples: {}", error.what()));
    }
}

BatchReader::~BatchReader() = default;

std::optional<Batch> BatchReader::next() {
  State& state = *state_;
  if (state.failed) std::rethrow_exception(state.failed);
  if (state.taken == state.size) return std::nullopt;
  try {
    Batch batch;
    batch.first = state.taken;
    batch.count = std::min(state.options.batch, state.size - state.taken);
    std::vector<std::vector<SampleTensor>> samples;
    for (int64_t i = 0; i < batch.count; ++i) {
      const int64_t at = state.taken;
      samples.push_back(
          with_context([&] { return fmt::format("sample \"{}\"", state.samples->name(at)); },
                       [&] { return state.take(); }));
      const auto& inputs = samples.back();
      if (!std::equal(inputs.begin(), inputs.end(), samples[0].begin(), samples[0].end(),
                      [](const auto& a, const auto& b) { return a.input == b.input; }))
        refuse_argument(fmt::format("sample \"{}\" has data for other inputs than sample \"{}\"",
                                    state.samples->name(at), state.samples->name(batch.first)));
    }
    for (size_t input = 0; input < samples[0].size(); ++input)
      batch.tensors.push_back(joined(samples, input, *state.samples, batch.first));
    return batch;
  } catch (...) {
    state.failed = std::current_exception();
    throw;
  }
}

}  // namespace anneal
