// The format of data and its conversion to network inputs: docs/data.md lists every key.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/dims.h"
#include "anneal/core/tensor.h"

namespace anneal {

enum class DataKind : uint8_t { kAuto, kImages, kArrays, kTensors, kRaw };  // of the files
enum class ResizeFilter : uint8_t { kBilinear, kBicubic, kNearest };        // of pictures
enum class ChannelOrder : uint8_t { kRgb, kBgr, kGrey };             // of the network's input
enum class ImageLayout : uint8_t { kChannelsFirst, kChannelsLast };  // [C,H,W], [H,W,C]

struct DataFormat {
  DataKind kind = DataKind::kAuto;         // kAuto: by the files' names
  std::string file;                        // in the folder: the file that holds the data
  std::string input;                       // the network's input; empty: its only one
  std::optional<DataType> dtype;           // of raw files
  std::optional<Dims> shape;               // of a sample in a raw file, without the batch
  std::optional<ImageLayout> data_layout;  // of arrays and raw files that hold pictures

  std::string labels;  // file; "none"; empty: labels.csv if present
  std::string file_column = "file", label_column = "class_index";
  int64_t label_offset = 0;  // added to every label, and to every class in a mask

  // Folder or file of masks, or an array in the .npz of the data; "none", or empty: there are none.
  std::string masks;
  std::optional<int64_t> ignore_label = 255;  // class of pixels that are not counted

  std::optional<int64_t> resize_shorter;  // side in pixels; the aspect ratio is kept
  std::optional<Dims> resize_exact;       // {height, width}
  ResizeFilter filter = ResizeFilter::kBilinear;
  bool antialias = true;     // as Pillow and torchvision do
  std::optional<Dims> crop;  // {height, width}, of the centre
  std::optional<ChannelOrder> channels;
  std::optional<ImageLayout> layout;  // of the input; unset: by its shape

  // x = (value * scale - mean) / std + offset; one number, or one per channel; empty: 1, 0, 1, 0.
  std::vector<double> scale, mean, std, offset;
};

// Parses a JSON object. Fails with kInvalidArgument, naming the key.
DataFormat parse_data_format(std::string_view text);
// Reads the dataset.json in the folder, or beside the file; without one, the defaults.
DataFormat find_data_format(const std::string& path);

}  // namespace anneal
