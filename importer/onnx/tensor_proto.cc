#include "anneal/importer/onnx/tensor_proto.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/importer/onnx/external_data.h"
#include "anneal/importer/onnx/minifloat.h"
#include "anneal/importer/onnx/model_file.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/onnx/tensor_file.h"

namespace anneal {
namespace {

using anneal_onnx::TensorProto;

struct ElementType {
  std::string_view name;
  std::optional<DataType> dtype;
};
// By number.
constexpr ElementType kElementTypes[] = {
    {"undefined", {}},
    {"float", DataType::kF32},
    {"uint8", DataType::kU8},
    {"int8", DataType::kI8},
    {"uint16", DataType::kU16},
    {"int16", DataType::kI16},
    {"int32", DataType::kI32},
    {"int64", DataType::kI64},
    {"string", DataType::kString},
    {"bool", DataType::kBool},
    {"float16", DataType::kF16},
    {"double", DataType::kF64},
    {"uint32", DataType::kU32},
    {"uint64", DataType::kU64},
    {"complex64", {}},
    {"complex128", {}},
    {"bfloat16", DataType::kBF16},
    {"float8e4m3fn", {}},
    {"float8e4m3fnuz", {}},
    {"float8e5m2", {}},
    {"float8e5m2fnuz", {}},
    {"uint4", {}},
    {"int4", {}},
    {"float4e2m1", {}},
    {"float8e8m0", {}},
    {"uint2", {}},
    {"int2", {}},
};

static_assert(std::size(kElementTypes) == kLastOnnxType + 1);

const ElementType* find_element_type(int32_t element_type) {
  const bool listed = element_type >= 0 && element_type <= kLastOnnxType;
  return listed ? &kElementTypes[element_type] : nullptr;
}

uint64_t count_elements(const TensorProto& proto, Dims* dims) {
  uint64_t elements = 1;
  bool empty = false;
  for (const int64_t size : proto.dims()) {
    if (size < 0) fail(ErrorCode::kInvalidModel, fmt::format("a negative size: {}", size));
    dims->push_back(size);
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements))
      fail(ErrorCode::kInvalidModel,
           fmt::format("more than 2^64 elements in shape {}", to_string(*dims)));
  }
  return empty ? 0 : elements;
}

[[noreturn]] void wrong_count(uint64_t have, std::string_view where, uint64_t want,
                              const Dims& dims) {
  fail(ErrorCode::kInvalidModel,
       fmt::format("{} elements in {}, but {} in shape {}", have, where, want, to_string(dims)));
}

template <class T, class Field>
Tensor from_field(const Field& field, std::string_view field_name, DataType dtype, const Dims& dims,
                  uint64_t elements) {
  if (static_cast<uint64_t>(field.size()) != elements)
    wrong_count(field.size(), field_name, elements, dims);
  auto fresh = allocate_tensor(dtype, dims);
  auto* to = reinterpret_cast<T*>(fresh.data.data());
  for (const auto value : field) {
    // Writers store small and 16-bit types by their bits, signed or not.
    if constexpr (sizeof(T) < sizeof(value)) {
      constexpr int kBits = 8 * sizeof(T);
      const auto wide = static_cast<int64_t>(value);
      if (wide < -(int64_t{1} << (kBits - 1)) || wide >= (int64_t{1} << kBits))
        fail(ErrorCode::kInvalidModel,
             fmt::format("{} does not fit in {}", value, to_string(dtype)));
    }
    *to++ = static_cast<T>(value);
  }
  return fresh.tensor;
}

void make_booleans(std::span<std::byte> data) {
  for (std::byte& value : data) value = std::byte{value != std::byte{0}};
}

uint64_t byte_count(uint64_t elements, DataType dtype) {
  uint64_t bytes;
  if (__builtin_mul_overflow(elements, size_of(dtype), &bytes))
    fail(ErrorCode::kInvalidModel, "more than 2^64 bytes");
  return bytes;
}

Tensor from_raw(const std::string& raw, DataType dtype, const Dims& dims, uint64_t elements,
                const std::shared_ptr<const void>& owner) {
  if (raw.size() != byte_count(elements, dtype))
    fail(ErrorCode::kInvalidModel,
         fmt::format("{} bytes of raw data, but shape {} of {} takes {}", raw.size(),
                     to_string(dims), to_string(dtype), byte_count(elements, dtype)));
  constexpr size_t kLeastShared = 1 << 20;
  const bool is_aligned = reinterpret_cast<uintptr_t>(raw.data()) % size_of(dtype) == 0;
  if (owner && dtype != DataType::kBool && raw.size() >= kLeastShared && is_aligned)
    return Tensor(dtype, dims, owner, std::as_bytes(std::span(raw)));
  auto fresh = allocate_tensor(dtype, dims);
  std::memcpy(fresh.data.data(), raw.data(), raw.size());
  if (dtype == DataType::kBool) make_booleans(fresh.data);
  return fresh.tensor;
}

