#include "anneal/engine/data/data_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/core/files/json_keys.h"
#include "anneal/engine/data/csv.h"
#include "anneal/engine/data/inflate.h"
#include "anneal/engine/data/npz.h"
#include "anneal/tests/engine/made_files.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(DataFormat, EveryKeyIsRead) {
  const DataFormat format = parse_data_format(R"({
    "kind": "raw", "file": "a.bin", "input": "x", "dtype": "i8", "shape": [49, 10],
    "data_layout": "hwc", "labels": "l.csv", "file_column": "path", "label_column": "y",
    "label_offset": -1, "resize": 256, "filter": "bicubic", "antialias": false, "crop": "224x192",
    "channels": "bgr", "layout": "nhwc", "scale": "1/4", "mean": [1, 2.5, 3], "std": 0.5,
    "offset": "-1,0,1e2", "masks": "m", "ignore_label": 0})");
  EXPECT_EQ(format.kind, DataKind::kRaw);
  EXPECT_EQ(format.file, "a.bin");
  EXPECT_EQ(format.input, "x");
  EXPECT_EQ(format.dtype, DataType::kI8);
  EXPECT_EQ(format.shape, (Dims{49, 10}));
  EXPECT_EQ(format.data_layout, ImageLayout::kChannelsLast);
  EXPECT_EQ(format.labels, "l.csv");
  EXPECT_EQ(format.file_column, "path");
  EXPECT_EQ(format.label_column, "y");
  EXPECT_EQ(format.label_offset, -1);
  EXPECT_EQ(format.masks, "m");
  EXPECT_EQ(format.ignore_label, 0);
  EXPECT_EQ(format.resize_shorter, 256);
  EXPECT_EQ(format.filter, ResizeFilter::kBicubic);
  EXPECT_FALSE(format.antialias);
  EXPECT_EQ(format.crop, (Dims{224, 192}));
  EXPECT_EQ(format.channels, ChannelOrder::kBgr);
  EXPECT_EQ(format.layout, ImageLayout::kChannelsLast);
  EXPECT_THAT(format.scale, ElementsAre(0.25));
  EXPECT_THAT(format.mean, ElementsAre(1, 2.5, 3));
  EXPECT_THAT(format.std, ElementsAre(0.5));
  EXPECT_THAT(format.offset, ElementsAre(-1, 0, 100));
  DataFormat later = format;
  set_data_key(later, "resize", "100x200");
  EXPECT_FALSE(later.resize_shorter);
  EXPECT_EQ(later.resize_exact, (Dims{100, 200}));
}

TEST(DataFormat, WhatIsWrongIsNamed) {
  const struct {
    std::string json, says;
  } cases[] = {
      {"", "no JSON"},
      {"[1]", "no JSON object"},
      {R"({"resise": 1})", "no key \"resise\""},
      {R"({"kind": "movies"})", "kind: \"movies\" is none of auto, images"},
      {R"({"dtype": "complex"})", "dtype: \"complex\""},
      {R"({"shape": [0, 3]})", "size below 1"},
      {R"({"shape": [99999999, 99999999]})", "too large"},
      {R"({"shape": [1,1,1,1,1,1,1,1,1]})", "too many axes"},
      {R"({"resize": -5})", "resize: "},
      {R"({"resize": "1x2x3"})", "no size of a picture"},
      {R"({"crop": 99999})", "no size of a picture"},
      {R"({"antialias": "perhaps"})", "not true or false"},
      {R"({"mean": "1,,2"})", "mean: \"\" is no number"},
      {R"({"mean": "nan"})", "mean: \"nan\" is no number"},
      {R"({"scale": "1/0"})", "divides by 0"},
      {R"({"std": [1, 0]})", "divides by 0"},
      {R"({"mean": [[1]]})", "list within a list"},
      {R"({"label_offset": 0.5})", "no whole number"},
  };
  for (const auto& [json, says] : cases)
    EXPECT_THAT(error_of([&] { parse_data_format(json); }), HasSubstr(says)) << json;
}

