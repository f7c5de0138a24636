#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/tests/engine/made_files.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
Image decode(const std::string& file) { return decode_image(bytes_of(file)); }
std::string refusal(const std::string& file) {
  return error_of([&] { decode(file); });
}

TEST(DecodeImage, PngKeepsEveryPixel) {
  for (const int channels : {1, 3}) {
    const Image image = made_image(7, 5, channels);
    const Image read = decode(png_of(image));
    EXPECT_EQ(read.channels, channels);
    EXPECT_EQ(read.height, 7);
    EXPECT_EQ(read.pixels, image.pixels);
    PngRows interlaced{7, 5, 8, channels == 1 ? 0 : 2, image.pixels, true};
    EXPECT_EQ(decode(png_of(interlaced)).pixels, image.pixels);
  }
}

TEST(DecodeImage, PngOfEveryKindBecomes8BitsWithoutAlpha) {
  const struct {
    PngRows picture;
    int channels;
    std::vector<uint8_t> pixels;
  } cases[] = {
      {{1, 3, 1, 0, {0b10100000}}, 1, {255, 0, 255}},
      {{1, 3, 4, 0, {0x0f, 0x80}}, 1, {0, 255, 136}},
      {{1, 2, 16, 0, {0x12, 0xff, 0xfe, 0x00}}, 1, {0x12, 0xfe}},
      {{1, 1, 16, 2, {1, 99, 2, 99, 3, 99}}, 3, {1, 2, 3}},
      {{1, 2, 8, 3, {1, 2}}, 3, {200, 100, 0, 0, 0, 255}},
      {{1, 3, 2, 3, {0b00011100}}, 3, {10, 20, 30, 200, 100, 0, 9, 8, 7}},
      {{1, 2, 8, 4, {50, 0, 60, 255}}, 1, {50, 60}},
      {{1, 1, 8, 6, {1, 2, 3, 0}}, 3, {1, 2, 3}},
      {{1, 1, 16, 6, {1, 9, 2, 9, 3, 9, 0, 9}}, 3, {1, 2, 3}},
  };
  for (const auto& [picture, channels, pixels] : cases) {
    const Image image = decode(png_of(picture));
    EXPECT_EQ(image.channels, channels) << picture.bits << " bits, colour " << picture.colour;
    EXPECT_THAT(image.pixels, ElementsAreArray(pixels))
        << picture.bits << " bits, colour " << picture.colour;
  }
}

TEST(DecodeImage, JpegOfOneColourIsThatColour) {
  for (const int channels : {1, 3}) {
    Image image = blank_image(17, 33, channels);
    for (size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<uint8_t>(channels == 1 ? 77 : 60 + 50 * (i % 3));
    const Image read = decode(jpeg_of(image, 100));
    ASSERT_EQ(read.pixels.size(), image.pixels.size());
    EXPECT_EQ(read.channels, channels);
    for (size_t i = 0; i < read.pixels.size(); ++i)
      ASSERT_NEAR(read.pixels[i], image.pixels[i], 2) << i;
  }
}

TEST(DecodeImage, WhatIsNotReadIsNamed) {
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal("GIF89a"), HasSubstr("neither JPEG nor PNG"));
  EXPECT_THAT(refusal(cmyk_jpeg(4, 4)), HasSubstr("CMYK"));
  EXPECT_THAT(refusal("\xff\xd8"), HasSubstr("JPEG: "));
  // A header of 70000 x 70000, with its checksum.
  std::string png = png_of(made_image(3, 3, 1));
  png.replace(16, 8, std::string("\0\1\x11\x70\0\1\x11\x70", 8));
  EXPECT_NE(refusal(png), "");  // the checksum is the old one
  EXPECT_THAT(error_of([] { blank_image(70'000, 70'000, 3); }), HasSubstr("70000 x 70000"));
}

// Only the end markers may be missing without harm to the pixels; a shorter file is an error.
TEST(DecodeImage, CutOffFilesAreErrors) {
  for (const std::string& file :
       {png_of(made_image(23, 31, 3)), jpeg_of(made_image(23, 31, 3), 80)}) {
    ASSERT_EQ(refusal(file), "");
    for (size_t size = 0; size + 16 < file.size(); size += 7)
      EXPECT_THAT(refusal(file.substr(0, size)), HasSubstr("invalid_argument")) << size;
  }
}

