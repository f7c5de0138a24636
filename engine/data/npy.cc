#include "anneal/engine/data/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct TypeRow {
  std::string_view code;  // without the byte order
  DataType dtype;
};
constexpr TypeRow kTypes[] = {
    {"f4", DataType::kF32}, {"f8", DataType::kF64}, {"f2", DataType::kF16}, {"i1", DataType::kI8},
    {"i2", DataType::kI16}, {"i4", DataType::kI32}, {"i8", DataType::kI64}, {"u1", DataType::kU8},
    {"u2", DataType::kU16}, {"u4", DataType::kU32}, {"u8", DataType::kU64}, {"b1", DataType::kBool},
};

[[noreturn]] void refuse_npy(const std::string& why) {
  fail(ErrorCode::kInvalidArgument, ".npy: " + why);
}

struct Header {
  DataType dtype = DataType::kF32;
  bool swapped = false;
  bool fortran = false;
  Dims dims;
};

// The header is the text of a Python dict with three keys in any order.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Header parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran;
    std::optional<Dims> dims;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        descr = quoted();
      } else if (key == "fortran_order" && !fortran) {
        fortran = boolean();
      } else if (key == "shape" && !dims) {
        dims = tuple();
      } else {
        refuse_npy(fmt::format("the header has an unknown or repeated key '{}'", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) refuse_npy("bytes follow the header's dict");
    if (!descr || !fortran || !dims) refuse_npy("the header lacks descr, fortran_order or shape");

    Header header;
    header.fortran = *fortran;
    header.dims = *dims;
    const std::string_view code = *descr;
    const bool ordered = !code.empty() && std::string_view("<>|=").find(code[0]) != code.npos;
    const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& r) {
      return ordered && r.code == code.substr(1);
    });
    if (row == std::end(kTypes))
      refuse_npy(
          fmt::format("arrays of type '{}' are not supported; convert it, for example with "
                      ".astype('float32')",
                      *descr));
    header.dtype = row->dtype;
    header.swapped = code[0] == '>';
    return header;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse_npy(fmt::format("the header has no '{}' at character {}", c, at_));
  }
  std::string quoted() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"' && !accept('"'))
      refuse_npy(
          fmt::format("the header has no text at character {} (structured arrays are not "
                      "supported)",
                      at_));
    const size_t end = text_.find(quote, at_);
    if (end == text_.npos) refuse_npy("a text in the header does not end");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_blanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    refuse_npy("fortran_order is neither True nor False");
  }
  Dims tuple() {
    Dims dims;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      int64_t size = 0;
      const char* end = text_.data() + text_.size();
      const auto [next, error] = std::from_chars(text_.data() + at_, end, size);
      if (error != std::errc{} || size < 0) refuse_npy("the shape holds something that is no size");
      at_ = static_cast<size_t>(next - text_.data());
      if (dims.rank() == kMaxRank) refuse_npy("more than 8 axes");
      dims.push_back(size);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  std::string_view text_;
  size_t at_ = 0;
};

void swap_bytes(std::span<std::byte> bytes, size_t element) {
  for (size_t at = 0; at + element <= bytes.size(); at += element)
    std::reverse(bytes.begin() + static_cast<ptrdiff_t>(at),
                 bytes.begin() + static_cast<ptrdiff_t>(at + element));
}

std::string_view code_of(DataType dtype) {
  for (const TypeRow& row : kTypes)
    if (row.dtype == dtype) return row.code;
  fail(ErrorCode::kUnsupported, fmt::format(".npy cannot hold {}", to_string(dtype)));
}

}  // namespace

bool is_npy(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

Tensor read_npy(std::span<const std::byte> bytes) {
  if (!is_npy(bytes)) refuse_npy("the first bytes are not those of the format");
  if (bytes.size() < 12) refuse_npy("the file is cut off");
  const auto major = static_cast<uint8_t>(bytes[6]);
  if (major < 1 || major > 3) refuse_npy(fmt::format("unknown format version {}", major));
  const size_t header_at = major == 1 ? 10 : 12;
  size_t header_size = 0;
  std::memcpy(&header_size, bytes.data() + 8, header_at - 8);
  if (header_size > bytes.size() - header_at) refuse_npy("the file ends within its header");
  const Header header =
      HeaderParser({reinterpret_cast<const char*>(bytes.data()) + header_at, header_size}).parse();

  const auto content = bytes.subspan(header_at + header_size);
  const size_t element = size_of(header.dtype);
  const auto elements = static_cast<uint64_t>(count(header.dims));
  if (elements != content.size() / element || content.size() % element != 0)
    refuse_npy(fmt::format("the shape {} of {} needs {} elements, the file holds {} bytes",
                           to_string(header.dims), to_string(header.dtype), elements,
                           content.size()));

  auto read = allocate_tensor(header.dtype, header.dims);
  if (content.empty()) return read.tensor;
  std::memcpy(read.data.data(), content.data(), content.size());
  if (header.swapped) swap_bytes(read.data, element);
  if (header.dtype == DataType::kBool)
    for (std::byte& byte : read.data) byte = static_cast<std::byte>(byte != std::byte{0});
  if (!header.fortran) return read.tensor;

  TensorView columns = read.view();
  int64_t stride = 1;
  for (int axis = 0; axis < header.dims.rank(); ++axis) {
    columns.strides[axis] = stride;
    stride *= header.dims[axis];
  }
  return dense_copy(columns);
}

std::vector<std::byte> write_npy(const ConstTensorView& view) {
  const bool widen = view.dtype == DataType::kBF16;
  const DataType dtype = widen ? DataType::kF32 : view.dtype;
  std::string shape;
  for (const int64_t size : view.dims) shape += fmt::format("{},", size);
  if (view.dims.rank() > 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   size_of(dtype) == 1 ? '|' : '<', code_of(dtype), shape);
  // The format wants the data at a multiple of 64 bytes, and a newline before it.
  const size_t before = kMagic.size() + 4;
  header.resize((before + header.size() + 64) / 64 * 64 - before - 1, ' ');
  header += '\n';

  ByteWriter to;
  to.raw(std::as_bytes(std::span(kMagic)));
  to.number(uint8_t{1});
  to.number(uint8_t{0});
  to.number(static_cast<uint16_t>(header.size()));
  to.raw(std::as_bytes(std::span(header)));
  if (widen) {
    for_each_element(view, [&](const std::byte* element) {
      to.number(static_cast<float>(read_element(view.dtype, element)));
    });
  } else {
    to.raw(dense_copy(view).bytes());
  }
  return to.take();
}

}  // namespace anneal