struct NarrowInteger {
  int bits;
  bool is_signed;
};
std::optional<NarrowInteger> narrow_integer(int32_t element_type) {
  switch (element_type) {
    case TensorProto::UINT4:
      return NarrowInteger{4, false};
    case TensorProto::INT4:
      return NarrowInteger{4, true};
    case TensorProto::UINT2:
      return NarrowInteger{2, false};
    case TensorProto::INT2:
      return NarrowInteger{2, true};
    default:
      return std::nullopt;
  }
}

int bits_of(int32_t narrow_type) {
  const auto real = minifloat(narrow_type);
  return real ? real->bits() : narrow_integer(narrow_type)->bits;
}

// Calls f(i, code) for each element. packed: u8; the first element is in the low bits.
template <class F>
void for_each_code(const Tensor& packed, int bits, size_t count, F&& f) {
  const auto bytes = packed.as<uint8_t>();
  const auto width = static_cast<size_t>(bits);
  for (size_t i = 0; i < count; ++i)
    f(i, (bytes[i * width / 8] >> (i * width % 8)) & ((1U << width) - 1));
}

Tensor unpacked(const Tensor& packed, int32_t narrow_type, const Dims& dims) {
  const int bits = bits_of(narrow_type);
  auto fresh = allocate_tensor(*dtype_of_constant(narrow_type), dims);
  if (const auto real = minifloat(narrow_type)) {
    std::vector<float> numbers;
    for (unsigned code = 0; code < 1U << bits; ++code) numbers.push_back(real->number(code));
    auto* to = reinterpret_cast<float*>(fresh.data.data());
    for_each_code(packed, bits, static_cast<size_t>(fresh.tensor.count()),
                  [&](size_t i, unsigned code) { to[i] = numbers[code]; });
    return fresh.tensor;
  }
  const unsigned sign = narrow_integer(narrow_type)->is_signed ? 1U << (bits - 1) : 0;
  for_each_code(packed, bits, fresh.data.size(), [&](size_t i, unsigned code) {
    fresh.data[i] = static_cast<std::byte>((code ^ sign) - sign);
  });
  return fresh.tensor;
}

uint64_t parse_number(const std::string& key, const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size())
    fail(ErrorCode::kInvalidModel, fmt::format("{} is \"{}\", not a number of bytes", key, text));
  return number;
}

// Fewer bytes are read: a process has a limited number of mappings.
constexpr uint64_t kLeastMapped = 1 << 20;

Tensor from_external(const TensorProto& proto, DataType dtype, const Dims& dims, uint64_t elements,
                     const std::string& folder) {
  std::string location;
  for (const auto& entry : proto.external_data())
    if (entry.key() == "location") location = entry.value();
  return with_context(
      [&] { return "external data \"" + location + "\""; },
      [&] {
        std::optional<uint64_t> offset, length;
        for (const auto& entry : proto.external_data()) {
          if (entry.key() == "offset") offset = parse_number(entry.key(), entry.value());
          if (entry.key() == "length") length = parse_number(entry.key(), entry.value());
        }
        const uint64_t bytes = byte_count(elements, dtype);
        if (length && *length != bytes)
          fail(ErrorCode::kInvalidModel,
               fmt::format("length {}, but shape {} of {} takes {} bytes", *length, to_string(dims),
                           to_string(dtype), bytes));
        const DataFile file(folder, location);
        const uint64_t start = offset.value_or(0);
        if (start > file.size() || file.size() - start < bytes)
          fail(ErrorCode::kInvalidModel,
               fmt::format("the file has {} bytes, but the tensor is {} bytes from {}", file.size(),
                           bytes, start));
        const bool in_place =
            bytes >= kLeastMapped && dtype != DataType::kBool && start % size_of(dtype) == 0;
        if (in_place) {
          const FileBytes mapped = file.map(start, bytes);
          if (!mapped.bytes.empty()) return Tensor(dtype, dims, mapped.owner, mapped.bytes);
        }
        auto fresh = allocate_tensor(dtype, dims);
        file.read(start, fresh.data);
        if (dtype == DataType::kBool) make_booleans(fresh.data);
        return fresh.tensor;
      });
}

