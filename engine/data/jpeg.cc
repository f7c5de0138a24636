// JPEG by libjpeg-turbo. Its errors leave through longjmp, so the functions that call it own
// nothing that has a destructor; memory is taken between them.
#include <csetjmp>
#include <cstdio>
// jpeglib.h wants FILE and size_t declared before it.
#include <fmt/format.h>
#include <jpeglib.h>
// jerror.h is of use after jpeglib.h only.
#include <jerror.h>

#include "anneal/core/fail.h"
#include "anneal/engine/data/image.h"

namespace anneal {
namespace {

// A progressive file may repeat scans without end, each over the whole picture.
constexpr int kMostScans = 500;

struct JpegJob {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX] = {};
};

JpegJob* job_of(j_common_ptr jpeg) { return static_cast<JpegJob*>(jpeg->client_data); }

[[noreturn]] void leave(j_common_ptr jpeg) {
  jpeg->err->format_message(jpeg, job_of(jpeg)->message);
  std::longjmp(job_of(jpeg)->back, 1);
}

// libjpeg goes on after damage, with grey where pixels are missing.
void on_message(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM ||
                        code == JWRN_JFIF_MAJOR || code == JWRN_BOGUS_PROGRESSION;
  if (level < 0 && !harmless) leave(jpeg);
}

void on_progress(j_common_ptr jpeg) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  if (decompress->input_scan_number <= kMostScans) return;
  std::snprintf(job_of(jpeg)->message, JMSG_LENGTH_MAX, "more than %d scans", kMostScans);
  std::longjmp(job_of(jpeg)->back, 1);
}

// All three are false after an error, which is in job.message.
bool begin_jpeg(JpegJob& job, const unsigned char* bytes, size_t size) {
  if (setjmp(job.back) != 0) return false;
  jpeg_mem_src(&job.jpeg, bytes, size);
  jpeg_read_header(&job.jpeg, TRUE);
  return true;
}

bool read_jpeg_rows(JpegJob& job, uint8_t* to, size_t row) {
  if (setjmp(job.back) != 0) return false;
  jpeg_start_decompress(&job.jpeg);
  while (job.jpeg.output_scanline < job.jpeg.output_height) {
    JSAMPROW line = to + job.jpeg.output_scanline * row;
    jpeg_read_scanlines(&job.jpeg, &line, 1);
  }
  jpeg_finish_decompress(&job.jpeg);
  return true;
}

bool create(JpegJob& job) {
  job.jpeg.err = jpeg_std_error(&job.errors);
  job.errors.error_exit = leave;
  job.errors.emit_message = on_message;
  job.errors.output_message = [](j_common_ptr) {};
  job.progress.progress_monitor = on_progress;
  job.jpeg.client_data = &job;
  if (setjmp(job.back) != 0) return false;
  jpeg_create_decompress(&job.jpeg);
  job.jpeg.progress = &job.progress;
  return true;
}

class Decompressor {
 public:
  Decompressor() {
    if (!create(job_)) refuse();
  }
  ~Decompressor() { jpeg_destroy_decompress(&job_.jpeg); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  JpegJob& job() { return job_; }
  [[noreturn]] void refuse() const {
    fail(ErrorCode::kInvalidArgument, fmt::format("JPEG: {}", job_.message));
  }

 private:
  JpegJob job_;
};

}  // namespace

Dims jpeg_size(std::span<const std::byte> bytes) {
  Decompressor decompressor;
  JpegJob& job = decompressor.job();
  if (!begin_jpeg(job, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()))
    decompressor.refuse();
  return {job.jpeg.image_height, job.jpeg.image_width};
}

Image decode_jpeg(std::span<const std::byte> bytes) {
  Decompressor decompressor;
  JpegJob& job = decompressor.job();
  if (!begin_jpeg(job, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()))
    decompressor.refuse();
  const int components = job.jpeg.num_components;
  if (components != 1 && components != 3)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("JPEG: {}; convert it to RGB",
                     components == 4 ? "its colours are CMYK, for print"
                                     : fmt::format("it has {} channels", components)));
  job.jpeg.out_color_space = components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  Image image = blank_image(job.jpeg.image_height, job.jpeg.image_width, components);
  if (!read_jpeg_rows(job, image.pixels.data(), static_cast<size_t>(image.width * components)))
    decompressor.refuse();
  return image;
}

}  // namespace anneal
