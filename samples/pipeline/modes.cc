#include "modes.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "read_ahead.h"

namespace {

constexpr auto kSamplePeriod = std::chrono::milliseconds(20);

// A context with memory for a batch, whose outputs go to their place among those of all batches.
class Runner {
 public:
  explicit Runner(const Work& work)
      : batch_(work.batch),
        input_(work.engine->inputs()[0]),
        output_(work.engine->outputs()[0]),
        context_(work.engine) {}

  // On the CPU into the memory that the run reads.
  void copy_in(const std::vector<anneal::Tensor>& pictures) {
    anneal::Dims dims = pictures[0].dims();
    const size_t bytes = pictures[0].bytes().size();
    memory_.resize(pictures.size() * bytes / sizeof(float));
    for (size_t i = 0; i < pictures.size(); ++i) {
      if (pictures[i].dims() != pictures[0].dims())
        throw std::runtime_error("pictures of a batch have different sizes; resize them");
      std::memcpy(reinterpret_cast<std::byte*>(memory_.data()) + i * bytes,
                  pictures[i].bytes().data(), bytes);
    }
    dims[0] = batch_;
    context_.set_input(input_.name, anneal::view(memory_, dims));
  }
  void run() { context_.run(); }
  void run(const anneal::Stream& stream) {
    context_.enqueue(stream, [] {});
    context_.wait();
  }
  void copy_out(int64_t batch, int64_t batches, std::vector<float>& outputs) {
    const std::span<float> found = context_.output(output_.name).span<float>();
    if (outputs.empty()) outputs.resize(found.size() * static_cast<size_t>(batches));
    std::copy(
        found.begin(), found.end(),
        outputs.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(batch) * found.size()));
  }

 private:
  int64_t batch_;
  const anneal::TensorInfo &input_, &output_;
  std::vector<float> memory_;  // outlives the context's runs
  anneal::ExecutionContext context_;
};

double cores() { return std::max(1u, std::thread::hardware_concurrency()); }

