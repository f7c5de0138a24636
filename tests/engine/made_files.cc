#include "anneal/tests/engine/made_files.h"

#include <cstdio>
#include <cstring>
#include <fstream>
// jpeglib.h wants FILE and size_t declared before it.
#include <jpeglib.h>
#include <png.h>
#include <unistd.h>
#include <zlib.h>

namespace anneal {
namespace {

std::string jpeg(std::vector<uint8_t> pixels, int64_t height, int64_t width, int channels,
                 J_COLOR_SPACE space, int quality) {
  jpeg_compress_struct to{};
  jpeg_error_mgr errors{};
  to.err = jpeg_std_error(&errors);
  jpeg_create_compress(&to);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&to, &bytes, &size);
  to.image_height = static_cast<JDIMENSION>(height);
  to.image_width = static_cast<JDIMENSION>(width);
  to.input_components = channels;
  to.in_color_space = space;
  jpeg_set_defaults(&to);
  jpeg_set_quality(&to, quality, TRUE);
  jpeg_start_compress(&to, TRUE);
  for (int64_t y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + y * width * channels;
    jpeg_write_scanlines(&to, &row, 1);
  }
  jpeg_finish_compress(&to);
  std::string file(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&to);
  std::free(bytes);
  return file;
}

void put(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i));
}

std::string packed(const std::string& bytes, int window_bits) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  std::string to(bytes.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(to.data());
  stream.avail_out = static_cast<uInt>(to.size());
  deflate(&stream, Z_FINISH);
  to.resize(stream.total_out);
  deflateEnd(&stream);
  return to;
}

}  // namespace

Image made_image(int64_t height, int64_t width, int channels) {
  Image image = blank_image(height, width, channels);
  size_t at = 0;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        image.pixels[at++] = static_cast<uint8_t>(37 * x + 59 * y + 83 * c + 11 * x * y);
  return image;
}

std::string jpeg_of(const Image& image, int quality) {
  return jpeg(image.pixels, image.height, image.width, image.channels,
              image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB, quality);
}

std::string cmyk_jpeg(int64_t height, int64_t width) {
  return jpeg(std::vector<uint8_t>(static_cast<size_t>(height * width * 4), 90), height, width, 4,
              JCS_CMYK, 90);
}

std::string png_of(const PngRows& picture) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp to, png_bytep bytes, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<char*>(bytes), size);
      },
      nullptr);
  png_set_IHDR(png, info, picture.width, picture.height, picture.bits, picture.colour,
               picture.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  const png_color palette[] = {{10, 20, 30}, {200, 100, 0}, {0, 0, 255}, {9, 8, 7}};
  const png_byte alpha[] = {255, 0, 128, 255};
  if (picture.colour == PNG_COLOR_TYPE_PALETTE) {
    png_set_PLTE(png, info, palette, 4);
    png_set_tRNS(png, info, alpha, 4, nullptr);
  }
  png_write_info(png, info);
  std::vector<uint8_t> rows = picture.rows;
  std::vector<png_bytep> pointers;
  for (uint32_t y = 0; y < picture.height; ++y)
    pointers.push_back(rows.data() + rows.size() / picture.height * y);
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

std::string png_of(const Image& image) {
  return png_of(PngRows{static_cast<uint32_t>(image.height), static_cast<uint32_t>(image.width), 8,
                        image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                        image.pixels});
}

std::string npy_bytes(const std::string& type, const std::string& shape, const std::string& data) {
  const std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
  std::string file("\x93NUMPY\1\0", 8);
  put(file, header.size(), 2);
  return file + header + data;
}

std::string gzip_of(const std::string& bytes) { return packed(bytes, 15 + 16); }

std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members, bool deflate) {
  std::string file, table;
  for (const auto& [name, content] : members) {
    const std::string stored = deflate ? packed(content, -15) : content;
    std::string sizes;
    put(sizes,
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())),
        4);
    put(sizes, stored.size(), 4);
    put(sizes, content.size(), 4);
    put(sizes, name.size(), 2);
    const uint64_t at = file.size();
    put(file, 0x04034b50, 4);
    put(file, 20, 2);
    put(file, 0, 2);
    put(file, deflate ? 8 : 0, 2);
    put(file, 0, 4);
    file += sizes;
    put(file, 4, 2);  // an extra field, as NumPy writes
    file += name + "abcd" + stored;
    put(table, 0x02014b50, 4);
    put(table, 20, 2);
    put(table, 20, 2);
    put(table, 0, 2);
    put(table, deflate ? 8 : 0, 2);
    put(table, 0, 4);
    table += sizes;
    put(table, 0, 8);
    put(table, 0, 4);
    put(table, at, 4);
    table += name;
  }
  const uint64_t at = file.size();
  file += table;
  put(file, 0x06054b50, 4);
  put(file, 0, 4);
  put(file, members.size(), 2);
  put(file, members.size(), 2);
  put(file, table.size(), 4);
  put(file, at, 4);
  put(file, 0, 2);
  return file;
}

MadeFolder::MadeFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "anneal-test-XXXXXX").string();
  root_ = mkdtemp(path.data());
}
MadeFolder::~MadeFolder() { std::filesystem::remove_all(root_); }

std::string MadeFolder::write(const std::string& name, const std::string& bytes) const {
  const auto path = root_ / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  return path.string();
}
std::string MadeFolder::path(const std::string& name) const {
  return name.empty() ? root_.string() : (root_ / name).string();
}

}  // namespace anneal
