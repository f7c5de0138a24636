#include "anneal/kernels/cuda/runtime/driver_stream.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace anneal::cuda {
namespace {

// A captured graph, ready to launch.
class Graph final : public Recording {
 public:
  Graph(std::shared_ptr<Context> context, CUstream stream, CUgraph captured)
      : context_(std::move(context)), stream_(stream) {
    const Driver& driver = context_->driver();
    CUresult result = driver.cuGraphInstantiate(&handle_, captured, 0);
    driver.cuGraphDestroy(captured);
    context_->check(result, "making a graph of recorded work");
    result = driver.cuGraphUpload(handle_, stream);
    if (result != CUDA_SUCCESS) driver.cuGraphExecDestroy(handle_);
    context_->check(result, "uploading recorded work");
  }
  ~Graph() override {
    if (const auto current = context_->enter_to_free())
      context_->driver().cuGraphExecDestroy(handle_);
  }
  CUgraphExec handle() const { return handle_; }
  CUstream stream() const { return stream_; }

 private:
  const std::shared_ptr<Context> context_;
  const CUstream stream_;  // that it was taken from
  CUgraphExec handle_ = nullptr;
};

class Event {
 public:
  Event(Context& context, unsigned flags) : context_(context) {
    context_.check(context_.driver().cuEventCreate(&handle_, flags), "making an event");
  }
  ~Event() {
    if (const auto current = context_.enter_to_free()) context_.driver().cuEventDestroy(handle_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent handle() const { return handle_; }

 private:
  Context& context_;
  CUevent handle_ = nullptr;
};

class DriverStream final : public GpuStream {
 public:
  DriverStream(std::shared_ptr<Context> context, TakeCounts* take_counts)
      : context_(std::move(context)), take_counts_(take_counts) {
    const auto current = context_->enter();
    context_->check(context_->driver().cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING),
                    "making a stream");
  }
  ~DriverStream() override {
    if (const auto current = context_->enter_to_free()) context_->driver().cuStreamDestroy(handle_);
  }
  CUstream handle() const { return handle_; }
  const Context& context() const { return *context_; }

  void* native() const override { return handle_; }
  void begin_after(void* other) override { order(static_cast<CUstream>(other), handle_); }
  void end_before(void* other) override { order(handle_, static_cast<CUstream>(other)); }

  void wait() override {
    const auto current = context_->enter();
    context_->check(
        spins() ? context_->driver().cuStreamSynchronize(handle_) : sleep_until_done(),
        "running the work of a stream (CUDA_LAUNCH_BLOCKING=1 shows which launch failed)");
  }

  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    begin_capture();
    try {
      work();
    } catch (...) {
      give_up_capture();
      throw;
    }
    const auto current = context_->enter();
    CUgraph captured = nullptr;
    context_->check(context_->driver().cuStreamEndCapture(handle_, &captured), "recording");
    return std::make_unique<Graph>(context_, handle_, captured);
  }

  void play(const Recording& recording) override {
    const auto* const graph = dynamic_cast<const Graph*>(&recording);
    anneal::check(graph != nullptr && graph->stream() == handle_, "this stream made the recording");
    const auto current = context_->enter();
    context_->check(context_->driver().cuGraphLaunch(graph->handle(), handle_),
                    "launching recorded work");
  }

  double microseconds(const std::function<void()>& work) override {
    wait();
    const auto current = context_->enter();
    const Driver& driver = context_->driver();
    const Event start(*context_, CU_EVENT_DEFAULT), end(*context_, CU_EVENT_DEFAULT);
    context_->check(driver.cuEventRecord(start.handle(), handle_), "taking the time");
    work();
    context_->check(driver.cuEventRecord(end.handle(), handle_), "taking the time");
    wait();
    float milliseconds = 0;
    context_->check(driver.cuEventElapsedTime(&milliseconds, start.handle(), end.handle()),
                    "taking the time");
    return 1000.0 * static_cast<double>(milliseconds);
  }

  std::vector<FunctionCounts> take_counts() override {
    return take_counts_ == nullptr ? std::vector<FunctionCounts>() : take_counts_(handle_);
  }

