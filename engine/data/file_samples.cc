#include "anneal/engine/data/file_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <set>

#include "anneal/core/file.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/data/fit.h"
#include "anneal/engine/data/image.h"
#include "anneal/engine/data/labels.h"
#include "anneal/engine/data/masks.h"
#include "anneal/engine/data/normalize.h"
#include "anneal/engine/data/sample_file.h"
#include "anneal/importer/onnx/tensor_file.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using Read = std::function<std::vector<SampleTensor>(const std::string& path)>;
// The mask of sample i; empty: there are none.
using ReadMask = std::function<Tensor(int64_t i, const SampleFile& sample)>;

class FileDataset : public Dataset {
 public:
  FileDataset(std::vector<SampleFile> files, std::vector<int64_t> labels, Read read,
              ReadMask read_mask)
      : files_(std::move(files)),
        labels_(std::move(labels)),
        read_(std::move(read)),
        read_mask_(std::move(read_mask)) {}
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  std::string name(int64_t i) const override { return files_[static_cast<size_t>(i)].name; }
  std::optional<int64_t> label(int64_t i) const override {
    if (labels_.empty()) return std::nullopt;
    return labels_[static_cast<size_t>(i)];
  }
  std::optional<Tensor> mask(int64_t i) const override {
    if (!read_mask_) return std::nullopt;
    return read_mask_(i, files_[static_cast<size_t>(i)]);
  }
  std::vector<SampleTensor> read(int64_t i) const override {
    return read_(files_[static_cast<size_t>(i)].path);
  }

 private:
  std::vector<SampleFile> files_;
  std::vector<int64_t> labels_;
  Read read_;
  ReadMask read_mask_;
};

std::vector<SampleFile> listed_files(const std::string& folder, const Labels& labels) {
  const fs::path base = fs::path(labels.path).parent_path();
  std::vector<SampleFile> files;
  std::set<std::string> names;
  std::error_code ignored;
  for (const std::string& file : labels.files) {
    if (!names.insert(file).second)
      refuse_argument(fmt::format("{} lists \"{}\" twice", labels.path, file));
    fs::path path = base / file;
    if (!fs::exists(path, ignored)) path = fs::path(folder) / file;
    if (file.empty() || !fs::exists(path, ignored))
      fail(ErrorCode::kIo, fmt::format("{} lists \"{}\", which is not there", labels.path, file));
    files.push_back({file, path.string()});
  }
  return files;
}

// The class of each picture where every class has its folder, in the order of their names.
std::vector<int64_t> classes_of_folders(const std::vector<SampleFile>& files,
                                        const DataFormat& format) {
  std::set<std::string> classes;
  for (const SampleFile& file : files) {
    const size_t slash = file.name.find('/');
    if (slash == file.name.npos) return {};
    classes.insert(file.name.substr(0, slash));
  }
  if (classes.size() < 2) return {};
  std::vector<int64_t> labels;
  for (const SampleFile& file : files)
    labels.push_back(
        std::distance(classes.begin(), classes.find(file.name.substr(0, file.name.find('/')))) +
        format.label_offset);
  return labels;
}

// K of "input_K.pb".
std::optional<size_t> input_number(const std::string& file) {
  size_t number = 0;
  if (!file.starts_with("input_") || !file.ends_with(".pb")) return std::nullopt;
  const char* end = file.data() + file.size() - 3;
  const auto [at, error] = std::from_chars(file.data() + 6, end, number);
  if (error != std::errc{} || at != end) return std::nullopt;
  return number;
}

SampleTensor read_tensor(const fs::path& path, size_t number, const DataFormat& format,
                         std::span<const DataInput> inputs) {
  const FileBytes file = read_file(path.string());
  std::string name;
  const Tensor tensor = load_tensor_proto(file.bytes, &name);
  const auto* input = std::find_if(inputs.data(), inputs.data() + inputs.size(),
                                   [&](const DataInput& one) { return one.name == name; });
  if (input == inputs.data() + inputs.size()) {
    if (!name.empty() || number >= inputs.size())
      refuse_argument(fmt::format("the tensor \"{}\" is for no input of the network", name));
    input = &inputs[number];
  }
  return {input->name, fit_array(tensor, *input, format, Batched::kMaybe)};
}

std::vector<SampleTensor> read_tensor_set(const std::string& folder, const DataFormat& format,
                                          std::span<const DataInput> inputs) {
  std::vector<SampleTensor> tensors;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto number = input_number(entry.path().filename().string());
    if (!number) continue;
    SampleTensor tensor =
        with_context([&] { return fmt::format("while reading {}", entry.path().string()); },
                     [&] { return read_tensor(entry.path(), *number, format, inputs); });
    for (const SampleTensor& other : tensors)
      if (other.input == tensor.input)
        refuse_argument(
            fmt::format("{} has two tensors for the input \"{}\"", folder, tensor.input));
    tensors.push_back(std::move(tensor));
  }
  for (const DataInput& input : inputs)
    if (!input.is_optional &&
        std::none_of(tensors.begin(), tensors.end(),
                     [&](const SampleTensor& one) { return one.input == input.name; }))
      refuse_argument(fmt::format("{} has no tensor for the input \"{}\"", folder, input.name));
  return tensors;
}

