#include "anneal/engine/tune/samples/batches.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/refuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace anneal {
namespace {

// Null: the input has its default value.
const SampleTensor* tensor_for(const std::vector<SampleTensor>& tensors, const TensorInfo& port) {
  for (const SampleTensor& one : tensors)
    if (one.input == port.name) return &one;
  if (port.default_value) return nullptr;
  refuse_argument(fmt::format("the data has nothing for the input \"{}\"", port.name));
}

Tensor repeated(const Tensor& tensor, int64_t count, int64_t batch) {
  if (count == batch || tensor.dims().rank() == 0) return tensor;
  Dims dims = tensor.dims();
  dims[0] = dims[0] / count * batch;
  auto whole = allocate_tensor(tensor.dtype(), dims);
  const auto given = tensor.bytes();
  for (size_t at = 0; !given.empty() && at < whole.data.size(); at += given.size())
    std::memcpy(whole.data.data() + at, given.data(),
                std::min(given.size(), whole.data.size() - at));
  return whole.tensor;
}

}  // namespace

int64_t batch_size(const Engine& engine, const std::vector<SampleTensor>& sample, int64_t wanted) {
  int64_t batch = std::max<int64_t>(wanted, 1);
  for (const TensorInfo& port : engine.inputs()) {
    const SampleTensor* const given = tensor_for(sample, port);
    if (given == nullptr) continue;
    const Dims& dims = given->tensor.dims();
    if (dims.rank() == 0 || dims.rank() != port.dims.rank() || dims[0] < 1) {
      if (wanted > 1)
        refuse_argument(
            fmt::format("batches of {}: the input \"{}\" has no axis for them", wanted, port.name));
      return 1;
    }
    const int64_t rows = dims[0];
    if (port.dims[0] == -1) {
      const int64_t most = std::max<int64_t>(port.max_dims[0] / rows, 1);
      if (wanted > most)
        refuse_argument(
            fmt::format("batches of {}: the engine was built for up to {}", wanted, most));
      batch = std::max(batch, (port.min_dims[0] + rows - 1) / rows);
    } else if (wanted > 0 && wanted * rows != port.dims[0]) {
      refuse_argument(fmt::format("batches of {}: the engine was built for batches of {}", wanted,
                                  port.dims[0] / rows));
    } else {
      batch = std::max<int64_t>(port.dims[0] / rows, 1);
    }
  }
  return batch;
}

std::vector<SampleTensor> fed(const Engine& engine, const std::vector<SampleTensor>& tensors,
                              int64_t count, int64_t batch) {
  std::vector<SampleTensor> all;
  for (const TensorInfo& port : engine.inputs())
    if (const SampleTensor* const given = tensor_for(tensors, port))
      all.push_back({port.name, repeated(given->tensor, count, batch)});
  return all;
}

std::vector<SampleTensor> fed(const Engine& engine, const Batch& batch, int64_t size) {
  return fed(engine, batch.tensors, batch.count, size);
}

}  // namespace anneal
