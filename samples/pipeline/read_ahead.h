// Decodes pictures on threads of its own, ahead of those who take them.
#pragma once
#include <anneal/anneal.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "timeline.h"

struct DecodedBatch {
  int64_t index = 0;
  std::vector<anneal::Tensor> pictures;
};

// Several threads may take batches at once.
class ReadAhead {
 public:
  // lanes: one for each thread. All arguments must outlive this object.
  ReadAhead(const anneal::Dataset& pictures, int64_t batch, int64_t batches,
            const StageClock& clock, std::span<Lane> lanes);
  ~ReadAhead();
  // In order; nullopt after the last. Throws what decoding threw.
  std::optional<DecodedBatch> next();

 private:
  void decode(Lane& lane);

  const anneal::Dataset& pictures_;
  const int64_t batch_, total_, ahead_;
  const StageClock& clock_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int64_t, anneal::Tensor> decoded_;
  int64_t started_ = 0, taken_ = 0;
  std::exception_ptr fault_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};