std::shared_ptr<const Dataset> dataset_of_files(const std::string& folder,
                                                std::vector<SampleFile> found, const Labels& labels,
                                                const Masks* masks, Read read, ReadMask read_mask) {
  if (!labels.files.empty()) found = listed_files(folder, labels);
  if (found.empty()) refuse_argument(fmt::format("{} holds no samples", folder));
  check_label_count(labels, static_cast<int64_t>(found.size()));
  if (masks) {
    std::vector<std::string> names;
    for (const SampleFile& file : found) names.push_back(file.name);
    masks->check_samples(names);
  }
  return std::make_shared<FileDataset>(std::move(found), labels.values, std::move(read),
                                       masks ? std::move(read_mask) : nullptr);
}

// For files whose tensors are as large as their masks.
std::shared_ptr<const Dataset> dataset_of_tensors(const std::string& folder,
                                                  std::vector<SampleFile> found,
                                                  const DataFormat& format, const Read& read) {
  const auto masks = open_masks(find_masks(folder, format), format);
  const auto read_mask = [masks, read](int64_t i, const SampleFile& sample) {
    return masks->read(i, sample.name, sizes_of(read(sample.path)));
  };
  return dataset_of_files(folder, std::move(found), find_labels(folder, format), masks.get(), read,
                          read_mask);
}

}  // namespace

std::vector<Dims> sizes_of(std::span<const SampleTensor> tensors) {
  std::vector<Dims> sizes;
  for (const SampleTensor& each : tensors) sizes.push_back(each.tensor.dims());
  return sizes;
}

const DataInput& fed_input(const DataFormat& format, std::span<const DataInput> inputs) {
  std::string names;
  const bool is_alone = std::ranges::count(inputs, false, &DataInput::is_optional) == 1;
  for (const DataInput& input : inputs) {
    if (format.input.empty() ? inputs.size() == 1 || (is_alone && !input.is_optional)
                             : input.name == format.input)
      return input;
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", input.name);
  }
  if (!format.input.empty())
    refuse_argument(fmt::format("there is no input \"{}\", only {}", format.input, names));
  refuse_argument(
      fmt::format("the network has the inputs {}, and the data is for one: name it with input, "
                  "or give data for all as .npz or as folders of TensorProto files",
                  names));
}

std::shared_ptr<const Dataset> dataset_of_array_files(const std::string& folder,
                                                      std::vector<SampleFile> found,
                                                      const DataFormat& format,
                                                      std::span<const DataInput> inputs) {
  const DataInput input = fed_input(format, inputs);
  const auto read = [format, input](const std::string& path) -> std::vector<SampleTensor> {
    const RawFormat raw{format.dtype.value_or(input.dtype), format.shape};
    const Tensor array = read_sample(path, raw);
    return with_context([&] { return fmt::format("while reading {}", path); },
                        [&] {
                          return std::vector<SampleTensor>{
                              {input.name, fit_array(array, input, format, Batched::kMaybe)}};
                        });
  };
  return dataset_of_tensors(folder, std::move(found), format, read);
}

std::shared_ptr<const Dataset> dataset_of_images(const std::string& folder,
                                                 std::vector<SampleFile> found,
                                                 const DataFormat& format,
                                                 std::span<const DataInput> inputs) {
  const DataInput& input = fed_input(format, inputs);
  const PictureInput picture(input, format);
  const auto read = [picture, name = input.name](const std::string& path) {
    const FileBytes file = read_file(path);
    return with_context([&] { return fmt::format("while reading {}", path); },
                        [&] {
                          return std::vector<SampleTensor>{{name, picture.tensor_of(file.bytes)}};
                        });
  };
  Labels labels = find_labels(folder, format);
  if (labels.path.empty() && format.labels.empty()) {
    labels.values = classes_of_folders(found, format);
    if (!labels.values.empty()) labels.path = folder;
  }
  const auto masks = open_masks(find_masks(folder, format), format);
  const auto read_mask = [masks, format](int64_t i, const SampleFile& sample) {
    const FileBytes file = read_file(sample.path);
    return with_context([&] { return fmt::format("while reading {}", sample.path); },
                        [&] {
                          const Dims size = image_size(file.bytes);
                          return shaped_mask(masks->read(i, sample.name, {&size, 1}), format);
                        });
  };
  return dataset_of_files(folder, std::move(found), labels, masks.get(), read, read_mask);
}

std::shared_ptr<const Dataset> dataset_of_tensor_sets(const std::string& folder,
                                                      std::vector<SampleFile> found,
                                                      const DataFormat& format,
                                                      std::span<const DataInput> inputs) {
  const std::vector<DataInput> wanted(inputs.begin(), inputs.end());
  return dataset_of_tensors(
      folder, std::move(found), format,
      [format, wanted](const std::string& path) { return read_tensor_set(path, format, wanted); });
}

}  // namespace anneal
