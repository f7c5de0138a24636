#include "anneal/engine/data/fit.h"

#include <fmt/format.h>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/data/input_text.h"
#include "anneal/engine/data/normalize.h"

namespace anneal {
namespace {

// Sizes of target with those that are open taken from sample.
std::optional<Dims> match(const Dims& sample, const Dims& target) {
  if (sample.rank() == target.rank()) {
    bool equal = true;
    for (int axis = 0; axis < sample.rank(); ++axis)
      equal = equal && (target[axis] == -1 || target[axis] == sample[axis]);
    if (equal) return sample;
  }
  Dims left;  // without axes of size 1
  for (const int64_t size : sample)
    if (size != 1) left.push_back(size);
  Dims dims = target;
  int at = 0, wide = 0, last_wide = 0;
  bool fits = true;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (dims[axis] == 1) continue;
    ++wide;
    last_wide = axis;
    if (at == left.rank() || (dims[axis] != -1 && dims[axis] != left[at])) {
      fits = false;
      continue;
    }
    dims[axis] = left[at++];
  }
  if (fits && at == left.rank()) return dims;
  const int64_t all = count(sample);
  if (wide != 1 || (target[last_wide] != -1 && target[last_wide] != all)) return std::nullopt;
  dims = target;
  dims[last_wide] = all;
  return dims;
}

Dims without_batch(const DataInput& input) {
  Dims dims;
  for (int axis = 1; axis < input.dims.rank(); ++axis) dims.push_back(input.dims[axis]);
  return dims;
}

ConstTensorView permuted(const ConstTensorView& view, ImageLayout from) {
  const int order[2][3] = {{1, 2, 0}, {2, 0, 1}};  // chw to hwc, hwc to chw
  ConstTensorView result = view;
  const int first = view.dims.rank() - 3;
  for (int i = 0; i < 3; ++i) {
    const int axis = first + order[from == ImageLayout::kChannelsLast ? 1 : 0][i];
    result.dims[first + i] = view.dims[axis];
    result.strides[first + i] = view.strides[axis];
  }
  return result;
}

// The axis of the input that holds the channels of the formula; -1: none.
int channel_axis(const Dims& dims, const DataInput& input, const DataFormat& format) {
  size_t most = format.channels == ChannelOrder::kBgr ? 3 : 1;
  for (const auto* list : {&format.scale, &format.mean, &format.std, &format.offset})
    most = std::max(most, list->size());
  if (most == 1) return -1;
  const int rank = dims.rank(), first = rank - 3, last = rank - 1;
  const auto has = [&](int axis) { return axis >= 0 && dims[axis] == static_cast<int64_t>(most); };
  if (format.layout) {
    const int axis = *format.layout == ImageLayout::kChannelsFirst ? first : last;
    if (has(axis)) return axis;
  } else if (has(first) != has(last)) {
    return has(first) ? first : last;
  }
  refuse_argument(
      fmt::format("numbers for {} channels, but which axis of {} holds them is not clear; say "
                  "layout nchw or layout nhwc",
                  most, input_text(input)));
}

Tensor converted(const ConstTensorView& view, const DataInput& input, const DataFormat& format) {
  const bool changes = has_formula(format) || format.channels == ChannelOrder::kBgr;
  if (!changes && !is_float(input.dtype) && is_float(view.dtype))
    refuse_argument(fmt::format("the data is {}, the input {} takes whole numbers",
                                to_string(view.dtype), input_text(input)));
  const int axis = channel_axis(view.dims, input, format);
  const int64_t channels = axis < 0 ? 1 : view.dims[axis];
  const Formula formula(format, channels);
  ConstTensorView from = view;
  if (format.channels == ChannelOrder::kBgr) {
    from.data += (channels - 1) * from.strides[axis] * static_cast<int64_t>(size_of(view.dtype));
    from.strides[axis] = -from.strides[axis];
  }
  int64_t inner = 1;  // elements of the result between neighbours along the channels
  for (int k = axis + 1; axis >= 0 && k < view.dims.rank(); ++k) inner *= view.dims[k];
  auto made = allocate_tensor(input.dtype, view.dims);
  const size_t element = size_of(input.dtype);
  int64_t i = 0;
  for_each_element(from, [&](const std::byte* at) {
    const double value = read_element(view.dtype, at);
    const int64_t channel = axis < 0 ? 0 : i / inner % channels;
    std::byte* to = made.data.data() + static_cast<size_t>(i) * element;
    if (input.dtype == DataType::kBool)
      write_element(input.dtype, to, value);
    else
      write_rounded(input.dtype, to, changes ? formula(value, channel) : value);
    ++i;
  });
  return made.tensor;
}

}  // namespace

std::optional<Dims> fit_sample(const Dims& sample, const DataInput& input) {
  if (input.dims.rank() > 0) {
    if (const auto row = match(sample, without_batch(input))) {
      Dims dims = {1};
      for (const int64_t size : *row) dims.push_back(size);
      return dims;
    }
  }
  return match(sample, input.dims);
}

std::optional<Dims> fit_batched(const Dims& sample, const DataInput& input) {
  if (sample.rank() != input.dims.rank()) return std::nullopt;
  for (int axis = 0; axis < sample.rank(); ++axis)
    if (input.dims[axis] != -1 && input.dims[axis] != sample[axis]) return std::nullopt;
  return sample;
}

Tensor fit_array(const Tensor& array, const DataInput& input, const DataFormat& format,
                 Batched batched) {
  if (format.channels == ChannelOrder::kGrey && array.dims().rank() > 2 &&
      array.dims()[array.dims().rank() - 1] == 3)
    refuse_argument("channels grey is for images; make the arrays grey before they are saved");
  const auto fit = [&](const Dims& dims) {
    const auto whole = batched == Batched::kMaybe ? fit_batched(dims, input) : std::nullopt;
    return whole ? whole : fit_sample(dims, input);
  };
  ConstTensorView view = array.view();
  auto dims = fit(view.dims);
  if (view.dims.rank() >= 3) {
    // A declared layout that the input does not have, or data that fits the other way round only.
    const bool asked = format.data_layout && format.layout && *format.data_layout != *format.layout;
    std::optional<ImageLayout> from;
    if (asked) from = format.data_layout;
    for (const auto guess : {ImageLayout::kChannelsLast, ImageLayout::kChannelsFirst}) {
      if (from || (format.data_layout && format.layout)) break;
      if (format.data_layout && *format.data_layout != guess) continue;
      const bool fits_turned = fit(permuted(view, guess).dims).has_value();
      if (dims && fits_turned && format.data_layout)
        refuse_argument(fmt::format(
            "data of {} fits the input {} both unchanged and with its channels moved; give "
            "layout nchw or layout nhwc",
            to_string(view.dims), input_text(input)));
      if (!dims && fits_turned) from = guess;
    }
    if (from) {
      view = permuted(view, *from);
      dims = fit(view.dims);
    }
  }
  if (!dims)
    refuse_argument(fmt::format("a sample of {} does not fit the input {}", to_string(array.dims()),
                                input_text(input)));
  const bool changes = has_formula(format) || format.channels == ChannelOrder::kBgr;
  if (!changes && array.dtype() == input.dtype) {
    const Tensor dense = is_row_major(view) ? array : dense_copy(view);
    return {input.dtype, *dims, std::make_shared<Tensor>(dense), dense.bytes()};
  }
  Tensor dense = is_row_major(view) ? array : dense_copy(view);
  const Tensor shaped(array.dtype(), *dims, std::make_shared<Tensor>(dense), dense.bytes());
  return converted(shaped.view(), input, format);
}

}  // namespace anneal
