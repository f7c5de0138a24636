// Conversion of stored values to the values that the network expects.
#pragma once
#include <vector>

#include "anneal/engine/data/data_format.h"
#include "anneal/engine/data/dataset.h"

namespace anneal {

// x = (value * scale - mean) / std + offset, in double.
class Formula {
 public:
  // Fails if a list has neither one number nor `channels`, and on numbers that are not finite or
  // divide by 0.
  Formula(const DataFormat& format, int64_t channels);
  double operator()(double value, int64_t channel) const;

 private:
  struct Step {
    double scale = 1, mean = 0, std = 1, offset = 0;
  };
  std::vector<Step> steps_;  // one, or one per channel
};

bool has_formula(const DataFormat& format);

// Rounded once to the type; integers to the nearest, ties to even. Fails if an integer type does
// not hold it.
void write_rounded(DataType dtype, std::byte* to, double value);

// The picture as the input wants it: channels, resized, cropped, laid out, by the formula. Fails if
// the size is then not the input's, naming the keys that give it another.
class PictureInput {
 public:
  // Fails if the shape of the input takes no pictures, or leaves open which axis holds the
  // channels.
  PictureInput(const DataInput& input, const DataFormat& format);
  Tensor tensor_of(std::span<const std::byte> file) const;

 private:
  void find_layout();
  DataInput input_;
  DataFormat format_;
  ImageLayout layout_ = ImageLayout::kChannelsFirst;
  int channels_ = 3;
  Dims tensor_dims_;                        // of one sample: sides that are open are -1
  int height_axis_ = -1, width_axis_ = -1;  // -1: they lie along one axis
};

}  // namespace anneal
