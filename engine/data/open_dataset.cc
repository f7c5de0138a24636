// Finds the kind of a path: a folder of images, of arrays, of tensors; a file of rows; one sample.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "anneal/core/fail.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/data/file_samples.h"
#include "anneal/engine/data/image.h"
#include "anneal/engine/data/masks.h"
#include "anneal/engine/data/row_samples.h"
#include "anneal/engine/data/sample_file.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

struct Contents {
  std::vector<SampleFile> images, arrays, tensors, sets, raw;
  std::string foreign_image;
};

void sort_by_name(std::vector<SampleFile>& files) {
  std::sort(files.begin(), files.end(),
            [](const SampleFile& a, const SampleFile& b) { return a.name < b.name; });
}

// test_data_set_2 before test_data_set_10.
void sort_by_number(std::vector<SampleFile>& sets) {
  sort_by_name(sets);
  std::stable_sort(sets.begin(), sets.end(), [](const SampleFile& a, const SampleFile& b) {
    return a.name.size() < b.name.size();
  });
}

// Without the files in the folder of masks.
Contents contents_of(const std::string& folder, const std::string& masks) {
  Contents found;
  std::error_code error;
  fs::recursive_directory_iterator each(folder, error), end;
  for (; !error && each != end; each.increment(error)) {
    std::error_code ignored;
    if (!masks.empty() && fs::equivalent(each->path(), masks, ignored)) {
      each.disable_recursion_pending();
      continue;
    }
    if (!each->is_regular_file(ignored)) continue;
    const fs::path& path = each->path();
    const std::string file = path.filename().string();
    const SampleFile sample{path.lexically_relative(folder).generic_string(), path.string()};
    if (has_image_name(file)) {
      found.images.push_back(sample);
    } else if (has_foreign_image_name(file)) {
      if (found.foreign_image.empty()) found.foreign_image = sample.path;
    } else if (file == "input_0.pb") {
      const fs::path set = path.parent_path();
      found.sets.push_back({set.lexically_relative(folder).generic_string(), set.string()});
    } else if (file.ends_with(".pb") && !file.starts_with("input_") &&
               !file.starts_with("output_")) {
      found.tensors.push_back(sample);
    } else if (file.ends_with(".npy")) {
      found.arrays.push_back(sample);
    } else if (file != "dataset.json" && !file.ends_with(".csv") && !file.ends_with(".pb")) {
      found.raw.push_back(sample);
    }
  }
  if (error) fail(ErrorCode::kIo, fmt::format("cannot list {}: {}", folder, error.message()));
  for (auto* files : {&found.images, &found.arrays, &found.tensors, &found.raw})
    sort_by_name(*files);
  sort_by_number(found.sets);
  return found;
}

DataKind kind_of(const std::string& folder, const Contents& found, const DataFormat& format) {
  if (format.kind != DataKind::kAuto) return format.kind;
  const std::pair<bool, DataKind> kinds[] = {
      {!found.images.empty() || !found.foreign_image.empty(), DataKind::kImages},
      {!found.arrays.empty(), DataKind::kArrays},
      {!found.sets.empty() || !found.tensors.empty(), DataKind::kTensors}};
  const auto count =
      std::count_if(std::begin(kinds), std::end(kinds), [](const auto& row) { return row.first; });
  if (count > 1)
    refuse_argument(fmt::format(
        "{} holds data of several kinds; select one with kind: images, arrays or tensors", folder));
  if (count == 0)
    refuse_argument(
        fmt::format("{} holds no samples: no images (JPEG, PNG), no arrays (.npy) and no tensors "
                    "(input_0.pb); to read a single file of this folder, name it with --file "
                    "(\"file\" in dataset.json)",
                    folder));
  return std::find_if(std::begin(kinds), std::end(kinds), [](const auto& row) { return row.first; })
      ->second;
}