Tensor from_typed_field(const TensorProto& proto, DataType dtype, const Dims& dims,
                        uint64_t elements) {
  const auto from_int32 = [&]<class T>(T) {
    return from_field<T>(proto.int32_data(), "int32_data", dtype, dims, elements);
  };
  switch (dtype) {
    case DataType::kF32:
      return from_field<float>(proto.float_data(), "float_data", dtype, dims, elements);
    case DataType::kF64:
      return from_field<double>(proto.double_data(), "double_data", dtype, dims, elements);
    case DataType::kI64:
      return from_field<int64_t>(proto.int64_data(), "int64_data", dtype, dims, elements);
    case DataType::kU32:
      return from_field<uint32_t>(proto.uint64_data(), "uint64_data", dtype, dims, elements);
    case DataType::kU64:
      return from_field<uint64_t>(proto.uint64_data(), "uint64_data", dtype, dims, elements);
    case DataType::kI32:
      return from_int32(int32_t{});
    case DataType::kI16:
      return from_int32(int16_t{});
    case DataType::kI8:
      return from_int32(int8_t{});
    case DataType::kU16:
    case DataType::kF16:
    case DataType::kBF16:
      return from_int32(uint16_t{});
    case DataType::kU8:
      return from_int32(uint8_t{});
    case DataType::kBool:
      return from_int32(bool{});
    case DataType::kString:
      break;
  }
  fail(ErrorCode::kUnsupported, "a constant of strings");
}

}  // namespace

std::optional<DataType> dtype_from_onnx(int32_t element_type) {
  const ElementType* found = find_element_type(element_type);
  return found ? found->dtype : std::nullopt;
}

std::string onnx_type_name(int32_t element_type) {
  const ElementType* found = find_element_type(element_type);
  return found ? std::string(found->name) : fmt::format("number {}", element_type);
}

DataType require_dtype(int32_t element_type) {
  if (element_type == TensorProto::UNDEFINED)
    fail(ErrorCode::kInvalidModel, "the element type is undefined");
  if (const auto dtype = dtype_from_onnx(element_type)) return *dtype;
  fail(ErrorCode::kUnsupported, fmt::format("the element type {}", onnx_type_name(element_type)));
}

bool is_narrow(int32_t element_type) {
  return narrow_integer(element_type) || minifloat(element_type);
}

std::optional<DataType> dtype_of_constant(int32_t element_type) {
  if (minifloat(element_type)) return DataType::kF32;
  const auto integer = narrow_integer(element_type);
  if (!integer) return dtype_from_onnx(element_type);
  return integer->is_signed ? DataType::kI8 : DataType::kU8;
}

namespace {

Tensor read_tensor(const TensorProto& proto, DataType dtype, const Dims& dims, uint64_t elements,
                   const std::string& folder, const std::shared_ptr<const void>& owner) {
  if (proto.data_location() == TensorProto::EXTERNAL)
    return from_external(proto, dtype, dims, elements, folder);
  if (proto.has_raw_data()) {
    // Some writers set an empty raw_data beside the typed field that they use.
    const bool typed = proto.float_data_size() || proto.int32_data_size() ||
                       proto.int64_data_size() || proto.double_data_size() ||
                       proto.uint64_data_size();
    if (!proto.raw_data().empty() || !typed)
      return from_raw(proto.raw_data(), dtype, dims, elements, owner);
  }
  return from_typed_field(proto, dtype, dims, elements);
}

}  // namespace

Tensor to_tensor(const TensorProto& proto, const std::string& folder,
                 const std::shared_ptr<const void>& owner) {
  const bool narrow = is_narrow(proto.data_type());
  const DataType dtype = narrow ? DataType::kU8 : require_dtype(proto.data_type());
  if (dtype == DataType::kString) fail(ErrorCode::kUnsupported, "a constant of strings");
  if (proto.has_segment()) fail(ErrorCode::kUnsupported, "a tensor stored in segments");
  Dims dims;
  const uint64_t elements = count_elements(proto, &dims);
  if (!narrow) return read_tensor(proto, dtype, dims, elements, folder, owner);
  const auto per_byte = static_cast<uint64_t>(8 / bits_of(proto.data_type()));
  const uint64_t bytes = elements / per_byte + (elements % per_byte != 0);
  const Dims packed_dims = {static_cast<int64_t>(bytes)};
  return unpacked(read_tensor(proto, dtype, packed_dims, bytes, folder, owner), proto.data_type(),
                  dims);
}

Tensor load_tensor_proto(std::span<const std::byte> bytes, std::string* name) {
  const auto proto = parse_tensor(bytes);
  if (name) *name = proto->name();
  return to_tensor(*proto, "");
}

}  // namespace anneal
