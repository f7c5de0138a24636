// Samples to calibrate, tune and judge a network with: from files, or an application's own.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/error.h"
#include "anneal/core/tensor.h"
#include "anneal/engine/data/data_format.h"

namespace anneal {

// An input of the network that samples are made for. Sizes that are open are -1; axis 0 is the
// batch where there is one.
struct DataInput {
  std::string name;
  DataType dtype = DataType::kF32;
  Dims dims;
  bool is_optional = false;  // it has a default value: samples may leave it out
};

// The tensor of one sample for one input: of the input's type, dense, with its axis of the batch
// (of size 1, unless the data itself comes in batches).
struct SampleTensor {
  std::string input;
  Tensor tensor;
};

// The samples of an application or of files: make_dataset(), open_dataset(), or a class of the
// application. Immutable; several threads may call every function at a time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // REQUIRES (all methods): 0 <= i < size().
  // One tensor per input; optional inputs may be left out, in all samples. Every call may read and
  // decode again, and gives the same tensors. Throws Error; those of open_dataset() name the file.
  virtual std::vector<SampleTensor> read(int64_t i) const = 0;
  // Unique; subsets and comparisons use it.
  virtual std::string name(int64_t i) const { return std::to_string(i); }
  // The class, for metrics of classification.
  virtual std::optional<int64_t> label(int64_t /*i*/) const { return std::nullopt; }
  // The class of each pixel, i32 [height,width], for metrics of segmentation; -1: the pixel does
  // not count. Fails as read() does.
  virtual std::optional<Tensor> mask(int64_t /*i*/) const { return std::nullopt; }
};

// Samples 0 to count - 1, which read(i) makes, and their labels. Several threads may call both
// functions at a time.
std::shared_ptr<const Dataset> make_dataset(
    int64_t count, std::function<std::vector<SampleTensor>(int64_t i)> read,
    std::function<std::optional<int64_t>(int64_t i)> label = {});

// A folder of images, arrays or tensors, or one file of them: docs/data.md. Fails with kIo or
// kInvalidArgument on files that cannot be read or have no samples, and on samples that do not fit
// the inputs, as far as that shows without reading each.
std::shared_ptr<const Dataset> open_dataset(const std::string& path, const DataFormat& format,
                                            std::span<const DataInput> inputs);

// Some of the samples, in their order: "first:100"; "hash:100", the 100 with the smallest hashes,
// and "holdout:100", all others; "part:2/5", those whose hash mod 5 is 1; "part:2-5/5". Several,
// separated by commas, are applied one after the other. Depends on names alone, not on their order
// (but for "first"). Fails with kInvalidArgument, also if nothing is left.
std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> samples,
                                      std::string_view which);

}  // namespace anneal
