// Masks beside samples: the forms they come in, and that they follow their pictures.
#include "anneal/engine/data/masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "anneal/engine/data/data_keys.h"
#include "anneal/engine/data/image.h"
#include "anneal/engine/data/subset.h"
#include "anneal/tests/engine/made_files.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const DataInput kPicture{"x", DataType::kF32, {-1, 3, -1, -1}};
const DataInput kRow{"x", DataType::kF32, {-1, 1, 2, 2}};

using Keys = std::map<std::string, std::string>;
std::shared_ptr<const Dataset> open(const std::string& path, const DataInput& input,
                                    const Keys& keys) {
  DataFormat format = find_data_format(path);
  for (const auto& [key, value] : keys) set_data_key(format, key, value);
  return open_dataset(path, format, std::vector{input});
}
std::string refusal(const std::string& path, const DataInput& input, const Keys& keys) {
  return error_of([&] {
    const auto samples = open(path, input, keys);
    for (int64_t i = 0; i < samples->size(); ++i) samples->mask(i);
  });
}
std::vector<int32_t> classes_of(const Dataset& samples, int64_t i) {
  const Tensor mask = *samples.mask(i);
  EXPECT_EQ(mask.dtype(), DataType::kI32);
  return {mask.as<int32_t>().begin(), mask.as<int32_t>().end()};
}
// 8 bits of grey.
std::string grey_png(uint32_t height, uint32_t width, const std::vector<uint8_t>& pixels) {
  return png_of(PngRows{height, width, 8, 0, pixels});
}
std::string picture(int64_t height, int64_t width) { return png_of(made_image(height, width, 3)); }

TEST(Masks, PngIsReadAsItsNumbers) {
  const struct {
    PngRows stored;
    std::vector<int32_t> indices;
  } cases[] = {
      {{1, 3, 8, 0, {0, 7, 254}}, {0, 7, 254}},
      {{1, 3, 4, 0, {0x1f, 0x30}}, {1, 15, 3}},
      {{1, 3, 1, 0, {0xa0}}, {1, 0, 1}},
      {{1, 3, 8, 3, {0, 2, 3}}, {0, 2, 3}},
      {{1, 3, 2, 3, {0x1c}}, {0, 1, 3}},
      {{1, 2, 16, 0, {0x01, 0x02, 0x00, 0xff}}, {0x102, 255}},
  };
  for (const auto& one : cases) {
    const std::string png = png_of(one.stored);
    const Tensor read = decode_png_indices(std::as_bytes(std::span(png)));
    EXPECT_EQ(read.dims(), (Dims{1, one.stored.width}));
    EXPECT_THAT(std::vector(read.as<int32_t>().begin(), read.as<int32_t>().end()),
                ElementsAreArray(one.indices));
  }
  for (const int colour : {2, 4, 6}) {
    const size_t channels = colour == 2 ? 3 : colour == 4 ? 2 : 4;
    const std::string png = png_of(PngRows{1, 1, 8, colour, std::vector<uint8_t>(channels)});
    EXPECT_THAT(error_of([&] { decode_png_indices(std::as_bytes(std::span(png))); }),
                HasSubstr("save it with a palette or in grey"));
  }
  const std::string png = grey_png(2, 3, {0, 1, 2, 3, 4, 5});
  for (const size_t size : {size_t{9}, size_t{40}, png.size() - 20})
    EXPECT_THAT(error_of([&] { decode_png_indices(std::as_bytes(std::span(png)).first(size)); }),
                StartsWith("invalid_argument"));
}

TEST(Masks, SizesAreKnownFromTheFirstBytes) {
  for (const std::string& file : {picture(23, 31), jpeg_of(made_image(23, 31, 3), 80)}) {
    EXPECT_EQ(image_size(std::as_bytes(std::span(file))), (Dims{23, 31}));
    EXPECT_THAT(error_of([&] { image_size(std::as_bytes(std::span(file)).first(12)); }),
                StartsWith("invalid_argument"));
  }
  EXPECT_THAT(error_of([] { image_size({}); }), HasSubstr("empty"));
}

