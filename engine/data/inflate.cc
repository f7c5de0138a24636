#include "anneal/engine/data/inflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr size_t kMostRatio = 1032;  // the highest ratio of deflate

[[noreturn]] void refuse_stream(std::string_view why) {
  fail(ErrorCode::kInvalidArgument, fmt::format("compressed data: {}", why));
}

class Inflater {
 public:
  Inflater(std::span<const std::byte> bytes, int window_bits) : left_(bytes) {
    check(inflateInit2(&stream_, window_bits) == Z_OK, "zlib starts");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  std::span<const std::byte> left() const { return left_; }
  // Appends one stream's contents.
  void run(std::vector<std::byte>& to, size_t most) {
    for (int status = Z_OK; status != Z_STREAM_END;) {
      const size_t had = to.size();
      if (had > most) refuse_stream(fmt::format("there are more than {} bytes in it", most));
      to.resize(had + std::clamp<size_t>(had, 1 << 16, 1 << 28));
      const size_t room = to.size() - had;
      const auto given = std::min<size_t>(left_.size(), std::numeric_limits<uInt>::max());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(left_.data()));
      stream_.avail_in = static_cast<uInt>(given);
      stream_.next_out = reinterpret_cast<Bytef*>(to.data() + had);
      stream_.avail_out = static_cast<uInt>(room);
      status = inflate(&stream_, Z_NO_FLUSH);
      const size_t written = room - stream_.avail_out, taken = given - stream_.avail_in;
      to.resize(had + written);
      left_ = left_.subspan(taken);
      if (status == Z_BUF_ERROR || (status == Z_OK && written == 0 && taken == 0))
        refuse_stream("it is cut off");
      if (status != Z_OK && status != Z_STREAM_END)
        refuse_stream(stream_.msg != nullptr ? stream_.msg : "it is damaged");
    }
    if (to.size() > most) refuse_stream(fmt::format("there are more than {} bytes in it", most));
    inflateReset(&stream_);
  }

 private:
  z_stream stream_{};
  std::span<const std::byte> left_;
};

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, size_t most) {
  Inflater inflater(bytes, 15 + 16);
  std::vector<std::byte> contents;
  do inflater.run(contents, most);
  while (is_gzip(inflater.left()));
  return contents;
}

std::vector<std::byte> inflate_raw(std::span<const std::byte> bytes, size_t size) {
  if (size / kMostRatio > bytes.size()) refuse_stream("it says to hold more than it can");
  std::vector<std::byte> contents;
  contents.reserve(size);
  Inflater(bytes, -15).run(contents, size);
  if (contents.size() != size)
    refuse_stream(fmt::format("{} bytes instead of {}", contents.size(), size));
  return contents;
}

}  // namespace anneal
