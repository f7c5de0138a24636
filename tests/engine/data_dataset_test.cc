#include "anneal/engine/data/data_keys.h"
#include "anneal/engine/data/subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "anneal/tests/engine/made_files.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const DataInput kPicture{"x", DataType::kF32, {-1, 3, 2, 2}};
const DataInput kRow{"x", DataType::kF32, {-1, 3}};

using Keys = std::map<std::string, std::string>;
std::shared_ptr<const Dataset> open(const std::string& path, const std::vector<DataInput>& inputs,
                                    const Keys& keys = {}) {
  DataFormat format = find_data_format(path);
  for (const auto& [key, value] : keys) set_data_key(format, key, value);
  return open_dataset(path, format, inputs);
}
std::string refusal(const std::string& path, const std::vector<DataInput>& inputs,
                    const Keys& keys = {}) {
  return error_of([&] {
    const auto samples = open(path, inputs, keys);
    for (int64_t i = 0; i < samples->size(); ++i) samples->read(i);
  });
}
std::vector<std::string> names_of(const Dataset& samples) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < samples.size(); ++i) names.push_back(samples.name(i));
  return names;
}
std::vector<double> values_of(const SampleTensor& sample) {
  std::vector<double> values;
  for (const float value : sample.tensor.as<float>()) values.push_back(value);
  return values;
}
Image two_by_two() {
  Image image = blank_image(2, 2, 3);
  for (size_t i = 0; i < 12; ++i) image.pixels[i] = static_cast<uint8_t>(i);
  return image;
}

