#include "anneal/engine/data/normalize.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/data/image.h"
#include "anneal/engine/data/input_text.h"

namespace anneal {
namespace {

bool is_channels(int64_t size) { return size == 1 || size == 3; }

}  // namespace

Formula::Formula(const DataFormat& format, int64_t channels) {
  const auto spread = [&](const char* key, const std::vector<double>& numbers, double Step::*to) {
    const auto count = static_cast<int64_t>(numbers.size());
    if (count == 0) return;
    if (count != 1 && count != channels)
      refuse_argument(fmt::format("{} has {} numbers for {} channels", key, count, channels));
    for (const double number : numbers)
      if (!std::isfinite(number) || (to == &Step::std && number == 0))
        refuse_argument(fmt::format(
            "{} is {}: {}", key, number,
            number == 0 ? "it divides, so 0 is refused" : "finite numbers are expected"));
    for (size_t c = 0; c < steps_.size(); ++c) steps_[c].*to = numbers[count == 1 ? 0 : c];
  };
  steps_.resize(static_cast<size_t>(std::max<int64_t>(channels, 1)));
  spread("scale", format.scale, &Step::scale);
  spread("mean", format.mean, &Step::mean);
  spread("std", format.std, &Step::std);
  spread("offset", format.offset, &Step::offset);
}

double Formula::operator()(double value, int64_t channel) const {
  const Step& step = steps_[static_cast<size_t>(channel)];
  return (value * step.scale - step.mean) / step.std + step.offset;
}

bool has_formula(const DataFormat& format) {
  return !format.scale.empty() || !format.mean.empty() || !format.std.empty() ||
         !format.offset.empty();
}

void write_rounded(DataType dtype, std::byte* to, double value) {
  const bool whole = !is_float(dtype);
  const double rounded = whole ? std::nearbyint(value) : value;
  write_element(dtype, to, rounded);
  if (whole && read_element(dtype, to) != rounded)
    refuse_argument(
        fmt::format("the value {} does not fit the input's type {}; scale and offset say how "
                    "values become what the network takes",
                    value, to_string(dtype)));
}

PictureInput::PictureInput(const DataInput& input, const DataFormat& format)
    : input_(input), format_(format) {
  if (input.dtype == DataType::kBool)
    refuse_argument(
        fmt::format("the input {} takes no pictures: it is of truth values", input_text(input)));
  find_layout();
  if (format.channels && (*format.channels == ChannelOrder::kGrey) != (channels_ == 1))
    refuse_argument(fmt::format("channels {}: the input {} has {} channels",
                                channels_ == 1 ? "of colours" : "grey", input_text(input),
                                channels_));
  Formula(format, channels_);
}

void PictureInput::find_layout() {
  const Dims& dims = input_.dims;
  const int rank = dims.rank();
  const bool first = rank >= 3 && is_channels(dims[rank - 3]);
  const bool last = rank >= 3 && is_channels(dims[rank - 1]);
  const bool grey_wanted = format_.channels == ChannelOrder::kGrey;
  tensor_dims_ = dims;
  if (rank == 4 && dims[0] != 0) tensor_dims_[0] = 1;

  if (rank == 2 ||
      (rank == 3 && !format_.layout && dims[0] != 3 && dims[2] != 3 && !(first && last))) {
    // [H,W], [N,H,W]: no axis of channels; [N,pixels]: everything along one.
    channels_ = 1;
    height_axis_ = rank - 2;
    width_axis_ = rank - 1;
    if (rank == 3) tensor_dims_[0] = 1;
    if (rank == 2 && (dims[0] == -1 || dims[0] == 1)) {
      height_axis_ = width_axis_ = -1;
      tensor_dims_[0] = 1;
      if (format_.channels && !grey_wanted) {
        channels_ = 3;
        if (!format_.layout)
          refuse_argument(
              fmt::format("the input {} holds a picture along one axis; say with layout nchw or "
                          "nhwc how its channels lie",
                          input_text(input_)));
        layout_ = *format_.layout;
      }
    }
    return;
  }
  if (rank != 3 && rank != 4)
    refuse_argument(
        fmt::format("the input {} takes no pictures: its shape is not that of [N,C,H,W], "
                    "[N,H,W,C], [N,H,W] or [N,pixels]",
                    input_text(input_)));
  if (!format_.layout && first == last)
    refuse_argument(
        fmt::format("the shape of the input {} leaves open which axis holds the channels; say "
                    "layout nchw or layout nhwc",
                    input_text(input_)));
  layout_ = format_.layout ? *format_.layout
            : first        ? ImageLayout::kChannelsFirst
                           : ImageLayout::kChannelsLast;
  const bool channels_first = layout_ == ImageLayout::kChannelsFirst;
  const int axis = channels_first ? rank - 3 : rank - 1;
  height_axis_ = channels_first ? rank - 2 : rank - 3;
  width_axis_ = channels_first ? rank - 1 : rank - 2;
  if (dims[axis] == -1) tensor_dims_[axis] = grey_wanted ? 1 : 3;
  if (!is_channels(tensor_dims_[axis]))
    refuse_argument(fmt::format("the input {} has {} channels in layout {}; pictures have 1 or 3",
                                input_text(input_), dims[axis], channels_first ? "nchw" : "nhwc"));
  channels_ = static_cast<int>(tensor_dims_[axis]);
}

Tensor PictureInput::tensor_of(std::span<const std::byte> file) const {
  Image image = decode_image(file);
  image = channels_ == 1 ? to_grey(std::move(image)) : to_colour(std::move(image));
  const auto resized = [&](const Dims& size) {
    if (size != Dims{image.height, image.width})
      image = resize(image, size, format_.filter, format_.antialias);
  };
  if (format_.resize_exact) resized(*format_.resize_exact);
  if (format_.resize_shorter)
    resized(size_with_shorter_side({image.height, image.width}, *format_.resize_shorter));
  if (format_.crop) image = centre_crop(image, *format_.crop);

  const auto wrong_size = [&] {
    refuse_argument(
        fmt::format("the picture is {} x {} (height x width), which does not fit the input {}; "
                    "resize and crop give it another size",
                    image.height, image.width, input_text(input_)));
  };
  Dims dims = tensor_dims_;
  const auto side = [&](int axis, int64_t size) {
    if (dims[axis] != -1 && dims[axis] != size) wrong_size();
    dims[axis] = size;
  };
  if (height_axis_ >= 0) {
    side(height_axis_, image.height);
    side(width_axis_, image.width);
  } else {
    side(1, image.height * image.width * channels_);
  }

  // A byte has 256 values in each channel.
  const Formula formula(format_, channels_);
  const size_t element = size_of(input_.dtype);
  std::vector<std::byte> values(static_cast<size_t>(channels_) * 256 * element);
  auto made = allocate_tensor(input_.dtype, dims);
  std::array<bool, 768> is_made{};
  const bool swap = format_.channels == ChannelOrder::kBgr;
  const bool planes = layout_ == ImageLayout::kChannelsFirst;
  const int64_t pixels = image.height * image.width;
  for (int c = 0; c < channels_; ++c) {
    const uint8_t* from = image.pixels.data() + (swap ? channels_ - 1 - c : c);
    std::byte* to = made.data.data() + static_cast<size_t>(planes ? c * pixels : c) * element;
    const size_t step = planes ? element : element * static_cast<size_t>(channels_);
    for (int64_t i = 0; i < pixels; ++i, from += channels_, to += step) {
      const size_t at = static_cast<size_t>(c) * 256 + *from;
      std::byte* value = values.data() + at * element;
      if (!is_made[at]) {
        write_rounded(input_.dtype, value, formula(*from, c));
        is_made[at] = true;
      }
      std::memcpy(to, value, element);
    }
  }
  return made.tensor;
}

}  // namespace anneal
