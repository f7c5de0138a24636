// Transfers between storage and the lanes of a tile: gathers, scatters and conversions of element
// type. No include guard: included once per target.
#include <hwy/highway.h>

#include <cstring>

// Highway's emulation knows neither infinities nor rounding to even.
#undef ANNEAL_EMULATES_F16
#define ANNEAL_EMULATES_F16 (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <size_t kBytes>
HWY_INLINE void copy_bytes(const std::byte* from, std::byte* to) {
  std::memcpy(to, from, kBytes);
}
// As memcpy(), whose call takes longer than most copies here.
HWY_INLINE void copy_run(const std::byte* HWY_RESTRICT from, std::byte* HWY_RESTRICT to,
                         size_t bytes) {
  constexpr size_t kMany = 512;
  if (bytes >= kMany) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= 16) {
    for (size_t i = 0; i < bytes - 16; i += 16) copy_bytes<16>(from + i, to + i);
    copy_bytes<16>(from + bytes - 16, to + bytes - 16);
  } else if (bytes >= 8) {
    copy_bytes<8>(from, to);
    copy_bytes<8>(from + bytes - 8, to + bytes - 8);
  } else if (bytes >= 4) {
    copy_bytes<4>(from, to);
    copy_bytes<4>(from + bytes - 4, to + bytes - 4);
  } else {
    for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// A block of rows x columns elements of one size, copied from strided to dense memory or back.
template <class T, bool kScatter>
void copy_block(T* HWY_RESTRICT strided, int64_t row_stride, int64_t column_stride,
                T* HWY_RESTRICT dense, int64_t pitch, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    T* there = strided + row * row_stride;
    T* here = dense + row * pitch;
    if (column_stride == 1) {
      copy_run(reinterpret_cast<const std::byte*>(kScatter ? here : there),
               reinterpret_cast<std::byte*>(kScatter ? there : here),
               static_cast<size_t>(columns) * sizeof(T));
    } else {
      for (int64_t i = 0; i < columns; ++i) {
        if constexpr (kScatter) {
          there[i * column_stride] = here[i];
        } else {
          here[i] = there[i * column_stride];
        }
      }
    }
  }
}
template <bool kScatter>
void copy_block(size_t size, const TapePort& port, std::byte* dense, int64_t pitch, int64_t rows,
                int64_t columns) {
  const auto copy = [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    copy_block<T, kScatter>(reinterpret_cast<T*>(port.data), port.row_stride, port.column_stride,
                            reinterpret_cast<T*>(dense), pitch, rows, columns);
  };
  switch (size) {
    case 1:
      return copy(uint8_t{});
    case 2:
      return copy(uint16_t{});
    case 4:
      return copy(uint32_t{});
    default:
      return copy(uint64_t{});
  }
}

// f(from, to) converts one vector; the rest goes through a padded copy.
template <class From, class To, class F>
HWY_INLINE void convert_run(const From* from, To* to, int64_t n, F f) {
  constexpr int64_t kStep = static_cast<int64_t>(HWY_LANES(uint32_t));
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) f(from + i, to + i);
  if constexpr (kStep > 1) {
    if (i >= n) return;
    HWY_ALIGN From in[kStep] = {};
    HWY_ALIGN To out[kStep];
    std::memcpy(in, from + i, static_cast<size_t>(n - i) * sizeof(From));
    f(in, out);
    std::memcpy(to + i, out, static_cast<size_t>(n - i) * sizeof(To));
  }
}

// Contiguous storage of a type smaller than its register -> lanes.
void widen_run(DataType storage, const std::byte* from, std::byte* lanes, int64_t n) {
  const hn::ScalableTag<int32_t> di;
  const hn::ScalableTag<uint32_t> du;
  const auto promote = [&](auto zero, auto d) HWY_ATTR {
    using T = decltype(zero);
    using To = hn::TFromD<decltype(d)>;
    convert_run(reinterpret_cast<const T*>(from), reinterpret_cast<To*>(lanes), n,
                [&](const T* in, To* out) HWY_ATTR {
                  const hn::Rebind<T, decltype(d)> dn;
                  hn::StoreU(hn::PromoteTo(d, hn::LoadU(dn, in)), d, out);
                });
  };
  switch (storage) {
    case DataType::kI8:
      return promote(int8_t{}, di);
    case DataType::kI16:
      return promote(int16_t{}, di);
    case DataType::kU8:
      return promote(uint8_t{}, du);
    case DataType::kU16:
      return promote(uint16_t{}, du);
    case DataType::kBF16:
      return convert_run(reinterpret_cast<const uint16_t*>(from),
                         reinterpret_cast<uint32_t*>(lanes), n,
                         [&](const uint16_t* in, uint32_t* out) HWY_ATTR {
                           const hn::Rebind<uint16_t, decltype(du)> dn;
                           const auto wide = hn::PromoteTo(du, hn::LoadU(dn, in));
                           hn::StoreU(hn::ShiftLeft<16>(wide), du, out);
                         });
    case DataType::kF16:
#if ANNEAL_EMULATES_F16
      for (int64_t i = 0; i < n; ++i)
        reinterpret_cast<float*>(lanes)[i] = to_f32(reinterpret_cast<const Float16*>(from)[i]);
      return;
#else
      return convert_run(reinterpret_cast<const uint16_t*>(from), reinterpret_cast<float*>(lanes),
                         n, [&](const uint16_t* in, float* out) HWY_ATTR {
                           const hn::ScalableTag<float> df;
                           const hn::Rebind<hwy::float16_t, decltype(df)> dn;
                           const hn::Rebind<uint16_t, decltype(df)> dbits;
                           hn::StoreU(hn::PromoteTo(df, hn::BitCast(dn, hn::LoadU(dbits, in))), df,
                                      out);
                         });
#endif
    default:  // kBool
      return convert_run(reinterpret_cast<const uint8_t*>(from), reinterpret_cast<int32_t*>(lanes),
                         n, [&](const uint8_t* in, int32_t* out) HWY_ATTR {
                           const hn::Rebind<uint8_t, decltype(di)> dn;
                           const auto wide = hn::PromoteTo(di, hn::LoadU(dn, in));
                           hn::StoreU(hn::VecFromMask(di, hn::Gt(wide, hn::Zero(di))), di, out);
                         });
  }
}