TEST(DecodeImage, DamageIsAnErrorOrAPicture) {
  for (const std::string& file :
       {png_of(made_image(23, 31, 3)), jpeg_of(made_image(23, 31, 3), 80)}) {
    uint64_t state = 1;
    for (int i = 0; i < 2000; ++i) {
      std::string damaged = file;
      for (int k = 0; k < 1 + i % 3; ++k) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        damaged[2 + (state >> 33) % (file.size() - 2)] = static_cast<char>(state >> 25);
      }
      const std::string error = refusal(damaged);
      EXPECT_TRUE(error.empty() || error.starts_with("invalid_argument")) << error;
    }
  }
}

// Written by Pillow 11.3.
TEST(Resize, GivesThePixelsOfPillow) {
  const struct {
    int64_t height, width;
    int channels;
    Dims size;
    ResizeFilter filter;
    std::vector<uint8_t> pixels;
  } cases[] = {
      {7,
       5,
       3,
       {3, 2},
       ResizeFilter::kBilinear,
       {94, 137, 129, 150, 138, 107, 158, 100, 130, 137, 127, 124, 128, 129, 121, 144, 146, 140}},
      {7, 5, 1, {4, 9}, ResizeFilter::kBilinear, {31,  45,  69,  92,  116, 134, 152, 176, 190,
                                                  123, 143, 176, 177, 171, 130, 104, 137, 157,
                                                  180, 163, 133, 131, 136, 152, 159, 129, 111,
                                                  79,  108, 155, 148, 127, 120, 124, 172, 200}},
      {7,
       5,
       3,
       {3, 2},
       ResizeFilter::kBicubic,
       {87, 138, 132, 155, 141, 104, 166, 98, 130, 133, 125, 126, 125, 129, 122, 147, 148, 140}},
      {7, 5, 1, {4, 9}, ResizeFilter::kBicubic, {22,  33,  60,  88,  116, 136, 155, 181, 195,
                                                 123, 147, 189, 192, 172, 123, 97,  139, 165,
                                                 193, 171, 131, 123, 135, 158, 163, 123, 100,
                                                 65,  98,  158, 157, 130, 111, 118, 177, 206}},
      {7, 5, 1, {4, 9}, ResizeFilter::kNearest, {0,   0,   37,  37,  74,  111, 111, 148, 148,
                                                 118, 118, 177, 177, 236, 39,  39,  98,  98,
                                                 236, 236, 61,  61,  142, 223, 223, 48,  48,
                                                 98,  98,  201, 201, 48,  151, 151, 254, 254}},
      {40, 3, 1, {2, 3}, ResizeFilter::kBilinear, {129, 131, 129, 138, 137, 130}},
      {3, 40, 1, {3, 2}, ResizeFilter::kBicubic, {110, 121, 132, 130, 137, 135}},
  };
  for (const auto& one : cases)
    EXPECT_THAT(
        resize(made_image(one.height, one.width, one.channels), one.size, one.filter, true).pixels,
        ElementsAreArray(one.pixels))
        << one.height << "x" << one.width << " to " << to_string(one.size);
  EXPECT_THAT(to_grey(made_image(1, 5, 3)).pixels, ElementsAreArray({68, 105, 142, 149, 186}));
}

TEST(Resize, WithoutAntialiasTheNearestFourPixelsCount) {
  Image row = blank_image(1, 8, 1);
  row.pixels = {0, 100, 0, 0, 0, 0, 200, 100};
  const auto half = [&](bool antialias) {
    return resize(row, {1, 2}, ResizeFilter::kBilinear, antialias).pixels;
  };
  EXPECT_THAT(half(false), ElementsAreArray({50, 100}));
  EXPECT_THAT(half(true), ElementsAreArray({25, 68}));
  EXPECT_THAT(error_of([&] {
                resize(row, {1, 2}, ResizeFilter::kBicubic, false);
              }),
              HasSubstr("antialias"));
  EXPECT_NE(error_of([&] { resize(row, {0, 2}, ResizeFilter::kNearest, true); }), "");
}

TEST(Resize, TheShorterSideAndTheCentreAreTorchvisions) {
  EXPECT_EQ(size_with_shorter_side({375, 500}, 256), (Dims{256, 341}));
  EXPECT_EQ(size_with_shorter_side({500, 333}, 256), (Dims{384, 256}));
  // (7 - 4) / 2 and (8 - 3) / 2 are rounded to even.
  const Image crop = centre_crop(made_image(7, 8, 1), {4, 3});
  EXPECT_EQ(crop.pixels[0], made_image(7, 8, 1).pixels[2 * 8 + 2]);
  EXPECT_THAT(error_of([] {
                centre_crop(made_image(7, 8, 1), {8, 8});
              }),
              HasSubstr("smaller than the crop"));
}

}  // namespace
}  // namespace anneal