double process_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Samples the cores that this process uses, until it is destroyed.
class CoreSampler {
 public:
  CoreSampler(const StageClock& clock, std::vector<CoresBusy>& samples)
      : thread_([this, &clock, &samples] { sample(clock, samples); }) {}
  ~CoreSampler() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void sample(const StageClock& clock, std::vector<CoresBusy>& samples) {
    double time = clock.now(), used = process_seconds();
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      changed_.wait_for(lock, kSamplePeriod, [&] { return stopping_; });
      const double now = clock.now(), used_now = process_seconds();
      samples.push_back({now, std::clamp((used_now - used) / (now - time) / cores(), 0.0, 1.0)});
      time = now;
      used = used_now;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

// The first run of a context places its memory: not what is measured here.
void warm_up(Runner& runner, const Work& work, std::vector<float>& outputs) {
  runner.copy_in(std::vector<anneal::Tensor>(static_cast<size_t>(work.batch),
                                             work.pictures->read(0)[0].tensor));
  runner.run();
  runner.copy_out(0, work.batches, outputs);
}

void run_serial(Runner& runner, const Work& work, const StageClock& clock, Lane& lane,
                std::vector<float>& outputs) {
  for (int64_t batch = 0; batch < work.batches; ++batch) {
    std::vector<anneal::Tensor> pictures;
    for (int64_t i = 0; i < work.batch; ++i)
      clock.timed(lane, Stage::kDecode, batch, [&] {
        const int64_t picture = (batch * work.batch + i) % work.pictures->size();
        pictures.push_back(work.pictures->read(picture)[0].tensor);
      });
    clock.timed(lane, Stage::kCopy, batch, [&] { runner.copy_in(pictures); });
    clock.timed(lane, Stage::kCompute, batch, [&] { runner.run(); });
    clock.timed(lane, Stage::kCopy, batch, [&] { runner.copy_out(batch, work.batches, outputs); });
  }
}

// stream: none: runs are on the caller's thread.
void run_ahead(Runner& runner, const Work& work, ReadAhead& reader, const anneal::Stream* stream,
               const StageClock& clock, Lane& lane, std::vector<float>& outputs) {
  while (const auto batch = reader.next()) {
    clock.timed(lane, Stage::kCopy, batch->index, [&] { runner.copy_in(batch->pictures); });
    clock.timed(lane, Stage::kCompute, batch->index, [&] {
      if (stream != nullptr)
        runner.run(*stream);
      else
        runner.run();
    });
    clock.timed(lane, Stage::kCopy, batch->index,
                [&] { runner.copy_out(batch->index, work.batches, outputs); });
  }
}

void run_contexts(std::vector<std::unique_ptr<Runner>>& runners, const Work& work,
                  ReadAhead& reader, const StageClock& clock, std::span<Lane> lanes,
                  std::vector<float>& outputs) {
  std::vector<std::exception_ptr> faults(runners.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < runners.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        const anneal::Stream stream = anneal::Stream::make();
        run_ahead(*runners[i], work, reader, &stream, clock, lanes[i], outputs);
      } catch (...) {
        faults[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& fault : faults)
    if (fault) std::rethrow_exception(fault);
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.0f %%", 100 * share);
  return text;
}

}  // namespace

ModeResult run_mode(Mode mode, const Work& work) {
  ModeResult result{.mode = mode};
  std::vector<std::unique_ptr<Runner>> runners;
  for (int i = 0; i < (mode == Mode::kContexts ? 2 : 1); ++i) {
    runners.push_back(std::make_unique<Runner>(work));
    warm_up(*runners.back(), work, result.outputs);
  }
  const int decoders = mode == Mode::kSerial ? 0 : work.threads;
  for (int i = 0; i < decoders; ++i) result.lanes.push_back({"decoder " + std::to_string(i + 1)});
  if (mode == Mode::kContexts)
    result.lanes.insert(result.lanes.end(), {{"context 1"}, {"context 2"}});
  else
    result.lanes.push_back({mode == Mode::kSerial ? "all stages" : "context"});
  const std::span<Lane> lanes = result.lanes;
  const std::span<Lane> reading = lanes.first(static_cast<size_t>(decoders)),
                        running = lanes.subspan(static_cast<size_t>(decoders));

  const double used = process_seconds();
  result.began =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const StageClock clock;
  {
    const CoreSampler sampler(clock, result.cores_busy);
    if (mode == Mode::kSerial) {
      run_serial(*runners[0], work, clock, running[0], result.outputs);
    } else {
      ReadAhead reader(*work.pictures, work.batch, work.batches, clock, reading);
      if (mode == Mode::kReadAhead)
        run_ahead(*runners[0], work, reader, nullptr, clock, running[0], result.outputs);
      else
        run_contexts(runners, work, reader, clock, running, result.outputs);
    }
    result.seconds = clock.now();
    result.mean_cores_busy = (process_seconds() - used) / result.seconds / cores();
  }
  return result;
}

double busy_share(const ModeResult& result, Stage stage, int threads) {
  if (stage == Stage::kCompute) return covered_by(result.lanes, stage) / result.seconds;
  const bool has_decoders = result.mode != Mode::kSerial;
  const int lanes = stage == Stage::kDecode && has_decoders ? threads
                    : result.mode == Mode::kContexts        ? 2
                                                            : 1;
  return sum_of(result.lanes, stage) / lanes / result.seconds;
}

std::string bottleneck_text(const ModeResult& result, int threads) {
  const double decode = busy_share(result, Stage::kDecode, threads),
               copy = busy_share(result, Stage::kCopy, threads),
               compute = busy_share(result, Stage::kCompute, threads);
  const bool is_decode = decode >= std::max(copy, compute);
  const std::string threads_of_it = threads == 1
                                        ? "its thread was busy "
                                        : "its " + std::to_string(threads) + " threads were busy ";
  if (is_decode)
    return "The bottleneck is decoding: " + (result.mode == Mode::kSerial ? "" : threads_of_it) +
           percent(decode) + " of the time (copying " + percent(copy) + ", computing " +
           percent(compute) + ").";
  if (compute >= copy)
    return "The bottleneck is computing: " + percent(compute) + " of the time (decoding " +
           percent(decode) + ", copying " + percent(copy) + ").";
  return "The bottleneck is copying: " + percent(copy) + " of the time (decoding " +
         percent(decode) + ", computing " + percent(compute) + ").";
}
