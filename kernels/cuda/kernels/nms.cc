// NonMaxSuppression: "cuda.nms.classes". A group is a class of an image. The kept boxes are those
// of cpu.nms.reference, since both compute in f32 and nothing is contracted.
#include <fmt/format.h>

#include <bit>
#include <limits>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/kernels/selecting_kernel.h"
#include "anneal/kernels/nms_limits.h"

namespace anneal::cuda {
namespace {

int64_t bits_of_float(float value) { return std::bit_cast<uint32_t>(value); }

// "image", "type", the class, "boxes", the number of boxes, and "order", that of `keep`.
std::string class_text(Extents& extents) {
  return fmt::format(
      "const i64 image = group / {0}, type = group % {0};\nconst i32 boxes = i32({1});\n"
      "const auto order = state + group * boxes;\n",
      extents.input_dim(1, 1), extents.input_dim(1, 2));
}

KernelResult make_nms(const NonMaxSuppression& op, const Request& request) {
  Extents of_count(request), of_write(request);
  const auto store = StoreText::make(request, DataType::kI64, of_write);
  if (!store) return refuse(store.reason());
  const std::vector<std::string_view> headers = {"program.h", "lanes.h", "rows.h", "scan.h",
                                                 "select.h",  "top_k.h", "nms.h"};
  const auto box = [&](int number) {
    return fmt::format("x0[image * {} + i * {} + {} * {}]", of_count.input_stride(0, 0),
                       of_count.input_stride(0, 1), number, of_count.input_stride(0, 2));
  };
  const std::string counting = fmt::format(
      "{class_of}"
      "const auto score = [&](i64 i) {{ return x1[image * {s0} + type * {s1} + i * {s2}]; }};\n"
      "const auto box = [&](i64 i) {{\n  return nms::box_of({a}, {b}, {c}, {d}, {centre});\n}};\n"
      "const auto takes = [&](f32 s) {{ return has_least != 0 ? s > least : s == s; }};\n"
      "const i64 kept = nms::keep(boxes, most, threshold, best, order, takes, score, box);\n"
      "if (threadIdx.x == 0) counts[group] = kept;\n",
      fmt::arg("class_of", class_text(of_count)), fmt::arg("s0", of_count.input_stride(1, 0)),
      fmt::arg("s1", of_count.input_stride(1, 1)), fmt::arg("s2", of_count.input_stride(1, 2)),
      fmt::arg("a", box(0)), fmt::arg("b", box(1)), fmt::arg("c", box(2)), fmt::arg("d", box(3)),
      fmt::arg("centre", op.center_point_box));
  const std::string writing = fmt::format("const Store store = {};\n", store->construction());
  const std::string write_body =
      class_text(of_write) +
      "const i64 first = select::sum(i64(0), group, partial, [&](i64 i) { return counts[i]; });\n"
      "for (i32 i = i32(threadIdx.x); i < boxes; i += 256) {\n"
      "const i64 row = first + order[i] - 1;\nif (order[i] <= 0) continue;\n"
      "store(image, row, i64(0));\nstore(type, row, i64(1));\nstore(i64(i), row, i64(2));\n}\n";
  SelectParts parts{.inputs = 2, .op_inputs = static_cast<size_t>(request.op_input_count)};
  parts.count = code_of(request.device)
                    .add(select_text({"nms_count", headers, "", input_parameters(request, 2),
                                      ", Out<i64> counts, Out<i32> state, i64 groups, i64 most, "
                                      "i64 threshold_bits, i64 least_bits, i64 has_least" +
                                          of_count.parameters(),
                                      "SHARED(u64, best, 8);\n"
                                      "const f32 threshold = __uint_as_float(u32(threshold_bits)), "
                                      "least = __uint_as_float(u32(least_bits));\n",
                                      counting}));
  parts.write =
      code_of(request.device)
          .add(select_text({"nms_write", headers, store->definition(), input_parameters(request, 2),
                            store->parameters() + ", In<i64> counts, In<i32> state, i64 groups" +
                                of_write.parameters(),
                            writing, write_body}));
  parts.count_sources = of_count.sources(), parts.write_sources = of_write.sources();
  parts.groups = [](SelectParts::Views inputs) {
    const Dims& scores = inputs[1].dims;
    if (scores[2] > std::numeric_limits<int32_t>::max())
      fail(ErrorCode::kUnsupported, "more than 2^31 boxes");
    return count(scores) == 0 ? 0 : scores[0] * scores[1];
  };
  parts.state = [](SelectParts::Views inputs) { return count(inputs[1].dims); };
  parts.limits = [](Arguments& arguments, SelectParts::Views inputs) {
    const NmsLimits limits = nms_limits(inputs);
    arguments.add(limits.most);
    arguments.add(bits_of_float(limits.overlap));
    arguments.add(bits_of_float(limits.score.value_or(0)));
    arguments.add(int64_t{limits.score ? 1 : 0});
  };
  parts.dims = [](SelectParts::Views, int64_t selected) { return Dims{selected, 3}; };
  return make_selecting_kernel(std::move(parts), request);
}

constexpr KernelEntry kNmsEntries[] = {
    entry<NonMaxSuppression, make_nms>("cuda.nms.classes"),
};

}  // namespace

std::span<const KernelEntry> nms_entries() { return kNmsEntries; }

}  // namespace anneal::cuda
