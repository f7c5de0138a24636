#include "anneal/kernels/cuda/emulated/stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace anneal::cuda {

void EmulatedStream::add(EmulatedWork work) {
  if (capture_ != nullptr)
    capture_->graph.push_back(std::move(work));
  else
    items_.push_back({std::move(work), nullptr, nullptr, 0});
}

void EmulatedStream::record(const std::shared_ptr<EmulatedEvent>& event) {
  items_.push_back({nullptr, event, nullptr, ++event->recorded});
}

void EmulatedStream::wait_for(const std::shared_ptr<EmulatedEvent>& event,
                              const std::shared_ptr<EmulatedStream>& other) {
  if (event->done < event->recorded) items_.push_back({nullptr, event, other, event->recorded});
}

std::optional<EmulatedFault> EmulatedStream::run() {
  while (!items_.empty()) {
    const Item item = std::move(items_.front());
    items_.pop_front();
    std::optional<EmulatedFault> fault;
    if (item.work) {
      fault = item.work(counts_);
    } else if (item.waits_on != nullptr) {
      fault = item.waits_on->run_until(*item.event, item.times);
    } else {
      item.event->done = std::max(item.event->done, item.times);
      item.event->milliseconds = std::chrono::duration<double, std::milli>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count();
    }
    if (fault) return fault;
  }
  return std::nullopt;
}

std::optional<EmulatedFault> EmulatedStream::run_until(const EmulatedEvent& event, uint64_t times) {
  // Work after the event is kept back.
  const auto last = std::find_if(items_.begin(), items_.end(), [&](const Item& item) {
    return item.event.get() == &event && item.waits_on == nullptr && item.times == times;
  });
  if (last == items_.end()) return std::nullopt;
  std::deque<Item> rest(std::make_move_iterator(last + 1), std::make_move_iterator(items_.end()));
  items_.erase(last + 1, items_.end());
  auto fault = run();
  items_ = std::move(rest);
  return fault;
}

void EmulatedStream::begin_capture(CUstreamCaptureMode mode) {
  capture_ = std::make_unique<Capture>(Capture{mode, std::this_thread::get_id(), true, {}});
}

bool EmulatedStream::forbids(std::thread::id thread, CUstreamCaptureMode mode) const {
  constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL, kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (!captures() || mode == kRelaxed || capture_->mode == kRelaxed) return false;
  return capture_->thread == thread || (capture_->mode == kGlobal && mode == kGlobal);
}

std::shared_ptr<EmulatedGraph> EmulatedStream::end_capture() {
  const auto capture = std::move(capture_);
  return capture->valid ? std::make_shared<EmulatedGraph>(std::move(capture->graph)) : nullptr;
}

}  // namespace anneal::cuda