TEST(Csv, FieldsAreThoseOfRfc4180) {
  const Csv csv = parse_csv(
      "\xef\xbb\xbf"
      "a,b\r\n1,\"x, \"\"y\"\"\"\r\n\n\"\",\"two\nlines\"\nlast,");
  EXPECT_THAT(csv.header, ElementsAre("a", "b"));
  EXPECT_THAT(csv.rows, ElementsAre(ElementsAre("1", "x, \"y\""), ElementsAre("", "two\nlines"),
                                    ElementsAre("last", "")));
  EXPECT_EQ(csv.column("b"), 1u);
  EXPECT_FALSE(csv.column("c"));
  const struct {
    std::string text, says;
  } cases[] = {{"", "empty"},
               {"\n\n", "empty"},
               {"a,b\n1,2\n3\n", "line 3: 1 fields under 2"},
               {"a\n\"x", "line 2: a quoted field does not end"},
               {"a\n\"x\"y\n", "line 2: text follows"}};
  for (const auto& [text, says] : cases)
    EXPECT_THAT(error_of([&] { parse_csv(text); }), HasSubstr(says)) << text;
}

TEST(Npz, StoredAndDeflatedMembersAreRead) {
  const std::string x = npy_bytes("<i4", "2,", std::string("\1\0\0\0\2\0\0\0", 8));
  const std::string y = npy_bytes("|u1", "3,", "abc");
  for (const bool deflate : {false, true}) {
    const std::string zip = zip_of({{"x.npy", x}, {"y.npy", y}}, deflate);
    const auto arrays = read_npz(bytes_of(zip));
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_EQ(arrays[0].name, "x");
    EXPECT_EQ(arrays[0].array, Tensor::of<int32_t>(DataType::kI32, {2}, std::vector{1, 2}));
    EXPECT_EQ(arrays[1].array.dims(), (Dims{3}));
    // Every file that is cut off, and every damaged byte, is an error or the same arrays.
    for (size_t size = 0; size < zip.size(); ++size)
      EXPECT_THAT(error_of([&] { read_npz(bytes_of(zip.substr(0, size))); }),
                  HasSubstr("invalid_argument"))
          << size;
    for (size_t at = 0; at < zip.size(); ++at) {
      std::string damaged = zip;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
      const std::string error = error_of([&] { read_npz(bytes_of(damaged)); });
      EXPECT_TRUE(error.empty() || error.starts_with("invalid_argument")) << error;
    }
  }
  EXPECT_THAT(error_of([&] {
                read_npz(bytes_of(zip_of({{"x.txt", x}}, false)));
              }),
              HasSubstr("\"x.txt\" is no .npy"));
  EXPECT_THAT(error_of([] { read_npz(bytes_of(zip_of({}, false))); }), HasSubstr("no arrays"));
}

TEST(Gunzip, GivesAllMembersAndRefusesDamage) {
  const std::string text(300'000, 'a'), packed = gzip_of(text) + gzip_of("b");
  const auto unpacked = gunzip(bytes_of(packed));
  EXPECT_EQ(unpacked.size(), text.size() + 1);
  EXPECT_EQ(static_cast<char>(unpacked.back()), 'b');
  EXPECT_THAT(error_of([&] { gunzip(bytes_of(packed), 1000); }), HasSubstr("more than 1000"));
  const std::string one = gzip_of("some text that is packed");
  for (size_t size = 0; size < one.size(); ++size)
    EXPECT_THAT(error_of([&] { gunzip(bytes_of(one.substr(0, size))); }),
                HasSubstr("compressed data"));
  EXPECT_THAT(error_of([&] { inflate_raw(bytes_of(one), size_t{1} << 40); }),
              HasSubstr("more than it can"));
}

// Objects are searched key by key: a file of some megabytes would take minutes.
TEST(DataFormat, ManyKeysAreRefusedBeforeTheyAreRead) {
  std::string many = "{";
  for (int i = 0; i < 10'001; ++i) many += "\"k\\\"{" + std::to_string(i) + "\": 1,";
  many += "\"end\": 1}";
  EXPECT_THAT(error_of([&] { parse_data_format(many); }),
              HasSubstr("an object of the JSON has more than 10000 keys"));
  EXPECT_NO_THROW(
      require_few_keys("{\"a\": [" + std::string(20'000, ' ') + "{\"b\": \":::\"}]}}}"));
  std::string small_objects = "[";
  for (int i = 0; i < 20'000; ++i) small_objects += "{\"a\": 1},";
  EXPECT_NO_THROW(require_few_keys(small_objects));
}

}  // namespace
}  // namespace anneal