TEST(ImageDataset, PicturesBecomeWhatTheInputTakes) {
  const MadeFolder folder;
  folder.write("a.png", png_of(two_by_two()));
  const auto read = [&](DataInput input, const Keys& keys = {}) {
    return open(folder.path(), {input}, keys)->read(0)[0];
  };
  const SampleTensor planes = read(kPicture);
  EXPECT_EQ(planes.input, "x");
  EXPECT_EQ(planes.tensor.dims(), (Dims{1, 3, 2, 2}));
  EXPECT_THAT(values_of(planes), ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
  EXPECT_THAT(values_of(read({"x", DataType::kF32, {1, 2, 2, 3}})),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(values_of(read(kPicture, {{"channels", "bgr"}, {"mean", "10,20,30"}})),
              ElementsAre(-8, -5, -2, 1, -19, -16, -13, -10, -30, -27, -24, -21));
  EXPECT_THAT(values_of(read(kPicture,
                             {{"scale", "2"}, {"mean", "1"}, {"std", "4"}, {"offset", "0.5"}}))[1],
              (3 * 2.0 - 1) / 4 + 0.5);
  EXPECT_EQ(read({"x", DataType::kF32, {-1, 1, -1, -1}}).tensor.dims(), (Dims{1, 1, 2, 2}));
  EXPECT_EQ(read({"x", DataType::kF32, {-1, 2, 2}}).tensor.dims(), (Dims{1, 2, 2}));
  EXPECT_EQ(read({"x", DataType::kF32, {-1, 4}}).tensor.dims(), (Dims{1, 4}));
  EXPECT_EQ(read({"x", DataType::kI8, {1, 3, 2, 2}}, {{"offset", "-128"}}).tensor.as<int8_t>()[1],
            -125);
  EXPECT_EQ(read({"x", DataType::kF32, {1, 3, 5, 7}}, {{"resize", "5x7"}}).tensor.dims(),
            (Dims{1, 3, 5, 7}));
}

TEST(ImageDataset, WhatDoesNotFitIsNamedWithTheRemedy) {
  const MadeFolder folder;
  folder.write("sub/a.png", png_of(two_by_two()));
  const auto says = [&](const Dims& dims, const Keys& keys, const std::string& text) {
    EXPECT_THAT(refusal(folder.path(), {{"x", DataType::kF32, dims}}, keys), HasSubstr(text));
  };
  says({1, 3, 4, 4}, {}, "a.png: the picture is 2 x 2");
  says({1, 3, 4, 4}, {{"crop", "4"}}, "smaller than the crop");
  says({1, 3, 4, 3}, {}, "say layout nchw or layout nhwc");
  says({1, 5, 4, 4}, {}, "leaves open which axis");
  says({1, 5, 4, 4}, {{"layout", "nchw"}}, "5 channels");
  says({1, 3, 2, 2}, {{"channels", "grey"}}, "grey");
  says({1, 3, 2, 2}, {{"mean", "1,2"}}, "mean has 2 numbers for 3 channels");
  says({1, 3, 2, 2, 2}, {}, "takes no pictures");
  EXPECT_THAT(refusal(folder.path(), {{"x", DataType::kI8, {1, 3, 2, 2}}}, {{"scale", "90"}}),
              HasSubstr("does not fit the input's type i8"));
  EXPECT_THAT(refusal(folder.path(), {kPicture, kRow}), HasSubstr("the network has the inputs"));
  EXPECT_THAT(refusal(folder.path(), {kPicture}, {{"input", "y"}}), HasSubstr("no input \"y\""));
  folder.write("sub/b.jpg", "\xff\xd8 not a picture");
  EXPECT_THAT(refusal(folder.path(), {kPicture}), HasSubstr("b.jpg: JPEG: "));
  folder.write("sub/c.webp", "RIFF");
  EXPECT_THAT(refusal(folder.path(), {kPicture}), HasSubstr("c.webp is a picture of a format"));
}

TEST(ImageDataset, LabelsComeFromTheTableOrTheFolders) {
  const MadeFolder folder;
  const std::string png = png_of(two_by_two());
  for (const char* name : {"dog/1.png", "dog/2.PNG", "cat/1.png"}) folder.write(name, png);
  const auto by_folder = open(folder.path(), {kPicture});
  EXPECT_THAT(names_of(*by_folder), ElementsAre("cat/1.png", "dog/1.png", "dog/2.PNG"));
  EXPECT_EQ(by_folder->label(0), 0);
  EXPECT_EQ(by_folder->label(2), 1);
  EXPECT_FALSE(open(folder.path(), {kPicture}, {{"labels", "none"}})->label(0));

  folder.write("labels.csv",
               "name,file,class_index,other\n\"a, b\",dog/2.PNG,7,1\nc,cat/1.png,2,5\n");
  const auto listed = open(folder.path(), {kPicture}, {{"label_offset", "1"}});
  EXPECT_THAT(names_of(*listed), ElementsAre("dog/2.PNG", "cat/1.png"));
  EXPECT_EQ(listed->label(0), 8);
  EXPECT_EQ(open(folder.path(), {kPicture}, {{"label_column", "other"}})->label(1), 5);

  const auto says = [&](const std::string& csv, const std::string& text) {
    folder.write("labels.csv", csv);
    EXPECT_THAT(refusal(folder.path(), {kPicture}), HasSubstr(text));
  };
  says("file,label\ncat/1.png,1\n", "no column \"class_index\", only file, label");
  says("file,class_index\ncat/9.png,1\n", "lists \"cat/9.png\", which is not there");
  says("file,class_index\ncat/1.png,1\ncat/1.png,1\n", "twice");
  says("file,class_index\ncat/1.png,cat\n", "row 1: \"cat\" is no whole number");
  says("file,class_index\ncat/1.png,-1\n", "label -1");
  says("file,class_index\n", "0 labels, the data 3 samples");
  says("class_index\n1\n2\n", "2 labels, the data 3 samples");
  says("row,class_index\n1,1\n1,2\n0,3\n", "does not count the 3 samples");
  says("", "labels.csv: it is empty");
}

TEST(ArrayDataset, RowsOfEveryFormatAreTheSame) {
  const MadeFolder folder;
  const std::string data("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0", 24);
  const std::string idx = std::string("\0\0\x0c\2\0\0\0\2\0\0\0\3", 12) +
                          std::string("\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6", 24);
  const std::string npy = npy_bytes("<i4", "2,3", data);
  const Keys raw = {{"dtype", "i32"}, {"shape", "3"}};
  const std::pair<std::string, Keys> files[] = {
      {folder.write("a.npy", npy), {}},
      {folder.write("a.npy.gz", gzip_of(npy)), {}},
      {folder.write("a.npz", zip_of({{"any.npy", npy}}, true)), {}},
      {folder.write("a.idx", idx), {}},
      {folder.write("a-idx2-ubyte.gz", gzip_of(idx)), {}},
      {folder.write("a.bin", data), raw},
      {folder.write("b.bin.gz", gzip_of(data)), raw},
      {folder.path(), {{"file", "a.npy"}}}};
  folder.write("labels.csv", "row,class_index\n1,5\n0,4\n");
  for (const auto& [path, keys] : files) {
    const auto samples = open(path, {kRow}, keys);
    ASSERT_EQ(samples->size(), 2) << path;
    EXPECT_THAT(names_of(*samples), ElementsAre("0", "1"));
    EXPECT_EQ(samples->label(0), 4);
    EXPECT_EQ(samples->label(1), 5);
    EXPECT_EQ(samples->read(1)[0].tensor.dims(), (Dims{1, 3}));
    EXPECT_THAT(values_of(samples->read(1)[0]), ElementsAre(4, 5, 6)) << path;
  }
  // Whole numbers of the input's own type are the mapped file's memory.
  const auto same = open(folder.path("a.bin"), {{"x", DataType::kI32, {-1, 3}}}, raw);
  EXPECT_EQ(same->read(0)[0].tensor.bytes().data(), same->read(0)[0].tensor.bytes().data());
}

TEST(ArrayDataset, AnArchiveFeedsEveryInputAndHasLabels) {
  const MadeFolder folder;
  const std::string path =
      folder.write("a.npz", zip_of({{"x.npy", npy_bytes("|u1", "2,3", "abcdef")},
                                    {"length.npy", npy_bytes("|u1", "2,", "\3\4")},
                                    {"class_index.npy", npy_bytes("|u1", "2,", "\5\6")}},
                                   false));
  const DataInput length{"length", DataType::kI64, {}};
  const auto samples = open(path, {kRow, length}, {{"label_offset", "1"}});
  EXPECT_EQ(samples->label(1), 7);
  const auto read = samples->read(1);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].tensor.dims(), Dims{});
  EXPECT_EQ(read[1].tensor.as<int64_t>()[0], 4);
  EXPECT_THAT(refusal(path, {kRow}), HasSubstr("\"length\" is for no input"));
  EXPECT_THAT(refusal(path, {kRow, {"y", DataType::kF32, {1}}}),
              HasSubstr("no array for the input \"y\""));
  EXPECT_EQ(open(path, {kRow, length, {"y", DataType::kF32, {1}, true}})->read(0).size(), 2u);
  const std::string rows = folder.write("a.npy", npy_bytes("|u1", "2,3", "abcdef"));
  EXPECT_EQ(open(rows, {kRow, {"y", DataType::kF32, {1}, true}})->read(0)[0].input, "x");
}