std::shared_ptr<const Dataset> open_folder(const std::string& folder, const DataFormat& format,
                                           std::span<const DataInput> inputs) {
  const std::string masks = find_masks(folder, format);
  std::error_code ignored;
  if (!masks.empty() && fs::equivalent(folder, masks, ignored))
    refuse_argument(fmt::format(
        "{} is both the folder of samples and that of masks; masks need their own folder", folder));
  Contents found = contents_of(folder, masks);
  switch (kind_of(folder, found, format)) {
    case DataKind::kImages:
      if (!found.foreign_image.empty())
        refuse_argument(
            fmt::format("{} is a picture of a format that is not read; convert it to JPEG or PNG",
                        found.foreign_image));
      return dataset_of_images(folder, std::move(found.images), format, inputs);
    case DataKind::kTensors:
      if (!found.sets.empty())
        return dataset_of_tensor_sets(folder, std::move(found.sets), format, inputs);
      return dataset_of_array_files(folder, std::move(found.tensors), format, inputs);
    case DataKind::kRaw:
      if (!format.dtype || !format.shape)
        refuse_argument(
            fmt::format("say with dtype and shape what each raw file in {} holds", folder));
      return dataset_of_array_files(folder, std::move(found.raw), format, inputs);
    default:
      return dataset_of_array_files(folder, std::move(found.arrays), format, inputs);
  }
}

std::shared_ptr<const Dataset> open_file(const std::string& path, const DataFormat& format,
                                         std::span<const DataInput> inputs) {
  const std::string folder = fs::path(path).parent_path().string();
  const std::vector<SampleFile> one = {{fs::path(path).filename().string(), path}};
  const bool by_name = format.kind == DataKind::kAuto;
  if (format.kind == DataKind::kImages || (by_name && has_image_name(path)))
    return dataset_of_images(folder, one, format, inputs);
  if (by_name && has_foreign_image_name(path))
    refuse_argument(fmt::format(
        "{} is a picture of a format that is not read; convert it to JPEG or PNG", path));
  if (format.kind == DataKind::kTensors || (by_name && path.ends_with(".pb")))
    return dataset_of_array_files(folder, one, format, inputs);
  return dataset_of_rows(folder, path, format, inputs);
}

// What an application calls.
class EntryDataset final : public Dataset {
 public:
  explicit EntryDataset(std::shared_ptr<const Dataset> samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return samples_->size(); }
  std::vector<SampleTensor> read(int64_t i) const override {
    return at_entry([&] { return samples_->read(i); });
  }
  std::string name(int64_t i) const override {
    return at_entry([&] { return samples_->name(i); });
  }
  std::optional<int64_t> label(int64_t i) const override {
    return at_entry([&] { return samples_->label(i); });
  }
  std::optional<Tensor> mask(int64_t i) const override {
    return at_entry([&] { return samples_->mask(i); });
  }

 private:
  std::shared_ptr<const Dataset> samples_;
};

std::shared_ptr<const Dataset> open_files(const std::string& path, const DataFormat& format,
                                          std::span<const DataInput> inputs) {
  if (inputs.empty()) refuse_argument("the network has no input that takes data");
  std::error_code ignored;
  fs::path at = path;
  if (at.extension() == ".json") at = at.has_parent_path() ? at.parent_path() : fs::path(".");
  if (!format.file.empty() && fs::is_directory(at, ignored)) at /= format.file;
  if (fs::is_directory(at, ignored)) return open_folder(at.string(), format, inputs);
  if (!fs::exists(at, ignored))
    fail(ErrorCode::kIo, fmt::format("there is no folder or file of data {}", at.string()));
  return open_file(at.string(), format, inputs);
}

}  // namespace

std::shared_ptr<const Dataset> open_dataset(const std::string& path, const DataFormat& format,
                                            std::span<const DataInput> inputs) {
  return at_entry(
      [&] { return std::make_shared<const EntryDataset>(open_files(path, format, inputs)); });
}

}  // namespace anneal
