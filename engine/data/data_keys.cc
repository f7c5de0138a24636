#include "anneal/engine/data/data_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/files/json_keys.h"
#include "anneal/core/refuse.h"

namespace anneal {
namespace {

double plain_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || !std::isfinite(value))
    refuse_argument(fmt::format("\"{}\" is no number", text));
  return value;
}

// "0.5" or "1/255".
double number(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == text.npos) return plain_number(text);
  const double value = plain_number(text.substr(0, slash)) / plain_number(text.substr(slash + 1));
  if (!std::isfinite(value)) refuse_argument(fmt::format("\"{}\" divides by 0", text));
  return value;
}

std::vector<double> numbers(std::string_view text) {
  std::vector<double> values;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    values.push_back(number(text.substr(at, end - at)));
    at = end + 1;
  }
  return values;
}

std::vector<double> divisors(std::string_view text) {
  auto values = numbers(text);
  if (std::find(values.begin(), values.end(), 0.0) != values.end())
    refuse_argument("a standard deviation of 0 divides by 0");
  return values;
}

int64_t whole_number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end)
    refuse_argument(fmt::format("\"{}\" is no whole number", text));
  return value;
}

// "49x10", or "49,10" as JSON's lists arrive.
Dims sizes(std::string_view text) {
  Dims dims;
  double elements = 1;
  for (size_t at = 0; at <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find_first_of("x,", at), text.size());
    const int64_t size = whole_number(text.substr(at, end - at));
    if (size < 1) refuse_argument(fmt::format("\"{}\" has a size below 1", text));
    if (dims.rank() == kMaxRank - 1) refuse_argument(fmt::format("\"{}\" has too many axes", text));
    if ((elements *= static_cast<double>(size)) > 0x1p40)
      refuse_argument(fmt::format("\"{}\" is too large", text));
    dims.push_back(size);
    at = end + 1;
  }
  return dims;
}

constexpr int64_t kLargestSide = 1 << 15;

Dims picture_size(std::string_view text) {
  Dims dims = sizes(text);
  if (dims.rank() == 1) dims.push_back(dims[0]);
  if (dims.rank() != 2 || dims[0] > kLargestSide || dims[1] > kLargestSide)
    refuse_argument(fmt::format(
        "\"{}\" is no size of a picture, such as 224 or 240x320 (height x width)", text));
  return dims;
}

bool yes_or_no(const std::string& text) {
  if (text != "true" && text != "false")
    refuse_argument(fmt::format("\"{}\" is not true or false", text));
  return text == "true";
}

template <class T>
struct Word {
  std::string_view word;
  T value;
};
template <class T, size_t n>
T one_of(const Word<T> (&words)[n], const std::string& text) {
  std::string all;
  for (const auto& [word, value] : words) {
    if (word == text) return value;
    all += fmt::format("{}{}", all.empty() ? "" : ", ", word);
  }
  refuse_argument(fmt::format("\"{}\" is none of {}", text, all));
}

constexpr Word<DataKind> kKinds[] = {{"auto", DataKind::kAuto},
                                     {"images", DataKind::kImages},
                                     {"arrays", DataKind::kArrays},
                                     {"tensors", DataKind::kTensors},
                                     {"raw", DataKind::kRaw}};
constexpr Word<ResizeFilter> kFilters[] = {{"bilinear", ResizeFilter::kBilinear},
                                           {"bicubic", ResizeFilter::kBicubic},
                                           {"nearest", ResizeFilter::kNearest}};
constexpr Word<ChannelOrder> kOrders[] = {{"rgb", ChannelOrder::kRgb},
                                          {"bgr", ChannelOrder::kBgr},
                                          {"grey", ChannelOrder::kGrey},
                                          {"gray", ChannelOrder::kGrey}};
constexpr Word<ImageLayout> kLayouts[] = {{"nchw", ImageLayout::kChannelsFirst},
                                          {"chw", ImageLayout::kChannelsFirst},
                                          {"nhwc", ImageLayout::kChannelsLast},
                                          {"hwc", ImageLayout::kChannelsLast}};

using Format = DataFormat;
using Text = const std::string&;

void set_resize(Format& format, Text text) {
  const Dims dims = sizes(text);
  format.resize_shorter.reset();
  format.resize_exact.reset();
  const Dims checked = picture_size(text);
  if (dims.rank() == 1)
    format.resize_shorter = dims[0];
  else
    format.resize_exact = checked;
}

void set_ignore_label(Format& format, Text text) {
  format.ignore_label.reset();
  if (text != "none") format.ignore_label = whole_number(text);
}

void set_dtype(Format& format, Text text) {
  format.dtype = dtype_from_name(text);
  if (!format.dtype || *format.dtype == DataType::kString)
    refuse_argument(fmt::format("\"{}\" is no type of elements, such as u8, i32 or f32", text));
}

