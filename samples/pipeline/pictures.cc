#include "pictures.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>
// After <cstdio>, whose FILE it uses.
#include <jpeglib.h>

namespace {

constexpr int kQuality = 90;

// Waves of three colours and some grain, so that a file is as large as that of a photo.
std::vector<unsigned char> row_of(int picture, int y, int width) {
  std::vector<unsigned char> row;
  unsigned grain = static_cast<unsigned>(picture * 7919 + y * 104729 + 1);
  for (int x = 0; x < width; ++x)
    for (int channel = 0; channel < 3; ++channel) {
      grain = grain * 1664525u + 1013904223u;
      const double wave =
          std::sin(0.02 * (x + 3 * picture) * (channel + 1)) * std::cos(0.03 * (y + 5 * picture));
      row.push_back(static_cast<unsigned char>(112 + 100 * wave + (grain >> 28)));
    }
  return row;
}

std::vector<unsigned char> jpeg_of(int picture, int width, int height) {
  jpeg_compress_struct job;
  jpeg_error_mgr errors;
  job.err = jpeg_std_error(&errors);
  jpeg_create_compress(&job);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&job, &bytes, &size);
  job.image_width = static_cast<JDIMENSION>(width);
  job.image_height = static_cast<JDIMENSION>(height);
  job.input_components = 3;
  job.in_color_space = JCS_RGB;
  jpeg_set_defaults(&job);
  jpeg_set_quality(&job, kQuality, TRUE);
  jpeg_start_compress(&job, TRUE);
  for (int y = 0; y < height; ++y) {
    std::vector<unsigned char> row = row_of(picture, y, width);
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&job, rows, 1);
  }
  jpeg_finish_compress(&job);
  jpeg_destroy_compress(&job);
  const std::vector<unsigned char> file(bytes, bytes + size);
  std::free(bytes);
  return file;
}

}  // namespace

MadePictures::MadePictures(int count, int width, int height) {
  std::string name = (std::filesystem::temp_directory_path() / "anneal-pipeline-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder " + name);
  folder_ = name;
  for (int i = 0; i < count; ++i) {
    char file[32];
    std::snprintf(file, sizeof(file), "%05d.jpg", i);
    const std::vector<unsigned char> bytes = jpeg_of(i, width, height);
    std::ofstream out(folder_ / file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) {
      std::error_code ignored;
      std::filesystem::remove_all(folder_, ignored);
      throw std::runtime_error("cannot write " + (folder_ / file).string());
    }
  }
}

MadePictures::~MadePictures() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}
