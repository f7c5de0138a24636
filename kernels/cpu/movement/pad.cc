// "cpu.pad.copy": the input is copied, then each axis is extended, the last one first, by slabs of
// the output that are already written.
#include "anneal/kernels/cpu/reference/pad.h"

#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/base/element.h"
#include "anneal/kernels/cpu/base/entries.h"

namespace anneal::cpu {
namespace {

class PadCopy final : public Kernel {
 public:
  PadCopy(PadMode mode, DataType dtype)
      : mode_(mode), element_(size_of(dtype)), bytes_(static_cast<int64_t>(element_)) {}

  // Pads may be known only now; copy plans allocate nothing.
  void launch(const LaunchArgs& args) const override {
    const TensorView &x = args.inputs[0], &y = args.outputs[0];
    if (count(y.dims) == 0) return;
    static constexpr std::byte kZero[8] = {};
    const bool has_value = args.inputs.size() > 2 && args.inputs[2].data != nullptr;
    const Inside inside = place(x, args.inputs[1], y);
    const bool is_in_place = x.data == y.data && x.strides == y.strides;
    if (is_in_place && inside.from != inside.to)
      fail(ErrorCode::kInvalidArgument, "Pad: an output that updates its input begins elsewhere");
    if (count(inside.dims) > 0 && !is_in_place)
      CopyPlan(element_, inside.dims, x.strides, y.strides)
          .run(x.data + inside.from, y.data + inside.to, args.team);
    for (int axis = x.dims.rank() - 1; axis >= 0; --axis)
      extend(axis, inside, y, has_value ? args.inputs[2].data : kZero, args.team);
  }

 private:
  struct Inside {
    Dims dims, begins;         // in y
    int64_t from = 0, to = 0;  // bytes, of its first element in x and in y
  };

  Inside place(const TensorView& x, const TensorView& pads, const TensorView& y) const {
    Inside inside{x.dims, x.dims};
    const int rank = x.dims.rank();
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t begin = load_integer(pads, axis * pads.strides[0]);
      const int64_t end = load_integer(pads, (axis + rank) * pads.strides[0]);
      const int64_t crop = cropped(begin, x.dims[axis]);
      inside.dims[axis] -= crop + cropped(end, x.dims[axis] - crop);
      inside.begins[axis] = std::max<int64_t>(begin, 0);
      inside.from += crop * x.strides[axis] * bytes_;
      inside.to += inside.begins[axis] * y.strides[axis] * bytes_;
      if (inside.begins[axis] + inside.dims[axis] + std::max<int64_t>(end, 0) != y.dims[axis])
        fail(ErrorCode::kInvalidArgument, "Pad: pads that do not give the output's shape");
    }
    return inside;
  }

  // Positions outside of the axis, in runs that one copy takes: their elements lie evenly.
  void extend(int axis, const Inside& inside, const TensorView& y, const std::byte* value,
              ThreadTeam& team) const {
    const int64_t begin = inside.begins[axis], size = inside.dims[axis],
                  last = y.dims[axis] - begin;
    for (int64_t at = -begin; at < last;) {
      if (at == 0) at = size;
      if (at == last) break;
      const int64_t stop = at < 0 ? 0 : last;
      const int64_t source = padded_position(mode_, at, size);
      int64_t length = 1, step = 0;
      if (source < 0) {
        length = stop - at;
      } else if (at + 1 < stop) {
        step = padded_position(mode_, at + 1, size) - source;
        while (at + length < stop &&
               padded_position(mode_, at + length, size) == source + step * length)
          ++length;
      }
      copy_slab({axis, at, length, source, step}, inside, y, value, team);
      at += length;
    }
  }

  struct Slab {
    int axis;
    int64_t at, length;    // along it, from the inside's first
    int64_t source, step;  // likewise; source < 0: the value
  };
  void copy_slab(const Slab& slab, const Inside& inside, const TensorView& y,
                 const std::byte* value, ThreadTeam& team) const {
    Dims dims = y.dims, from = y.strides;
    int64_t offset = 0;
    for (int axis = 0; axis < slab.axis; ++axis) {
      dims[axis] = inside.dims[axis];
      offset += inside.begins[axis] * y.strides[axis];
    }
    const int64_t begin = inside.begins[slab.axis], stride = y.strides[slab.axis];
    dims[slab.axis] = slab.length;
    if (count(dims) == 0) return;
    std::byte* const to = y.data + (offset + (begin + slab.at) * stride) * bytes_;
    if (slab.source < 0) {
      CopyPlan(element_, dims, Dims::filled(dims.rank(), 0), y.strides).run(value, to, team);
      return;
    }
    from[slab.axis] = slab.step * stride;
    CopyPlan(element_, dims, from, y.strides)
        .run(y.data + (offset + (begin + slab.source) * stride) * bytes_, to, team);
  }

  PadMode mode_;
  size_t element_;
  int64_t bytes_;
};

KernelResult make_pad(const Pad& op, const Request& request) {
  if (!request.epilogues.empty() && !request.epilogues[0].empty()) return refuse("an epilogue");
  return std::make_unique<PadCopy>(op.mode, request.inputs[0].type.dtype);
}

constexpr KernelEntry kPadEntries[] = {entry<Pad, make_pad>("cpu.pad.copy")};

}  // namespace

std::span<const KernelEntry> pad_entries() { return kPadEntries; }

}  // namespace anneal::cpu
