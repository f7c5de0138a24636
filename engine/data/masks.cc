#include "anneal/engine/data/masks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/file.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/data/image.h"
#include "anneal/engine/data/npz.h"
#include "anneal/engine/data/sample_file.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtensions[] = {".png", ".npy"};

Tensor read_file_of_masks(const std::string& path) {
  if (path.ends_with(".npz")) {
    const FileBytes file = read_file(path);
    return with_context(
        [&] { return fmt::format("while reading {}", path); },
        [&] {
          auto arrays = read_npz(file.bytes);
          if (arrays.size() != 1)
            refuse_argument(fmt::format("it holds {} arrays; save the masks alone", arrays.size()));
          return arrays[0].array;
        });
  }
  if (!has_image_name(path)) return read_sample(path, {});
  const FileBytes file = read_file(path);
  return with_context([&] { return fmt::format("while reading {}", path); },
                      [&] {
                        if (!path.ends_with(".png") && !path.ends_with(".PNG"))
                          refuse_argument("JPEG changes the numbers of pixels; save masks as PNG");
                        return decode_png_indices(file.bytes);
                      });
}

// {height, width}: dims without axes of size 1 in front and behind, from `first` on.
Dims sides_of(const Dims& dims, int first) {
  int last = dims.rank();
  while (last - first > 2 && dims[first] == 1) ++first;
  while (last - first > 2 && dims[last - 1] == 1) --last;
  if (last - first != 2) return {};
  return {dims[first], dims[first + 1]};
}

bool are_classes(const Tensor& array) {
  return is_integer(array.dtype()) || array.dtype() == DataType::kBool;
}

bool has_sides(const Dims& size, const Dims& sides) {
  for (int axis = 0; axis + 1 < size.rank(); ++axis)
    if (size[axis] == sides[0] && size[axis + 1] == sides[1]) return true;
  return false;
}

// For consecutive elements.
Tensor classes_of(DataType dtype, std::span<const std::byte> elements, const Dims& sides,
                  const DataFormat& format) {
  auto made = allocate_tensor(DataType::kI32, sides);
  auto* classes = reinterpret_cast<int32_t*>(made.data.data());
  const std::byte* at = elements.data();
  for (int64_t i = 0; i < count(sides); ++i, at += size_of(dtype)) {
    const double stored = read_element(dtype, at);
    const bool is_ignored =
        format.ignore_label && stored == static_cast<double>(*format.ignore_label);
    const double value = stored + static_cast<double>(format.label_offset);
    if (!is_ignored && !(value >= 0 && value <= std::numeric_limits<int32_t>::max()))
      refuse_argument(
          fmt::format("the pixel {} and the label offset {} give no class; ignore_label says which "
                      "pixels do not count",
                      stored, format.label_offset));
    classes[i] = is_ignored ? -1 : static_cast<int32_t>(value);
  }
  return made.tensor;
}

}  // namespace

Masks::Masks(std::string folder, const DataFormat& format)
    : path_(std::move(folder)), format_(format) {}

Masks::Masks(std::string path, const Tensor& rows, const DataFormat& format)
    : path_(std::move(path)), format_(format) {
  const Dims& dims = rows.dims();
  const bool is_one = dims.rank() == 2;
  const Dims sides = sides_of(dims, is_one ? 0 : 1);
  if (!are_classes(rows) || dims.rank() < 2 || sides.rank() != 2)
    refuse_argument(
        fmt::format("{}: {}{} are no masks, which are integers [samples,height,width]: the class "
                    "of each pixel",
                    path_, to_string(rows.dtype()), to_string(dims)));
  rows_ = Tensor(rows.dtype(), {is_one ? 1 : dims[0], sides[0], sides[1]},
                 std::make_shared<Tensor>(rows), rows.bytes());
}

// Samples that are folders may have a dot in their names, and yet no extension.
fs::path Masks::path_of(const std::string& name, std::string_view extension) const {
  const fs::path path = fs::path(path_) / name;
  if (has_image_name(name) || has_array_name(name))
    return fs::path(path).replace_extension(extension);
  return path.string() + std::string(extension);
}

std::optional<std::string> Masks::file_of(const std::string& name) const {
  std::error_code ignored;
  for (const std::string_view extension : kExtensions)
    if (const fs::path path = path_of(name, extension); fs::is_regular_file(path, ignored))
      return path.string();
  return std::nullopt;
}