TEST(ArrayDataset, PicturesAreTurnedToTheInputsLayout) {
  const MadeFolder folder;
  const std::string path = folder.write("a.bin", std::string("\0\1\2\3\4\5\6\7\10\11\12\13", 12));
  const Keys raw = {{"dtype", "u8"}, {"shape", "2x2x3"}};
  const auto read = [&](const DataInput& input, Keys more) {
    more.insert(raw.begin(), raw.end());
    return values_of(open(path, {input}, more)->read(0)[0]);
  };
  EXPECT_THAT(read(kPicture, {}), ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
  EXPECT_THAT(read(kPicture, {{"channels", "bgr"}, {"offset", "10,20,30"}}),
              ElementsAre(12, 15, 18, 21, 21, 24, 27, 30, 30, 33, 36, 39));
  EXPECT_THAT(read({"x", DataType::kF32, {-1, 2, 2, 3}}, {}),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(read({"x", DataType::kF32, {-1, 12}}, {}).size(), 12);
  const DataInput open_sides{"x", DataType::kF32, {-1, -1, -1, -1}};
  EXPECT_THAT(error_of([&] {
                read(open_sides, {{"data_layout", "hwc"}});
              }),
              HasSubstr("layout nchw"));
  EXPECT_EQ(read(open_sides, {{"data_layout", "hwc"}, {"layout", "nchw"}})[1], 3);
}

TEST(ArrayDataset, WrongSizesAndTypesAreNamed) {
  const MadeFolder folder;
  const std::string path = folder.write("a.bin", "abcdefg");
  const std::string floats = folder.write("f.npy", npy_bytes("<f4", "1,3", std::string(12, '\0')));
  EXPECT_THAT(refusal(path, {kRow}), HasSubstr("say with dtype and shape"));
  EXPECT_THAT(refusal(path, {kRow}, {{"dtype", "u8"}, {"shape", "3"}}), HasSubstr("7 bytes"));
  EXPECT_THAT(refusal(path, {kRow}, {{"dtype", "u8"}, {"shape", "7"}}),
              HasSubstr("[7] does not fit the input"));
  // Fields that texts cannot set.
  const std::vector<DataInput> rows = {kRow};
  for (const auto& [dtype, shape] :
       {std::pair(DataType::kU8, Dims{0, 7}), std::pair(DataType::kString, Dims{7})}) {
    DataFormat format;
    format.dtype = dtype;
    format.shape = shape;
    EXPECT_THAT(error_of([&] { open_dataset(path, format, rows); }),
                HasSubstr("give numbers, of sizes from 1 on"));
  }
  EXPECT_THAT(refusal(floats, {{"x", DataType::kI64, {-1, 3}}}), HasSubstr("takes whole numbers"));
  EXPECT_THAT(
      refusal(folder.write("n.npy", npy_bytes("<i2", "1,3", std::string("\0\1\0\0\0\0", 6))),
              {{"x", DataType::kU8, {-1, 3}}}),
      HasSubstr("the value 256 does not fit"));
  EXPECT_THAT(refusal(folder.write("e.npy", npy_bytes("|u1", "0,3", "")), {kRow}),
              HasSubstr("no samples"));
  EXPECT_THAT(refusal(folder.path("none"), {kRow}), HasSubstr("no folder or file of data"));
  EXPECT_THAT(refusal(floats, {}), HasSubstr("no input"));
  const MadeFolder empty;
  EXPECT_THAT(refusal(empty.path(), {kRow}), HasSubstr("holds no samples"));
}

TEST(FileDataset, FoldersOfArraysAndTensors) {
  const MadeFolder folder;
  folder.write("b.npy", npy_bytes("|u1", "3,", "\4\5\6"));
  folder.write("a.npy", npy_bytes("|u1", "1,3", "\1\2\3"));
  const auto arrays = open(folder.path(), {kRow});
  EXPECT_THAT(names_of(*arrays), ElementsAre("a.npy", "b.npy"));
  EXPECT_THAT(values_of(arrays->read(1)[0]), ElementsAre(4, 5, 6));

  const MadeFolder sets;
  // A TensorProto: dims 1 and 3, data_type UINT8 (2), name, raw_data.
  const auto proto = [](const std::string& name, const std::string& data) {
    return std::string("\x08\1\x08\3\x10\2\x42", 7) + static_cast<char>(name.size()) + name +
           "\x4a\3" + data;
  };
  for (const int i : {10, 2})
    sets.write("test_data_set_" + std::to_string(i) + "/input_0.pb",
               proto("x", {static_cast<char>(i), 1, 1}));
  sets.write("test_data_set_2/output_0.pb", proto("y", "abc"));
  const auto samples = open(sets.path(), {kRow});
  EXPECT_THAT(names_of(*samples), ElementsAre("test_data_set_2", "test_data_set_10"));
  EXPECT_THAT(values_of(samples->read(1)[0]), ElementsAre(10, 1, 1));
  EXPECT_THAT(refusal(sets.path(), {kRow, {"z", DataType::kF32, {3}}}),
              HasSubstr("no tensor for the input \"z\""));
  sets.write("test_data_set_2/input_0.pb", proto("w", "abc"));
  EXPECT_THAT(refusal(sets.path(), {kRow}), HasSubstr("\"w\" is for no input"));
  sets.write("x.npy", "");
  EXPECT_THAT(refusal(sets.path(), {kRow}), HasSubstr("several kinds"));
}

TEST(Subset, DependsOnNamesAndNotOnTheirOrder) {
  const MadeFolder folder;
  std::string forwards = "file,class_index\n", backwards = forwards;
  for (int i = 0; i < 50; ++i) {
    folder.write(std::to_string(i) + ".png", png_of(two_by_two()));
    forwards += std::to_string(i) + ".png,0\n";
    backwards += std::to_string(49 - i) + ".png,0\n";
  }
  const auto pick = [&](const std::string& csv, const std::string& which) {
    folder.write("labels.csv", csv);
    const auto names = names_of(*subset(open(folder.path(), {kPicture}), which));
    return std::set<std::string>(names.begin(), names.end());
  };
  const auto drawn = pick(forwards, "hash:10"), others = pick(forwards, "holdout:10");
  EXPECT_EQ(drawn.size(), 10u);
  EXPECT_EQ(others.size(), 40u);
  for (const auto& name : drawn) EXPECT_FALSE(others.contains(name));
  EXPECT_EQ(drawn, pick(backwards, "hash:10"));
  size_t in_parts = 0;
  for (const char* part : {"part:1/5", "part:2-4/5", "part:5/5"}) {
    EXPECT_EQ(pick(forwards, part), pick(backwards, part));
    in_parts += pick(forwards, part).size();
  }
  EXPECT_EQ(in_parts, 50u);
  EXPECT_THAT(pick(forwards, "first:2"), ElementsAre("0.png", "1.png"));
  EXPECT_EQ(pick(forwards, "holdout:10,first:3").size(), 3u);
  for (const char* wrong : {"", "all", "first:0", "first:51", "drawn:x", "part:6/5", "part:3-2/5",
                            "part:2", "holdout:50"})
    EXPECT_THAT(error_of([&] { pick(forwards, wrong); }), HasSubstr("samples \"")) << wrong;
  // Splits that people wrote down must stay what they were.
  EXPECT_EQ(sample_hash(""), 0xefd01f60ba992926u);
  EXPECT_EQ(sample_hash("images/000.jpg"), 770836332971207446u);
}

}  // namespace
}  // namespace anneal
