// Samples for calibration, tuning and metrics: from files or from an application.
#pragma once
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/core/error.h"
#include "anneal/core/tensor.h"
#include "anneal/engine/data/data_format.h"

namespace anneal {

// An input of the network. Open sizes are -1; axis 0 is the batch, if there is one.
struct DataInput {
  std::string name;
  DataType dtype = DataType::kF32;
  Dims dims;
  bool is_optional = false;  // has a default value, so samples may omit it
};

// One sample's tensor for an input: of its type, dense, with the batch axis, which may be above 1.
struct SampleTensor {
  std::string input;
  Tensor tensor;
};

// Samples of files (open_dataset()) or of an application (make_dataset(), or a derived class).
// Immutable; several threads may call all functions at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // REQUIRES (all methods): 0 <= i < size().
  // One tensor per input; all samples may omit the same optional inputs. Every call may read and
  // decode again, and returns the same tensors. Throws Error; open_dataset()'s name the file.
  virtual std::vector<SampleTensor> read(int64_t i) const = 0;
  // Unique; subsets and comparisons use it.
  virtual std::string name(int64_t i) const { return std::to_string(i); }
  // The class, for metrics of classification.
  virtual std::optional<int64_t> label(int64_t /*i*/) const { return std::nullopt; }
  // The class of each pixel, i32 [height,width], for metrics of segmentation; -1: the pixel is
  // ignored. Fails as read() does.
  virtual std::optional<Tensor> mask(int64_t /*i*/) const { return std::nullopt; }
};

// Samples in memory; or samples 0 to count - 1, whose functions several threads call at once.
std::shared_ptr<const Dataset> make_dataset(
    int64_t count, std::function<std::vector<SampleTensor>(int64_t i)> read,
    std::function<std::optional<int64_t>(int64_t i)> label = {});

inline std::shared_ptr<const Dataset> make_dataset(std::vector<std::vector<SampleTensor>> all) {
  const auto count = std::ssize(all);
  return make_dataset(count, [all = std::move(all)](int64_t i) { return all.at(size_t(i)); });
}

// A folder of images, arrays or tensors, or one file of them: docs/data.md. Fails with kIo or
// kInvalidArgument on files that cannot be read or have no samples, and on samples that do not fit
// the inputs, as far as this is known without reading them all.
std::shared_ptr<const Dataset> open_dataset(const std::string& path, const DataFormat& format,
                                            std::span<const DataInput> inputs);

// Some of the samples, in their order: "first:100"; "hash:100", the 100 with the smallest hashes,
// and "holdout:100", the others; "part:2/5", those whose hash mod 5 is 1; "part:2-5/5". Several,
// separated by commas, are applied in order. Depends on the samples' names only, not on their order
// (except "first"). Fails with kInvalidArgument, also on an empty result.
std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> samples,
                                      std::string_view which);

}  // namespace anneal