  void launch(const Function& function, const Geometry& geometry, Arguments& arguments) override {
    anneal::check(function.handle != nullptr, "prepare_code() comes before the first launch");
    const auto& loaded = *static_cast<const LoadedFunction*>(function.handle);
    const auto [gx, gy, gz] = geometry.grid;
    const auto [bx, by, bz] = geometry.block;
    if (gx == 0 || gy == 0 || gz == 0) return;
    refuse_too_large(function, loaded, geometry);
    const auto current = context_->enter();
    const CUresult result = context_->driver().cuLaunchKernel(
        loaded.handle, gx, gy, gz, bx, by, bz, geometry.shared_bytes, handle_,
        const_cast<void**>(arguments.pointers()), nullptr);
    if (result != CUDA_SUCCESS)
      context_->check(result,
                      fmt::format("launching {} with {}", function.name, text_of(geometry)));
  }

  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes == 0) return;
    const auto address = [](const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); };
    const auto current = context_->enter();
    // The driver knows from the addresses which way it goes.
    context_->check(context_->driver().cuMemcpyAsync(address(to), address(from), bytes, handle_),
                    fmt::format("copying {} bytes", bytes));
  }

  void call(const std::function<void(CUstream)>& work) override {
    const auto current = context_->enter();
    work(handle_);
  }

 private:
  // The event may go at once: the driver keeps it until the stream that waits has passed it.
  void order(CUstream first, CUstream second) {
    const auto current = context_->enter();
    const Driver& driver = context_->driver();
    const Event reached(*context_, CU_EVENT_DISABLE_TIMING);
    context_->check(driver.cuEventRecord(reached.handle(), first),
                    "marking the end of the work on a stream");
    context_->check(driver.cuStreamWaitEvent(second, reached.handle(), 0),
                    "putting the work of one stream behind that of another");
  }

  // The first user of the primary context chose how cuStreamSynchronize() waits; the default is to
  // spin.
  CUresult sleep_until_done() {
    if (!done_) done_.emplace(*context_, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    const CUresult result = context_->driver().cuEventRecord(done_->handle(), handle_);
    return result != CUDA_SUCCESS ? result : context_->driver().cuEventSynchronize(done_->handle());
  }

  // In mode THREAD_LOCAL calls of other threads leave the capture valid. One of this thread that no
  // graph can hold, an allocation say, makes it invalid, unless it is made under RelaxedCapture.
  void begin_capture() {
    const auto current = context_->enter();
    context_->check(
        context_->driver().cuStreamBeginCapture(handle_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "beginning to record");
  }
  // A stream that captures takes nothing else.
  void give_up_capture() {
    const auto current = context_->enter_to_free();
    if (!current) return;
    const Driver& driver = context_->driver();
    CUgraph captured = nullptr;
    if (driver.cuStreamEndCapture(handle_, &captured) == CUDA_SUCCESS && captured != nullptr)
      driver.cuGraphDestroy(captured);
  }

  static std::string text_of(const Geometry& geometry) {
    const auto& [grid, block, shared] = geometry;
    return fmt::format("{} x {} x {} blocks of {} x {} x {} threads and {} bytes of shared memory",
                       grid[0], grid[1], grid[2], block[0], block[1], block[2], shared);
  }

  // The limits of every CUDA device, and those of the function on this one.
  static void refuse_too_large(const Function& function, const LoadedFunction& loaded,
                               const Geometry& geometry) {
    constexpr uint64_t kMostX = 0x7fffffff, kMostYZ = 65535;
    const auto& [grid, block, shared] = geometry;
    const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
    const bool in_grid = grid[0] <= kMostX && grid[1] <= kMostYZ && grid[2] <= kMostYZ;
    const bool in_block = block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64;
    if (in_grid && in_block && threads > 0 && threads <= loaded.most_threads &&
        shared <= loaded.most_shared_bytes)
      return;
    fail(ErrorCode::kDevice,
         fmt::format("{} cannot be launched with {}: at most {} x {} x {} blocks of {} threads and "
                     "{} bytes",
                     function.name, text_of(geometry), kMostX, kMostYZ, kMostYZ,
                     loaded.most_threads, loaded.most_shared_bytes));
  }

  const std::shared_ptr<Context> context_;
  TakeCounts* const take_counts_;
  CUstream handle_ = nullptr;
  std::optional<Event> done_;
};

}  // namespace

std::unique_ptr<GpuStream> make_driver_stream(std::shared_ptr<Context> context,
                                              TakeCounts* take_counts) {
  return std::make_unique<DriverStream>(std::move(context), take_counts);
}

CUstream handle_of(DeviceStream& stream, const Context& context) {
  const auto* const mine = dynamic_cast<DriverStream*>(&stream);
  check(mine != nullptr && &mine->context() == &context, "the stream is of this device");
  return mine->handle();
}

}  // namespace anneal::cuda
