// The only access to oneDNN 2, which is opened at run time if it is installed and is never linked.
// ANNEAL_ONEDNN decides: 0 never, 1 or absent if it is installed, else the path of the library.
// ANNEAL_MAX_ISA caps its instruction sets, too.
//
// Threads. oneDNN brings OpenMP's pool, and we have our own; two pools that spin steal each other's
// cores. So OpenMP never starts a thread for us. Primitives are created and run with one OpenMP
// thread, on the thread of our ThreadTeam that claims the piece of work. The caller's own OpenMP
// setting is restored afterwards. Primitives do not depend on the number of threads, so results do
// not either.
//
// ThreadSanitizer does not see how OpenMP orders threads: `make test-tsan` switches oneDNN off.
//
// An implementation whose name contains "ref" or "simple" is refused: those are up to 400 times
// slower than ours.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "anneal/core/device.h"
#include "anneal/core/isa.h"
#include "anneal/core/result.h"
#include "anneal/core/tensor.h"

namespace anneal::cpu::onednn {

// Why kernels of a device with these instruction sets cannot use oneDNN; empty if they can. The
// first call opens the library.
std::string why_unavailable(Isa isa);
std::string version();  // "2.6.3". REQUIRES: available
// Of the instruction sets it may use. REQUIRES: available
bool has_avx512();
bool has_vnni();
bool has_bf16();
// Empty if the implementation of this name is worth using.
std::string why_refused(std::string_view implementation);

// One operand: f32, bf16, i32, i8 or u8 elements, anywhere.
struct Operand {
  DataType dtype = DataType::kF32;
  Dims dims, strides;
  bool operator==(const Operand&) const = default;
};

// Operations on sums before they are stored. Numbers per column (output channel) are given to
// Call::run().
struct PostOps {
  bool offset = false;  // one per column is added
  bool addend = false;  // what y holds before is added
  // Instead of an addend: (sum * scale + offset) * factor, each step rounded to f32 and absent
  // steps left out, is limited to [low, high] and rounded to the nearest whole number, ties to
  // even; zero is added.
  struct Requantize {
    bool scale = false;  // one per column
    float factor = 1, low = 0, high = 0;
    int32_t zero = 0;
    bool operator==(const Requantize&) const = default;
  };
  std::optional<Requantize> requantize;
  bool operator==(const PostOps&) const = default;
};

// y = conv(x - x_zero, w), without bias. w as in Conv. 8-bit x and w give i32, others f32, unless
// post-ops make something else of it.
struct ConvShape {
  Operand x, w, y;
  int64_t groups = 1;
  Dims strides, dilations, pads_begin, pads_end;
  int32_t x_zero = 0;
  bool winograd = false;  // by Winograd's algorithm, between reorders if it wants them
  PostOps post_ops;
  bool operator==(const ConvShape&) const = default;
};
// y = (x - x_zero) w, two-dimensional.
struct MatMulShape {
  Operand x, w, y;
  int32_t x_zero = 0;
  PostOps post_ops;
  bool operator==(const MatMulShape&) const = default;
};
// The maximum of each window. For f32 it would lose NaN and -infinity.
struct PoolShape {
  Operand x, y;
  Dims kernel, strides, dilations, pads_begin, pads_end;
  bool operator==(const PoolShape&) const = default;
};

class Primitive;
using PrimitiveResult = Result<std::unique_ptr<const Primitive>>;  // never null

// Code for one shape, and the layout in which it wants its weights. Immutable.
class Primitive {
 public:
  // Refuses a shape for which oneDNN has nothing good. like: one whose packed weights
  // must do for this one, too; may be null. REQUIRES: available
  static PrimitiveResult make(const ConvShape& shape, const Primitive* like);
  static PrimitiveResult make(const MatMulShape& shape, const Primitive* like);
  static PrimitiveResult make(const PoolShape& shape);
  ~Primitive();

  const std::string& implementation() const;  // "brgconv:avx512_core"
  size_t packed_bytes() const;
  size_t scratch_bytes() const;  // reordered operands included
  bool packs_like(const Primitive& other) const;
  std::string packed_form() const;  // library and layout, as packed_constant() wants them
  // The weights the primitive was made for, from where they are. False: oneDNN cannot.
  bool pack(const std::byte* weights, std::byte* to) const;

 private:
  friend class Call;
  struct State;
  explicit Primitive(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Runs a primitive, on one thread at a time. Must not outlive it.
class Call {
 public:
  explicit Call(const Primitive& primitive);
  Call(Call&&) noexcept;
  ~Call();
  struct Memory {
    const std::byte *x = nullptr, *packed = nullptr;                  // packed: null for a pool
    const float *column_scales = nullptr, *column_offsets = nullptr;  // as PostOps wants them
    std::byte* y = nullptr;
    std::byte* scratch = nullptr;  // 64-byte aligned, scratch_bytes() of it
  };
  void run(const Memory& memory) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace anneal::cpu::onednn
