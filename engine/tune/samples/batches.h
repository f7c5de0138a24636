// Samples in the batches that an engine takes; the last batch is padded.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/engine/data/batch_reader.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// Samples per run: `wanted`, or if that is 0 what the engine was built for, 1 if that is open. A
// sample may itself be a batch. Fails with kInvalidArgument if the engine has no such batch, or the
// sample nothing for an input.
int64_t batch_size(const Engine& engine, const std::vector<SampleTensor>& sample, int64_t wanted);

// One tensor per input of the engine, in their order, of `batch` samples each: those given, `count`
// of them, then, for a last batch that lacks some, these again from the first. So no value is fed
// that is not of a sample.
std::vector<SampleTensor> fed(const Engine& engine, const std::vector<SampleTensor>& tensors,
                              int64_t count, int64_t batch);
// As above, of a batch that was read, in runs of `size` samples.
std::vector<SampleTensor> fed(const Engine& engine, const Batch& batch, int64_t size);

}  // namespace anneal