void Masks::check_samples(std::span<const std::string> names) const {
  const auto samples = static_cast<int64_t>(names.size());
  if (rows_ && rows_->dims()[0] != samples)
    refuse_argument(
        fmt::format("{} has {} masks, the data {} samples; say which masks belong to it with "
                    "masks PATH, or masks none",
                    path_, rows_->dims()[0], samples));
  for (const std::string& name : names)
    if (!rows_ && !file_of(name))
      fail(ErrorCode::kIo,
           fmt::format("the sample \"{}\" has no mask: there is no {}, nor one with {}; add it, or "
                       "take the sample out of the data",
                       name, path_of(name, kExtensions[0]).string(), kExtensions[1]));
}

Tensor Masks::read(int64_t i, const std::string& name, std::span<const Dims> sizes) const {
  const auto checked = [&](DataType dtype, std::span<const std::byte> elements, const Dims& sides) {
    if (std::ranges::none_of(sizes, [&](const Dims& size) { return has_sides(size, sides); })) {
      std::vector<std::string> all;
      for (const Dims& size : sizes) all.push_back(to_string(size));
      refuse_argument(
          fmt::format("the mask is {} x {} (height x width) and the sample \"{}\" {}; a mask has "
                      "the size that its sample has in the data, before resize and crop",
                      sides[0], sides[1], name, fmt::join(all, ", ")));
    }
    return classes_of(dtype, elements, sides, format_);
  };
  if (rows_) {
    const Dims sides = {rows_->dims()[1], rows_->dims()[2]};
    const size_t bytes = static_cast<size_t>(count(sides)) * size_of(rows_->dtype());
    return with_context([&] { return fmt::format("in {}, mask {}", path_, i); },
                        [&] {
                          return checked(
                              rows_->dtype(),
                              rows_->bytes().subspan(static_cast<size_t>(i) * bytes, bytes), sides);
                        });
  }
  const auto file = file_of(name);
  if (!file) check_samples({&name, 1});
  const Tensor stored = read_file_of_masks(*file);
  return with_context(
      [&] { return fmt::format("in {}", *file); },
      [&] {
        const Dims sides = sides_of(stored.dims(), 0);
        if (!are_classes(stored) || sides.rank() != 2)
          refuse_argument(fmt::format("{}{} is no mask, which is of integers [height,width]",
                                      anneal::to_string(stored.dtype()), to_string(stored.dims())));
        return checked(stored.dtype(), stored.bytes(), sides);
      });
}

std::string find_masks(const std::string& folder, const DataFormat& format) {
  if (format.masks.empty() || format.masks == "none") return {};
  std::error_code ignored;
  for (const fs::path& path : {fs::path(format.masks), fs::path(folder) / format.masks})
    if (fs::exists(path, ignored)) return path.string();
  fail(ErrorCode::kIo, fmt::format("there is no folder or file of masks {}, nor within {}",
                                   format.masks, folder.empty() ? "." : folder));
}

std::shared_ptr<const Masks> open_masks(const std::string& path, const DataFormat& format) {
  if (path.empty()) return nullptr;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return std::make_shared<Masks>(path, format);
  return std::make_shared<Masks>(path, read_file_of_masks(path), format);
}

Tensor shaped_mask(const Tensor& mask, const DataFormat& format) {
  // Along each side, the pixels that are left.
  std::vector<int64_t> sides[2];
  for (int k = 0; k < 2; ++k) {
    sides[k].resize(static_cast<size_t>(mask.dims()[k]));
    std::iota(sides[k].begin(), sides[k].end(), int64_t{0});
  }
  const auto size = [&] {
    return Dims{static_cast<int64_t>(sides[0].size()), static_cast<int64_t>(sides[1].size())};
  };
  const auto resize_to = [&](const Dims& to) {
    blank_image(to[0], to[1], 1);
    for (int k = 0; k < 2; ++k) {
      auto pixels = nearest_pixels(size()[k], to[k]);
      for (int64_t& pixel : pixels) pixel = sides[k][static_cast<size_t>(pixel)];
      sides[k] = std::move(pixels);
    }
  };
  if (format.resize_exact) resize_to(*format.resize_exact);
  if (format.resize_shorter) resize_to(size_with_shorter_side(size(), *format.resize_shorter));
  if (format.crop) {
    const Dims corner = crop_corner(size(), *format.crop);
    for (int k = 0; k < 2; ++k) {
      const auto first = sides[k].begin() + corner[k];
      sides[k] = std::vector<int64_t>(first, first + (*format.crop)[k]);
    }
  }
  auto made = allocate_tensor(DataType::kI32, size());
  auto* to = reinterpret_cast<int32_t*>(made.data.data());
  for (const int64_t y : sides[0])
    for (const int64_t x : sides[1])
      *to++ = mask.as<int32_t>()[static_cast<size_t>(y * mask.dims()[1] + x)];
  return made.tensor;
}

}  // namespace anneal