constexpr DataKey kKeys[] = {
    {"kind", "KIND", "images, arrays (.npy, .npz, idx), tensors (.pb), raw (default: guess)",
     [](Format& f, Text t) { f.kind = one_of(kKinds, t); }},
    {"file", "FILE", "The file in the folder that holds the data",
     [](Format& f, Text t) { f.file = t; }},
    {"input", "NAME", "The input that gets the data (default: the only one)",
     [](Format& f, Text t) { f.input = t; }},
    {"dtype", "TYPE", "Element type of a raw file: u8, i8, f32, ...", set_dtype},
    {"shape", "DIMS", "Shape of a sample in a raw file: 49x10, 32x32x3",
     [](Format& f, Text t) { f.shape = sizes(t); }},
    {"data_layout", "LAYOUT", "Layout of images in arrays and raw files: chw or hwc",
     [](Format& f, Text t) { f.data_layout = one_of(kLayouts, t); }},
    {"labels", "FILE", "Labels of the samples: .csv, idx or .npy; none: no labels",
     [](Format& f, Text t) { f.labels = t; }},
    {"file_column", "NAME", "Column of labels.csv with the file names (default: file)",
     [](Format& f, Text t) { f.file_column = t; }},
    {"label_column", "NAME", "Column, or .npz array, with the labels (default: class_index)",
     [](Format& f, Text t) { f.label_column = t; }},
    {"label_offset", "N", "Added to each label: 1 if the network has a background class",
     [](Format& f, Text t) { f.label_offset = whole_number(t); }},
    {"masks", "PATH", "Classes of the pixels: folder of .png or .npy, file, or .npz array",
     [](Format& f, Text t) { f.masks = t; }},
    {"ignore_label", "N", "Mask value of pixels that are not counted, or none (default: 255)",
     set_ignore_label},
    {"resize", "SIZE", "Resize images: 256 is the shorter side, 240x320 height and width",
     set_resize},
    {"filter", "FILTER", "Filter of --resize: bilinear, bicubic or nearest (default: bilinear)",
     [](Format& f, Text t) { f.filter = one_of(kFilters, t); }},
    {"antialias", "BOOL", "true: shrink as Pillow and torchvision; false: OpenCV (default: true)",
     [](Format& f, Text t) { f.antialias = yes_or_no(t); }},
    {"crop", "SIZE", "Crop to the centre: 224, 240x320",
     [](Format& f, Text t) { f.crop = picture_size(t); }},
    {"channels", "ORDER", "rgb, bgr or grey (default: by the input's shape, else rgb)",
     [](Format& f, Text t) { f.channels = one_of(kOrders, t); }},
    {"layout", "LAYOUT", "Layout of the input: nchw or nhwc (default: by its shape)",
     [](Format& f, Text t) { f.layout = one_of(kLayouts, t); }},
    {"scale", "NUMBERS", "Multiply by this number, or one per channel: 1/255",
     [](Format& f, Text t) { f.scale = numbers(t); }},
    {"mean", "NUMBERS", "Then subtract this", [](Format& f, Text t) { f.mean = numbers(t); }},
    {"std", "NUMBERS", "Then divide by this", [](Format& f, Text t) { f.std = divisors(t); }},
    {"offset", "NUMBERS", "Then add this", [](Format& f, Text t) { f.offset = numbers(t); }},
};

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  for (const Json& one : value) {
    if (one.is_structured()) refuse_argument("a list within a list is not allowed");
    text += (text.empty() ? "" : ",") + text_of(one);
  }
  return text;
}

}  // namespace

std::span<const DataKey> data_keys() { return kKeys; }

void set_data_key(DataFormat& format, std::string_view key, const std::string& text) {
  const auto* found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](auto& row) { return row.name == key; });
  if (found == std::end(kKeys)) {
    std::string all;
    for (const DataKey& row : kKeys) all += fmt::format("{}{}", all.empty() ? "" : ", ", row.name);
    refuse_argument(fmt::format("there is no key \"{}\"; there are {}", key, all));
  }
  with_context([&] { return fmt::format("{}", key); }, [&] { found->set(format, text); });
}

DataFormat parse_data_format(std::string_view text) {
  return at_entry([&]() -> DataFormat {
    require_few_keys(text);
    Json json;
    try {
      json = Json::parse(text);
    } catch (const Json::exception& error) {
      refuse_argument(fmt::format("it is no JSON: {}", error.what()));
    }
    if (!json.is_object()) refuse_argument("it is no JSON object, such as {\"resize\": 256}");
    DataFormat format;
    for (const auto& [key, value] : json.items()) set_data_key(format, key, text_of(value));
    return format;
  });
}

DataFormat find_data_format(const std::string& path) {
  return at_entry([&]() -> DataFormat {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path folder =
        fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
    const std::string json = (folder / "dataset.json").string();
    if (!fs::exists(json, ignored)) return {};
    const FileBytes file = read_file(json);
    DataFormat format =
        with_context([&] { return fmt::format("while reading {}", json); },
                     [&] {
                       return parse_data_format(
                           {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
                     });
    // Names in it are relative to its folder, not to the current folder.
    for (std::string* name : {&format.labels, &format.masks})
      if (!name->empty() && fs::exists(folder / *name, ignored)) *name = (folder / *name).string();
    return format;
  });
}

}  // namespace anneal
