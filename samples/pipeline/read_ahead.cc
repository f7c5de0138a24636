#include "read_ahead.h"

#include <utility>

namespace {

constexpr int64_t kBatchesAhead = 3;  // bounds the memory

}  // namespace

ReadAhead::ReadAhead(const anneal::Dataset& pictures, int64_t batch, int64_t batches,
                     const StageClock& clock, std::span<Lane> lanes)
    : pictures_(pictures),
      batch_(batch),
      total_(batch * batches),
      ahead_(kBatchesAhead * batch),
      clock_(clock) {
  for (Lane& lane : lanes) threads_.emplace_back([this, &lane] { decode(lane); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::decode(Lane& lane) {
  while (true) {
    int64_t mine = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [&] { return stopping_ || started_ == total_ || started_ < taken_ + ahead_; });
      if (stopping_ || started_ == total_) return;
      mine = started_++;
    }
    try {
      std::vector<anneal::SampleTensor> tensors;
      clock_.timed(lane, Stage::kDecode, mine / batch_,
                   [&] { tensors = pictures_.read(mine % pictures_.size()); });
      const std::lock_guard lock(mutex_);
      decoded_.emplace(mine, std::move(tensors[0].tensor));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!fault_) fault_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

std::optional<DecodedBatch> ReadAhead::next() {
  std::unique_lock lock(mutex_);
  if (taken_ == total_) return std::nullopt;
  DecodedBatch batch{taken_ / batch_, {}};
  // From now on this batch is the caller's: another thread takes the one behind it.
  const int64_t first = std::exchange(taken_, taken_ + batch_);
  changed_.notify_all();
  for (int64_t i = first; i < first + batch_; ++i) {
    changed_.wait(lock, [&] { return fault_ || decoded_.contains(i); });
    if (fault_) std::rethrow_exception(fault_);
    batch.pictures.push_back(std::move(decoded_.extract(i).mapped()));
  }
  return batch;
}