// The way back. Values fit their storage.
void narrow_run(DataType storage, const std::byte* lanes, std::byte* to, int64_t n) {
  const hn::ScalableTag<int32_t> di;
  const auto demote = [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    convert_run(reinterpret_cast<const int32_t*>(lanes), reinterpret_cast<T*>(to), n,
                [&](const int32_t* in, T* out) HWY_ATTR {
                  const hn::Rebind<T, decltype(di)> dn;
                  hn::StoreU(hn::DemoteTo(dn, hn::LoadU(di, in)), dn, out);
                });
  };
  switch (storage) {
    case DataType::kI8:
      return demote(int8_t{});
    case DataType::kI16:
      return demote(int16_t{});
    case DataType::kU8:
      return demote(uint8_t{});
    case DataType::kU16:
      return demote(uint16_t{});
    case DataType::kBF16:
      return convert_run(reinterpret_cast<const int32_t*>(lanes), reinterpret_cast<uint16_t*>(to),
                         n, [&](const int32_t* in, uint16_t* out) HWY_ATTR {
                           const hn::Rebind<uint16_t, decltype(di)> dn;
                           const hn::RebindToUnsigned<decltype(di)> du;
                           const auto high = hn::ShiftRight<16>(hn::BitCast(du, hn::LoadU(di, in)));
                           hn::StoreU(hn::DemoteTo(dn, hn::BitCast(di, high)), dn, out);
                         });
    case DataType::kF16:
#if ANNEAL_EMULATES_F16
      for (int64_t i = 0; i < n; ++i)
        reinterpret_cast<Float16*>(to)[i] = to_f16(reinterpret_cast<const float*>(lanes)[i]);
      return;
#else
      return convert_run(reinterpret_cast<const float*>(lanes), reinterpret_cast<uint16_t*>(to), n,
                         [&](const float* in, uint16_t* out) HWY_ATTR {
                           const hn::ScalableTag<float> df;
                           const hn::Rebind<hwy::float16_t, decltype(df)> dn;
                           const hn::Rebind<uint16_t, decltype(df)> dbits;
                           const auto narrow = hn::DemoteTo(dn, hn::LoadU(df, in));
                           hn::StoreU(hn::BitCast(dbits, narrow), dbits, out);
                         });
#endif
    default:  // kBool
      return convert_run(reinterpret_cast<const int32_t*>(lanes), reinterpret_cast<uint8_t*>(to), n,
                         [&](const int32_t* in, uint8_t* out) HWY_ATTR {
                           const hn::Rebind<uint8_t, decltype(di)> dn;
                           const auto bit = hn::And(hn::LoadU(di, in), hn::Set(di, 1));
                           hn::StoreU(hn::DemoteTo(dn, bit), dn, out);
                         });
  }
}

constexpr bool is_stored_as_register(DataType storage) {
  return storage == DataType::kF32 || storage == DataType::kI32 || storage == DataType::kU32 ||
         storage == DataType::kF64 || storage == DataType::kI64 || storage == DataType::kU64;
}

// rows x columns elements -> lanes, `pitch` lanes from row to row.
void load_block(DataType storage, const TapePort& port, std::byte* lanes, int64_t pitch,
                int64_t rows, int64_t columns) {
  const size_t size = size_of(storage);
  if (is_stored_as_register(storage))
    return copy_block<false>(size, port, lanes, pitch, rows, columns);
  if (port.column_stride == 1 && (rows == 1 || columns >= 64)) {
    for (int64_t row = 0; row < rows; ++row)
      widen_run(storage, port.data + row * port.row_stride * static_cast<int64_t>(size),
                lanes + row * pitch * 4, columns);
    return;
  }
  HWY_ALIGN std::byte dense[kTileLanes * 2];
  if ((rows - 1) * pitch + columns <= kTileLanes) {
    copy_block<false>(size, port, dense, pitch, rows, columns);
    return widen_run(storage, dense, lanes, (rows - 1) * pitch + columns);
  }
  TapePort part = port;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; i += kTileLanes) {
      const int64_t count = std::min<int64_t>(columns - i, kTileLanes);
      part.data =
          port.data + (row * port.row_stride + i * port.column_stride) * static_cast<int64_t>(size);
      copy_block<false>(size, part, dense, 0, 1, count);
      widen_run(storage, dense, lanes + (row * pitch + i) * 4, count);
    }
  }
}

void store_block(DataType storage, const std::byte* lanes, int64_t pitch, const TapePort& port,
                 int64_t rows, int64_t columns) {
  const size_t size = size_of(storage);
  if (is_stored_as_register(storage))
    return copy_block<true>(size, port, const_cast<std::byte*>(lanes), pitch, rows, columns);
  if (port.column_stride == 1 && (rows == 1 || columns >= 64)) {
    for (int64_t row = 0; row < rows; ++row)
      narrow_run(storage, lanes + row * pitch * 4,
                 port.data + row * port.row_stride * static_cast<int64_t>(size), columns);
    return;
  }
  HWY_ALIGN std::byte dense[kTileLanes * 2];
  narrow_run(storage, lanes, dense, (rows - 1) * pitch + columns);
  copy_block<true>(size, port, dense, pitch, rows, columns);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
