// Reads samples ahead of inference on threads of its own, and joins them into batches.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "anneal/engine/data/dataset.h"

namespace anneal {

struct BatchReaderOptions {
  int64_t batch = 1;  // samples per batch; the last may be smaller
  int threads = 0;    // that read; 0: one per core
  // Batches that may be ready or in progress besides the current one: bounds the memory. 0: none
  // is read ahead; next() itself reads, on the caller's thread.
  int64_t ahead = 2;
};

struct Batch {
  int64_t first = 0, count = 0;  // samples [first, first + count)
  // One per input. Samples are concatenated along axis 0.
  std::vector<SampleTensor> tensors;
};

// One caller at a time. The threads call only Dataset::read(); the destructor waits for running
// reads and drops the rest.
class BatchReader {
 public:
  // Fails with kInvalidArgument on options below their least.
  BatchReader(std::shared_ptr<const Dataset> samples, const BatchReaderOptions& options);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Batches in order, the same for any number of threads; nullopt after the last. Throws what the
  // first sample that cannot be read threw, with its name, and again at each later call; fails with
  // kInvalidArgument if samples of a batch have different shapes.
  std::optional<Batch> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace anneal