TEST(Masks, AFolderBesideThePictures) {
  const MadeFolder folder;
  folder.write("pictures/a.png", picture(2, 3));
  folder.write("pictures/sub/b.jpg", jpeg_of(made_image(1, 2, 3), 90));
  folder.write("masks/a.png", grey_png(2, 3, {0, 1, 255, 3, 4, 254}));
  folder.write("masks/sub/b.npy",
               npy_bytes("<i8", "1,2", std::string("\2\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 16)));
  const std::string pictures = folder.path("pictures");
  const auto samples = open(pictures, kPicture, {{"masks", "../masks"}});
  ASSERT_EQ(samples->size(), 2);
  EXPECT_EQ(samples->mask(0)->dims(), (Dims{2, 3}));
  EXPECT_THAT(classes_of(*samples, 0), ElementsAre(0, 1, -1, 3, 4, 254));
  EXPECT_THAT(classes_of(*samples, 1), ElementsAre(2, 5));
  EXPECT_THAT(classes_of(*subset(samples, std::vector<int64_t>{1}), 0), ElementsAre(2, 5));
  EXPECT_THAT(classes_of(*open(pictures, kPicture,
                               {{"masks", folder.path("masks")}, {"ignore_label", "none"}}),
                         0),
              ElementsAre(0, 1, 255, 3, 4, 254));
  // What is ignored is what is stored; to all others the offset is added.
  EXPECT_THAT(
      classes_of(*open(pictures, kPicture,
                       {{"masks", "../masks"}, {"ignore_label", "0"}, {"label_offset", "-1"}}),
                 0),
      ElementsAre(-1, 0, 254, 2, 3, 253));
  EXPECT_FALSE(open(pictures, kPicture, {{"masks", "none"}})->mask(0));
  EXPECT_FALSE(open(pictures, kPicture, {})->mask(0));
  // Within the folder of the data, masks are no samples; names in dataset.json are beside it.
  const MadeFolder whole;
  whole.write("a.png", picture(1, 1));
  whole.write("m/a.png", grey_png(1, 1, {9}));
  whole.write("dataset.json", R"({"masks": "m"})");
  const auto within = open(whole.path(), kPicture, {});
  ASSERT_EQ(within->size(), 1);
  EXPECT_THAT(classes_of(*within, 0), ElementsAre(9));
}

TEST(Masks, AreResizedAndCroppedAsTheirPictures) {
  const MadeFolder folder;
  folder.write("p/a.png", picture(4, 6));
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 24; ++i) pixels.push_back(static_cast<uint8_t>(i));
  folder.write("m/a.png", grey_png(4, 6, pixels));
  const auto read = [&](Keys keys) {
    keys["masks"] = "../m";
    keys["filter"] = "nearest";
    keys["channels"] = "rgb";
    const auto samples = open(folder.path("p"), kPicture, keys);
    const Dims sample = samples->read(0)[0].tensor.dims(), mask = samples->mask(0)->dims();
    EXPECT_EQ((Dims{sample[2], sample[3]}), mask);
    return classes_of(*samples, 0);
  };
  EXPECT_THAT(read({{"resize", "2"}}), ElementsAre(7, 9, 11, 19, 21, 23));
  EXPECT_THAT(read({{"resize", "2x2"}}), ElementsAre(7, 10, 19, 22));
  EXPECT_THAT(read({{"crop", "2"}}), ElementsAre(8, 9, 14, 15));
  // Enlarged and cropped to what it was, it is another.
  EXPECT_THAT(read({{"resize", "8x12"}, {"crop", "4x6"}}),
              ElementsAre(7, 8, 8, 9, 9, 10, 7, 8, 8, 9, 9, 10, 13, 14, 14, 15, 15, 16, 13, 14, 14,
                          15, 15, 16));
  EXPECT_EQ(read({{"resize", "4x6"}}).size(), 24u);
  EXPECT_THAT(refusal(folder.path("p"), kPicture, {{"masks", "../m"}, {"crop", "5"}}),
              HasSubstr("smaller than the crop"));
  // The same pixels as those of a picture.
  const Image image{4, 6, 1, pixels};
  const auto of_picture = resize(image, {3, 5}, ResizeFilter::kNearest, true).pixels;
  EXPECT_THAT(read({{"resize", "3x5"}}), ElementsAreArray(of_picture));
}

TEST(Masks, RowsOfArrays) {
  const MadeFolder folder;
  const std::string data(8, '\1'), masks = std::string("\0\1\2\3\4\5\6\xff", 8);
  const std::string path = folder.write("x.npy", npy_bytes("|u1", "2,2,2", data));
  const std::string npy = npy_bytes("|u1", "2,2,2", masks);
  const std::string one = npy_bytes("|u1", "2,1,2,2", masks);
  const std::string archive = folder.write(
      "x.npz", zip_of({{"x.npy", npy_bytes("|u1", "2,2,2", data)}, {"truth.npy", npy}}, true));
  folder.write("a.npy", npy);
  folder.write("b.npy.gz", gzip_of(one));
  folder.write("c.npz", zip_of({{"any.npy", npy}}, false));
  const std::pair<std::string, std::string> cases[] = {
      {path, "a.npy"}, {path, "b.npy.gz"}, {path, "c.npz"}, {archive, "truth"}};
  for (const auto& [samples_path, name] : cases) {
    const auto samples = open(samples_path, kRow, {{"masks", name}});
    EXPECT_THAT(classes_of(*samples, 0), ElementsAre(0, 1, 2, 3)) << name;
    EXPECT_THAT(classes_of(*samples, 1), ElementsAre(4, 5, 6, -1)) << name;
  }
  EXPECT_THAT(refusal(archive, kRow, {}), HasSubstr("masks that of the masks"));
  // One sample, one mask; and a folder of arrays with one of masks.
  folder.write("one.npy", npy_bytes("|u1", "2,2", masks.substr(0, 4)));
  folder.write("arrays/s.npy", npy_bytes("|u1", "2,2", masks.substr(0, 4)));
  EXPECT_THAT(classes_of(*open(folder.path("arrays"), kRow, {{"masks", "../one.npy"}}), 0),
              ElementsAre(0, 1, 2, 3));
  folder.write("m/s.npy", npy_bytes("|b1", "1,2,2", std::string("\0\1\1\0", 4)));
  EXPECT_THAT(classes_of(*open(folder.path("arrays"), kRow, {{"masks", "../m"}}), 0),
              ElementsAre(0, 1, 1, 0));
}

// Samples that are folders are called without an extension, whatever dots there are.
TEST(Masks, OfSamplesWithDotsInTheirNames) {
  const MadeFolder folder;
  folder.write("m/v1.0.png", grey_png(1, 2, {0, 1}));
  folder.write("m/v1.1.png", grey_png(1, 2, {2, 3}));
  folder.write("m/v1.png", grey_png(1, 2, {4, 5}));
  folder.write("m/v1.2.png", grey_png(1, 2, {6, 7}));
  const Masks masks(folder.path("m"), DataFormat());
  masks.check_samples(std::vector<std::string>{"v1.0", "v1.1", "v1.jpg", "v1.2.png"});
  const Dims sides = {1, 2};
  const auto first = [&](const std::string& name) {
    return masks.read(0, name, {&sides, 1}).as<int32_t>()[0];
  };
  EXPECT_EQ(first("v1.0"), 0);
  EXPECT_EQ(first("v1.1"), 2);
  EXPECT_EQ(first("v1.jpg"), 4);
  EXPECT_EQ(first("v1.2.png"), 6);
  EXPECT_THAT(error_of([&] { masks.check_samples(std::vector<std::string>{"v1.3"}); }),
              HasSubstr("m/v1.3.png"));
}

TEST(Masks, WhatIsWrongIsNamedWithTheRemedy) {
  const MadeFolder folder;
  folder.write("p/a.png", picture(2, 3));
  folder.write("p/b.png", picture(2, 3));
  folder.write("m/a.png", grey_png(2, 3, {0, 1, 2, 3, 4, 5}));
  const auto says = [&](const Keys& keys, const std::string& text) {
    EXPECT_THAT(refusal(folder.path("p"), kPicture, keys), HasSubstr(text));
  };
  const Keys masks = {{"masks", "../m"}};
  says({{"masks", "nowhere"}}, "no folder or file of masks nowhere");
  says({{"masks", folder.path("p")}}, "is both the folder of samples and that of masks");
  EXPECT_THAT(refusal(folder.path("p"), kPicture, masks),
              AllOf(StartsWith("io"), HasSubstr("\"b.png\" has no mask"), HasSubstr("m/b.png"),
                    HasSubstr("add it")));
  folder.write("m/b.png", grey_png(3, 2, {0, 1, 2, 3, 4, 5}));
  says(masks, "m/b.png: the mask is 3 x 2 (height x width) and the sample \"b.png\" [2,3]");
  folder.write("m/b.png", picture(2, 3));
  says(masks, "m/b.png: PNG: its pixels are colours");
  folder.write("m/b.png", grey_png(2, 3, {0, 1, 2, 3, 4, 5}));
  says({{"masks", "../m"}, {"label_offset", "-1"}}, "m/a.png: the pixel 0 and the label offset -1");
  folder.write("m.npy", npy_bytes("|u1", "1,2,3", "abcdef"));
  says({{"masks", "../m.npy"}}, "m.npy has 1 masks, the data 2 samples");
  folder.write("f.npy", npy_bytes("<f4", "2,1,1", std::string(8, '\0')));
  says({{"masks", "../f.npy"}}, "f.npy: f32[2,1,1] are no masks");
  folder.write("l.npy", npy_bytes("|u1", "2,", "ab"));
  says({{"masks", "../l.npy"}}, "l.npy: u8[2] are no masks");
  folder.write("m.jpg", jpeg_of(made_image(2, 3, 1), 90));
  says({{"masks", "../m.jpg"}}, "save masks as PNG");
  folder.write("two.npz", zip_of({{"a.npy", npy_bytes("|u1", "1,", "a")},
                                  {"b.npy", npy_bytes("|u1", "1,", "a")}},
                                 false));
  says({{"masks", "../two.npz"}}, "two.npz: it holds 2 arrays");
  says({{"masks", "../m"}, {"ignore_label", "0"}, {"label_offset", "9223372036854775807"}},
       "give no class");
  EXPECT_THAT(error_of([] {
                DataFormat format;
                set_data_key(format, "ignore_label", "no");
              }),
              HasSubstr("ignore_label: \"no\" is no whole number"));
}

}  // namespace
}  // namespace anneal
