// Masks: the class of each pixel of a sample, from files beside the data.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/engine/data/data_format.h"

namespace anneal {

// Immutable.
class Masks {
 public:
  // rows: [samples,height,width] of integers, with axes of size 1 more; of one sample
  // [height,width], too. path: for errors. Fails if they are something else.
  Masks(std::string path, const Tensor& rows, const DataFormat& format);
  // A folder with a mask for each sample: .png or .npy, otherwise called like the sample.
  Masks(std::string folder, const DataFormat& format);

  // Fails, naming it, if a sample has none, or if there are others.
  void check_samples(std::span<const std::string> names) const;
  // The mask of sample `i`, called `name`: i32 [height,width], -1 being ignored. Fails if none of
  // `sizes`, those of the masked tensors, has this height and width on adjacent axes.
  Tensor read(int64_t i, const std::string& name, std::span<const Dims> sizes) const;

 private:
  std::filesystem::path path_of(const std::string& name, std::string_view extension) const;
  std::optional<std::string> file_of(const std::string& name) const;

  const std::string path_;
  std::optional<Tensor> rows_;
  const DataFormat format_;
};

// Where format.masks is: from where the command stands, or else within the folder. Empty: there are
// none. Fails with kIo if it is nowhere.
std::string find_masks(const std::string& folder, const DataFormat& format);
// The masks at the path; null for an empty path.
std::shared_ptr<const Masks> open_masks(const std::string& path, const DataFormat& format);

// A picture's mask, resized and cropped as the picture is, but without blending.
Tensor shaped_mask(const Tensor& mask, const DataFormat& format);

}  // namespace anneal
