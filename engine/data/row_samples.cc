#include "anneal/engine/data/row_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "anneal/core/file.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/data/file_samples.h"
#include "anneal/engine/data/fit.h"
#include "anneal/engine/data/inflate.h"
#include "anneal/engine/data/labels.h"
#include "anneal/engine/data/masks.h"
#include "anneal/engine/data/npz.h"
#include "anneal/engine/data/sample_file.h"

namespace anneal {
namespace {

struct FedArray {
  DataInput input;
  Tensor array;  // axis 0 counts the samples
};

class RowDataset : public Dataset {
 public:
  RowDataset(std::string path, DataFormat format, std::vector<FedArray> arrays, Labels labels,
             std::shared_ptr<const Masks> masks)
      : path_(std::move(path)),
        format_(std::move(format)),
        arrays_(std::move(arrays)),
        labels_(std::move(labels.values)),
        masks_(std::move(masks)) {}
  int64_t size() const override { return arrays_[0].array.dims()[0]; }
  std::string name(int64_t i) const override { return fmt::format("{}", i); }
  std::optional<int64_t> label(int64_t i) const override {
    if (labels_.empty()) return std::nullopt;
    return labels_[static_cast<size_t>(i)];
  }
  std::optional<Tensor> mask(int64_t i) const override {
    if (!masks_) return std::nullopt;
    return masks_->read(i, name(i), sizes_of(read(i)));
  }
  std::vector<SampleTensor> read(int64_t i) const override {
    return with_context(
        [&] { return fmt::format("while reading {}, sample {}", path_, i); },
        [&] {
          std::vector<SampleTensor> tensors;
          for (const auto& [input, array] : arrays_)
            tensors.push_back({input.name, fit_array(row(array, i), input, format_, Batched::kNo)});
          return tensors;
        });
  }

 private:
  Tensor row(const Tensor& array, int64_t i) const {
    Dims dims;
    for (int axis = 1; axis < array.dims().rank(); ++axis) dims.push_back(array.dims()[axis]);
    const size_t bytes = array.bytes().size() / static_cast<size_t>(size());
    return {array.dtype(), dims, std::make_shared<Tensor>(array),
            array.bytes().subspan(static_cast<size_t>(i) * bytes, bytes)};
  }

