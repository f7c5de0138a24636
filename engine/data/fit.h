// Conversion of sample arrays to the shape and type of an input.
#pragma once
#include <optional>

#include "anneal/engine/data/dataset.h"

namespace anneal {

// Sizes of the input for a sample of these; axes of size 1 may be more or fewer, and a sample may
// lie along one axis. nullopt: it does not fit.
std::optional<Dims> fit_sample(const Dims& sample, const DataInput& input);   // without its batch
std::optional<Dims> fit_batched(const Dims& sample, const DataInput& input);  // with it

// Whether the sample has its axis of the batch.
enum class Batched : uint8_t { kNo, kMaybe };

// The array as the input takes it: format's layouts, order of channels and formula. Memory is
// shared where nothing changes. Fails if it does not fit, with the type and shape of the input.
Tensor fit_array(const Tensor& array, const DataInput& input, const DataFormat& format,
                 Batched batched);

}  // namespace anneal
