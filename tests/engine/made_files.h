// Small files for tests of data: pictures, arrays and archives, written into a folder of the test.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "anneal/engine/data/image.h"

namespace anneal {

// Pixel c of (x, y) is (37 x + 59 y + 83 c + 11 x y) mod 256.
Image made_image(int64_t height, int64_t width, int channels);

std::string jpeg_of(const Image& image, int quality);
std::string cmyk_jpeg(int64_t height, int64_t width);

// The picture with its pixels as a PNG holds them: bits per sample and PNG's type of colour (0
// grey, 2 RGB, 3 palette, 4 grey + alpha, 6 RGBA). rows: packed.
struct PngRows {
  uint32_t height, width;
  int bits, colour;
  std::vector<uint8_t> rows;
  bool interlaced = false;
};
std::string png_of(const PngRows& picture);
std::string png_of(const Image& image);

std::string npy_bytes(const std::string& type, const std::string& shape, const std::string& data);
std::string gzip_of(const std::string& bytes);
std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members, bool deflate);

// A private folder, deleted with this.
class MadeFolder {
 public:
  MadeFolder();
  ~MadeFolder();
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;
  std::string write(const std::string& name, const std::string& bytes) const;  // the path
  std::string path(const std::string& name = "") const;

 private:
  std::filesystem::path root_;
};

}  // namespace anneal