  std::string path_;
  DataFormat format_;
  std::vector<FedArray> arrays_;
  std::vector<int64_t> labels_;
  std::shared_ptr<const Masks> masks_;
};

Tensor read_raw_rows(const std::string& path, const DataFormat& format) {
  if (!format.dtype || !format.shape)
    refuse_argument(
        fmt::format("{} is taken for raw samples (by its name it is no picture, .npy, .npz, .pb "
                    "or idx file); say with dtype and shape what one is: dtype u8, shape 32x32x3",
                    path));
  if (*format.dtype == DataType::kString ||
      std::ranges::any_of(*format.shape, [](int64_t size) { return size < 1; }))
    refuse_argument(fmt::format("raw samples of {}{}: give numbers, of sizes from 1 on",
                                to_string(*format.dtype), to_string(*format.shape)));
  FileBytes file = path.ends_with(".gz") ? read_file(path) : map_file(path);
  if (path.ends_with(".gz")) {
    auto contents = std::make_shared<std::vector<std::byte>>(with_context(
        [&] { return fmt::format("while reading {}", path); }, [&] { return gunzip(file.bytes); }));
    file = {*contents, contents};
  }
  const size_t sample = static_cast<size_t>(count(*format.shape)) * size_of(*format.dtype);
  if (file.bytes.empty() || file.bytes.size() % sample != 0)
    refuse_argument(fmt::format(
        "{} has {} bytes, which are no whole number of samples of {}{}, {} bytes "
        "each",
        path, file.bytes.size(), to_string(*format.dtype), to_string(*format.shape), sample));
  Dims dims = {static_cast<int64_t>(file.bytes.size() / sample)};
  for (const int64_t size : *format.shape) dims.push_back(size);
  if (*format.dtype == DataType::kBool) {
    auto copy = allocate_tensor(DataType::kBool, dims);
    std::transform(file.bytes.begin(), file.bytes.end(), copy.data.begin(),
                   [](std::byte byte) { return static_cast<std::byte>(byte != std::byte{0}); });
    return copy.tensor;
  }
  return {*format.dtype, dims, file.owner, file.bytes};
}

// Arrays by the names of the inputs, or the only one for the only input; those of the labels and of
// the masks apart.
std::vector<FedArray> read_archive(const std::string& path, const DataFormat& format,
                                   std::span<const DataInput> inputs, Labels& labels,
                                   std::shared_ptr<const Masks>& masks) {
  const FileBytes file = read_file(path);
  auto arrays = with_context([&] { return fmt::format("while reading {}", path); },
                             [&] { return read_npz(file.bytes); });
  const auto wants = [&](const std::string& name) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const DataInput& input) { return input.name == name; });
  };
  std::vector<NamedArray> fed;
  for (NamedArray& one : arrays) {
    if (one.name == format.label_column && !wants(one.name)) {
      if (!format.labels.empty()) continue;
      labels = {path, {}, labels_of(one.array, format, fmt::format("{}: {}", path, one.name))};
    } else if (one.name == format.masks && !wants(one.name)) {
      masks = std::make_shared<Masks>(fmt::format("{}: {}", path, one.name), one.array, format);
    } else {
      fed.push_back(std::move(one));
    }
  }
  const bool is_for_one = inputs.size() == 1 || !format.input.empty() ||
                          std::ranges::count(inputs, false, &DataInput::is_optional) == 1;
  if (fed.size() == 1 && is_for_one) return {{fed_input(format, inputs), fed[0].array}};
  std::vector<FedArray> found;
  std::string names;
  for (const NamedArray& one : fed) names += (names.empty() ? "" : ", ") + one.name;
  for (const DataInput& input : inputs) {
    const auto one = std::find_if(fed.begin(), fed.end(),
                                  [&](const NamedArray& each) { return each.name == input.name; });
    if (one == fed.end() && input.is_optional) continue;
    if (one == fed.end())
      refuse_argument(
          fmt::format("{} has no array for the input \"{}\", only {}", path, input.name, names));
    found.push_back({input, one->array});
  }
  for (const NamedArray& one : fed)
    if (!wants(one.name))
      refuse_argument(
          fmt::format("{}: the array \"{}\" is for no input; label_column names the array of the "
                      "labels, masks that of the masks",
                      path, one.name));
  return found;
}

}  // namespace

std::shared_ptr<const Dataset> dataset_of_rows(const std::string& folder, const std::string& path,
                                               const DataFormat& format,
                                               std::span<const DataInput> inputs) {
  Labels labels = find_labels(folder, format);
  std::shared_ptr<const Masks> masks;
  std::vector<FedArray> arrays;
  if (path.ends_with(".npz")) {
    arrays = read_archive(path, format, inputs, labels, masks);
  } else {
    const bool raw = format.kind == DataKind::kRaw || !has_array_name(path);
    arrays.push_back(
        {fed_input(format, inputs), raw ? read_raw_rows(path, format) : read_sample(path, {})});
  }
  for (const auto& [input, array] : arrays) {
    if (array.dims().rank() == 0 || array.count() == 0)
      refuse_argument(fmt::format("{} holds no samples for the input \"{}\": its array is {}", path,
                                  input.name, to_string(array.dims())));
    if (array.dims()[0] != arrays[0].array.dims()[0])
      refuse_argument(fmt::format("{} has {} samples for the input \"{}\" and {} for \"{}\"", path,
                                  arrays[0].array.dims()[0], arrays[0].input.name, array.dims()[0],
                                  input.name));
  }
  check_label_count(labels, arrays[0].array.dims()[0]);
  if (!masks) masks = open_masks(find_masks(folder, format), format);
  auto samples =
      std::make_shared<RowDataset>(path, format, std::move(arrays), std::move(labels), masks);
  if (masks) {
    std::vector<std::string> names;
    for (int64_t i = 0; i < samples->size(); ++i) names.push_back(samples->name(i));
    masks->check_samples(names);
  }
  samples->read(0);
  return samples;
}

}  // namespace anneal
