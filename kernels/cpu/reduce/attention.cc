// Attention by blocks of rows of q on register tiles: "cpu.attention.packed".
//
// For each batch and head of k: k^T and v, which first become f32 if only q is f32, are packed into
// panels. For each block of rows: their scores, the score's program, exponentials in place, and
// their product with v, which is divided by the sums at the end. Keys that a mask hides from all
// rows of a block, before the first or behind the last that one sees, take no part. A block of
// scores stays in the second-level cache. A few rows that share a head of k, as those of a
// decoder's next token, read k and v where they lie, once (few_rows.h). If there are fewer heads of
// k than threads, these share the keys, then the heads of q, then the columns of v: each number is
// computed as by one thread.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/gemm/few_rows.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/program/epilogue.h"
#include "anneal/kernels/cpu/reduce/reduction_loops.h"
#include "anneal/kernels/cpu/reduce/score_weights.h"
#include "anneal/kernels/cpu/reference/program_map.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kScoreBytes = 192 << 10;  // of a block
constexpr int64_t kMostRowTiles = 4;
constexpr int64_t kLanes = 512;                   // of scores that meet v at a time
constexpr int64_t kFewRows = 2 * FewRows::kMost;  // more of them are faster on register tiles
// Threads that share a group of few rows have at least as much to do between their waits.
constexpr int64_t kSharedKeys = 256;
constexpr int64_t kSharedColumns = 16;  // of v: a line of a cache

struct PreparedAttention final : PreparedKernel {
  ScoreWeights::Prepared scores;
  TapeSpace output;
  int64_t heads = 0, groups = 0, queries = 0, keys = 0, depth = 0, width = 0, batches = 0;
  int64_t group_rows = 0;                         // of all heads that share one of k
  int64_t pitch = 0;                              // of a row of scores, elements
  int64_t block_rows = 1, blocks = 1, parts = 1;  // blocks of a group, in `parts` parts
  bool has_few_rows = false;
  // Of few rows: parts of the keys, and of v's columns, of a group; 1: a thread has whole groups.
  int64_t key_parts = 1, column_parts = 1;
  bool q_is_direct = false, y_is_direct = false;
  // Of many rows of f32: k and v of other types become dense f32 at these places first.
  bool is_widened = false;
  size_t wide_k_at = 0, wide_v_at = 0;
  size_t ranges_at = 0;  // of the keys that queries see
  PackLayout k_layout, v_layout;
  // Byte offsets: of a group's packed v, or scores and results, and within a thread's part.
  size_t group_bytes = 0, packed_at = 0, q_at = 0, scores_at = 0, result_at = 0, sums_at = 0,
         tape_at = 0, part_bytes = 0, parts_at = 0;
};

class PackedAttention final : public Kernel {
 public:
  PackedAttention(const Request& request, ScoreWeights weights, Epilogue epilogue)
      : score_kernels_(gemm_of(request.inputs[0].type.dtype, isa_of(request.device))),
        value_kernels_(f32_gemm(isa_of(request.device))),
        loops_(reduction_loops(isa_of(request.device))),
        few_scores_(few_rows(isa_of(request.device), request.inputs[1].type.dtype).scores),
        few_sums_(few_rows(isa_of(request.device), request.inputs[2].type.dtype).sums),
        load_(load_block(isa_of(request.device))),
        weights_(std::move(weights)),
        epilogue_(std::move(epilogue)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedAttention>();
    PreparedAttention& p = *made;
    const TensorView &q = inputs[0], &k = inputs[1], &v = inputs[2], &y = outputs[0];
    p.batches = q.dims[0], p.heads = q.dims[1], p.queries = q.dims[2], p.depth = q.dims[3];
    p.groups = k.dims[1], p.keys = k.dims[2], p.width = v.dims[3] * parts_of(v);
    p.output = epilogue_.space(inputs, outputs, {{0, 1, 2}, 3});
    if (count(y.dims) == 0) return made;
    p.group_rows = p.heads / p.groups * p.queries;
    p.k_layout = PackLayout(score_kernels_, p.depth, p.keys);
    p.v_layout = PackLayout(value_kernels_, p.keys, p.width);
    p.pitch = p.k_layout.padded_columns();
    // Rows a multiple of 4 KiB apart would push each other out of the first-level cache.
    if (p.pitch % 1024 == 0) p.pitch += 16;
    const int64_t tile = value_kernels_.tile_rows;
    const int64_t tiles = std::clamp<int64_t>(kScoreBytes / (tile * p.pitch * 4), 1, kMostRowTiles);
    // Blocks are of one head's rows.
    const int64_t per_head = ceil_div(p.queries, tile * tiles);
    p.block_rows = ceil_div(p.queries, per_head);
    p.blocks = p.heads / p.groups * per_head;
    const int64_t items = p.batches * p.groups;
    if (items < 2 * threads && threads > 1)
      p.parts = std::min(p.blocks, ceil_div(4 * threads, items));
    p.scores = weights_.prepare(inputs, {p.batches, p.heads, p.queries, p.keys}, p.pitch);
    p.q_is_direct = score_kernels_.reads(q.dtype) &&
                    p.depth % score_kernels_.elements_per_lane == 0 && q.strides[3] == 1 &&
                    (q.strides[2] * element_size() % 4096 != 0 || p.block_rows < 8);
    p.y_is_direct = epilogue_.is_copy() && y.strides[3] == 1;
    // Whatever the number of threads: results do not depend on it.
    p.has_few_rows = p.group_rows <= kFewRows && reads_where_they_lie(inputs);
    if (p.has_few_rows) {
      p.parts = 1, p.q_is_direct = true;
      if (items < threads && p.keys >= 2 * kSharedKeys) {
        const int64_t wanted = ceil_div(threads, items);
        p.key_parts = std::min(wanted, p.keys / kSharedKeys);
        p.column_parts = std::min(wanted, v.dims[3] / kSharedColumns);
      }
    }
    p.is_widened = !p.has_few_rows && q.dtype == DataType::kF32 &&
                   (k.dtype != DataType::kF32 || v.dtype != DataType::kF32);
    lay_out(p, threads);
    if (p.is_widened) {
      p.wide_k_at = cache_aligned(p.workspace_bytes);
      p.wide_v_at = p.wide_k_at + cache_aligned(wide_bytes(k));
      p.workspace_bytes = p.wide_v_at + wide_bytes(v);
    }
    p.ranges_at = cache_aligned(p.workspace_bytes);
    p.workspace_bytes = p.ranges_at + p.scores.ranges.bytes();
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedAttention&>(*args.prepared);
    if (p.output.rows() * p.output.columns() == 0) return;
    const int64_t groups = p.batches * p.groups;
    weights_.find_ranges(p.scores, args.inputs, args.team, args.workspace + p.ranges_at);
    if (p.has_few_rows) return p.key_parts > 1 ? share_few_rows(p, args) : run_few_rows(p, args);
    if (p.is_widened) {
      widen(args.inputs[1], wide(p, args, 1), args.team);
      widen(args.inputs[2], wide(p, args, 2), args.team);
    }
    if (p.parts == 1) {
      args.team.for_ranges(groups, 1, [&](int64_t begin, int64_t end) {
        std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
        for (int64_t group = begin; group < end; ++group) {
          pack_group(p, args, group, 0, panels(p), part + p.packed_at);
          for (int64_t block = 0; block < p.blocks; ++block)
            run_block(p, args, group, block, part + p.packed_at, part);
        }
      });
      return;
    }
    args.team.for_ranges(groups * panels(p), 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i / panels(p), panel = i % panels(p);
        pack_group(p, args, group, panel, panel + 1, packed_of(p, args, group));
      }
    });
    args.team.for_ranges(groups * p.parts, 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i / p.parts, of_group = i % p.parts;
        for (int64_t block = p.blocks * of_group / p.parts;
             block < p.blocks * (of_group + 1) / p.parts; ++block)
          run_block(p, args, group, block, packed_of(p, args, group), part);
      }
    });
  }

 private:
  // Numbers in an element, as FewRows asks for: two of 4 bits in a byte.
  static int parts_of(const TensorView& view) { return view.dtype == DataType::kU8 ? 2 : 1; }
  int64_t element_size() const { return static_cast<int64_t>(score_kernels_.element_size()); }
  // Bytes from row to row where q is copied.
  static int64_t q_pitch(const PreparedAttention& p) { return p.k_layout.lanes() * 4; }
  static int64_t panels(const PreparedAttention& p) {
    return p.k_layout.panels() + p.v_layout.panels();
  }
  static std::byte* packed_of(const PreparedAttention& p, const LaunchArgs& args, int64_t group) {
    return args.workspace + group * static_cast<int64_t>(p.group_bytes);
  }

  // q, k and v, as FewRows asks for.
  static bool reads_where_they_lie(std::span<const TensorView> inputs) {
    return inputs[0].dtype == DataType::kF32 &&
           std::ranges::all_of(inputs.first(3), [](const TensorView& view) {
             return view.strides[3] == 1 && view.dims[3] % FewRows::kMultiple == 0;
           });
  }

  void lay_out(PreparedAttention& p, int threads) const {
    const auto rows = static_cast<size_t>(p.has_few_rows ? p.group_rows : p.block_rows);
    if (p.has_few_rows) return lay_out_few_rows(p, rows, threads);
    p.group_bytes = p.k_layout.bytes() + p.v_layout.bytes();
    p.q_at = p.parts == 1 ? p.group_bytes : 0;
    p.scores_at =
        p.q_at + (p.q_is_direct ? 0 : cache_aligned(rows * static_cast<size_t>(q_pitch(p))));
    p.result_at = p.scores_at + cache_aligned(rows * static_cast<size_t>(p.pitch) * 4);
    const auto width = static_cast<size_t>(p.v_layout.padded_columns());
    p.sums_at = p.result_at + (p.y_is_direct ? 0 : cache_aligned(rows * width * 4));
    p.tape_at = p.sums_at + cache_aligned(rows * 4);
    p.part_bytes = cache_aligned(p.tape_at + scratch_bytes());
    p.parts_at = p.parts == 1 ? 0 : p.group_bytes * static_cast<size_t>(p.batches * p.groups);
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
  }

  size_t scratch_bytes() const {
    return std::max(epilogue_.scratch_bytes(), weights_.scratch_bytes());
  }

  // Scores, results and sums of a group lie in a thread's part, or in the group's if threads share
  // it.
  void lay_out_few_rows(PreparedAttention& p, size_t rows, int threads) const {
    p.result_at = cache_aligned(rows * static_cast<size_t>(p.pitch) * 4);
    p.sums_at = p.result_at + cache_aligned(rows * static_cast<size_t>(p.width) * 4);
    const size_t own = p.sums_at + cache_aligned(rows * 4);
    const bool is_shared = p.key_parts > 1;
    p.group_bytes = is_shared ? own : 0;
    p.tape_at = is_shared ? 0 : own;
    p.parts_at = p.group_bytes * static_cast<size_t>(p.batches * p.groups);
    p.part_bytes = cache_aligned(p.tape_at + scratch_bytes());
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
  }

  // Input 1 or 2, k or v, as it is packed.
  static TensorView wide(const PreparedAttention& p, const LaunchArgs& args, size_t input) {
    const TensorView& view = args.inputs[input];
    if (!p.is_widened || view.dtype == DataType::kF32) return view;
    Dims dims = view.dims;
    dims[3] *= parts_of(view);
    return row_major_view(DataType::kF32, dims,
                          args.workspace + (input == 1 ? p.wide_k_at : p.wide_v_at));
  }
  static size_t wide_bytes(const TensorView& view) {
    return static_cast<size_t>(count(view.dims) * parts_of(view)) * sizeof(float);
  }
  // Lanes of i32, as load_ makes them of bytes, become the numbers of a row in f32.
  static void make_floats(DataType dtype, std::byte* lanes, int64_t width) {
    for (int64_t i = 0; i < width; ++i, lanes += sizeof(float)) {
      int32_t integer;
      std::memcpy(&integer, lanes, sizeof integer);
      auto number = static_cast<float>(integer);
      if (dtype == DataType::kU8) {
        number = static_cast<float>((integer >> 4) - 8);
        std::memcpy(lanes + width * 4, &number, sizeof number);
        number = static_cast<float>((integer & 15) - 8);
      }
      std::memcpy(lanes, &number, sizeof number);
    }
  }
  void widen(const TensorView& from, const TensorView& to, ThreadTeam& team) const {
    if (from.dtype == DataType::kF32) return;
    constexpr int64_t kRowsAtOnce = 64;
    const int64_t heads = from.dims[1], rows = from.dims[2], width = from.dims[3];
    const int64_t parts = ceil_div(rows, kRowsAtOnce);  // of a head
    team.for_ranges(from.dims[0] * heads * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / parts, row = i % parts * kRowsAtOnce;
        const int64_t offset =
            head / heads * from.strides[0] + head % heads * from.strides[1] + row * from.strides[2];
        const TapePort port{from.data + offset * static_cast<int64_t>(size_of(from.dtype)), 0,
                            from.strides[2], from.strides[3]};
        const int64_t count = std::min(kRowsAtOnce, rows - row);
        const int64_t pitch = width * parts_of(from);
        std::byte* lanes = to.data + (head * rows + row) * pitch * 4;
        load_(from.dtype, port, lanes, pitch, count, width);
        for (int64_t i = 0; i < count && !is_float(from.dtype); ++i, lanes += pitch * 4)
          make_floats(from.dtype, lanes, width);
      }
    });
  }

  // Panels [begin, end) of a group: those of k^T, then those of v.
  void pack_group(const PreparedAttention& p, const LaunchArgs& args, int64_t group, int64_t begin,
                  int64_t end, std::byte* to) const {
    const auto source = [&](const TensorView& view, int along_k, int columns) {
      PackSource result;
      result.dtype = view.dtype;
      const int64_t offset =
          group / p.groups * view.strides[0] + group % p.groups * view.strides[1];
      result.data = view.data + offset * static_cast<int64_t>(size_of(view.dtype));
      result.column_stride = view.strides[columns];
      result.k_dims = {view.dims[along_k]};
      result.k_strides = {view.strides[along_k]};
      return result;
    };
    const PackSource k = source(wide(p, args, 1), 3, 2), v = source(wide(p, args, 2), 2, 3);
    const int64_t of_k = p.k_layout.panels();
    for (int64_t panel = begin; panel < end; ++panel) {
      if (panel < of_k) {
        pack_panel(p.k_layout, k, panel, to);
      } else {
        pack_panel(p.v_layout, v, panel - of_k, to + p.k_layout.bytes());
      }
    }
  }

  void run_block(const PreparedAttention& p, const LaunchArgs& args, int64_t group, int64_t number,
                 const std::byte* packed, std::byte* memory) const {
    const int64_t per_head = p.blocks / (p.heads / p.groups);
    const int64_t batch = group / p.groups;
    const int64_t head = group % p.groups * (p.heads / p.groups) + number / per_head;
    const int64_t first = number % per_head * p.block_rows;
    const int64_t rows = std::min(p.block_rows, p.queries - first);
    if (rows <= 0) return;
    auto* const scores = reinterpret_cast<float*>(memory + p.scores_at);
    const KeyRange keys = p.scores.ranges.of(args.workspace + p.ranges_at, batch, head, first, rows,
                                             p.k_layout.tile_columns);

    GemmBlock block;
    block.rows = rows, block.columns = keys.end - keys.begin;
    block.c = memory + p.scores_at + keys.begin * 4, block.c_stride = p.pitch;
    block.c_is_padded = true;
    const TensorView& q = args.inputs[0];
    const std::byte* const from =
        q.data + (batch * q.strides[0] + head * q.strides[1] + first * q.strides[2]) *
                     static_cast<int64_t>(size_of(q.dtype));
    if (!p.q_is_direct) copy_q(p, q, from, rows, memory + p.q_at);
    const auto rows_of_q = [&](int64_t k, int64_t) -> std::pair<const std::byte*, int64_t> {
      k *= element_size();
      return p.q_is_direct
                 ? std::pair{from + k, q.strides[2] * element_size()}
                 : std::pair{static_cast<const std::byte*>(memory + p.q_at) + k, q_pitch(p)};
    };
    const int64_t panel = keys.begin / p.k_layout.tile_columns;
    run_lanes(score_kernels_, p.k_layout, std::max<int64_t>(p.depth, 1),
              packed + panel * p.k_layout.panel_bytes(), {}, block, rows_of_q);
    auto* const sums = reinterpret_cast<float*>(memory + p.sums_at);
    weights_.weigh(p.scores, args.inputs, {batch, head, first, rows}, keys, scores, sums,
                   memory + p.tape_at);

    GemmBlock result;
    result.rows = rows, result.columns = p.width;
    const TensorView& y = args.outputs[0];
    if (p.y_is_direct) {
      result.c = y.data + (batch * y.strides[0] + head * y.strides[1] + first * y.strides[2]) * 4;
      result.c_stride = y.strides[2];
    } else {
      result.c = memory + p.result_at;
      result.c_stride = p.v_layout.padded_columns();
      result.c_is_padded = true;
    }
    const auto rows_of_scores = [&](int64_t k, int64_t) -> std::pair<const std::byte*, int64_t> {
      return {memory + p.scores_at + k * 4, p.pitch * 4};
    };
    run_lanes(value_kernels_, p.v_layout, kLanes, packed + p.k_layout.bytes(), {}, result,
              rows_of_scores, LaneRange{keys.begin, keys.end});
    auto* const out = reinterpret_cast<float*>(result.c);
    for (int64_t row = 0; row < rows; ++row) {
      float* const line = out + row * result.c_stride;
      loops_.map_row(Map::kAffine, line, p.width, 0, sums[row], 0, line);
    }
    if (!p.y_is_direct)
      epilogue_.run(p.output, args, {result.c, result.c_stride},
                    {(batch * p.heads + head) * p.queries + first, rows, 0, p.width},
                    memory + p.tape_at);
  }

  // Rows of q as a left-hand side.
  void copy_q(const PreparedAttention& p, const TensorView& q, const std::byte* from, int64_t rows,
              std::byte* to) const {
    if (score_kernels_.kind == GemmKind::kF32) {
      const TapePort port{const_cast<std::byte*>(from), 0, q.strides[2], q.strides[3]};
      return load_(q.dtype, port, to, p.depth, rows, p.depth);
    }
    const auto* in = reinterpret_cast<const uint16_t*>(from);
    for (int64_t row = 0; row < rows; ++row, in += q.strides[2], to += q_pitch(p)) {
      auto* const out = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < p.depth; ++i) out[i] = in[i * q.strides[3]];
      if (p.depth % 2 != 0) out[p.depth] = 0;
    }
  }

  // All rows that share a head of k, their scores and results.
  struct FewRowsGroup {
    const PreparedAttention& p;
    const LaunchArgs& args;
    int64_t batch, heads, first_head, head_of_k;
    float *scores, *results, *sums;
    KeyRange keys;  // that one of the rows sees

    FewRowsGroup(const PreparedAttention& prepared, const LaunchArgs& launched, int64_t group,
                 std::byte* memory)
        : p(prepared),
          args(launched),
          batch(group / p.groups),
          heads(p.heads / p.groups),
          first_head(group % p.groups * heads),
          head_of_k(group % p.groups),
          scores(reinterpret_cast<float*>(memory)),
          results(reinterpret_cast<float*>(memory + p.result_at)),
          sums(reinterpret_cast<float*>(memory + p.sums_at)),
          keys(visible(first_head)) {
      for (int64_t head = first_head + 1; head < first_head + heads; ++head) {
        const KeyRange of_head = visible(head);
        keys = {std::min(keys.begin, of_head.begin), std::max(keys.end, of_head.end)};
      }
    }
    KeyRange visible(int64_t head) const {
      return p.scores.ranges.of(args.workspace + p.ranges_at, batch, head, 0, p.queries, 1);
    }

    // Element `offset` of the group's head of k or v.
    const std::byte* head(const TensorView& view, int64_t offset) const {
      offset += batch * view.strides[0] + head_of_k * view.strides[1];
      return view.data + offset * static_cast<int64_t>(size_of(view.dtype));
    }
    float* row(const TensorView& view, int64_t row) const {
      return view.as<float>() + batch * view.strides[0] +
             (first_head + row / p.queries) * view.strides[1] + row % p.queries * view.strides[2];
    }
    // Calls f(first row, count) for as many rows as FewRows takes at a time.
    template <class F>
    void for_rows(F f) const {
      for (int64_t row = 0; row < p.group_rows; row += FewRows::kMost)
        f(row, static_cast<int>(std::min<int64_t>(FewRows::kMost, p.group_rows - row)));
    }
  };

  void score_keys(const FewRowsGroup& g, int64_t begin, int64_t end) const {
    const PreparedAttention& p = g.p;
    const TensorView &q = g.args.inputs[0], &k = g.args.inputs[1];
    g.for_rows([&](int64_t row, int count) {
      const float* rows[FewRows::kMost];
      for (int i = 0; i < count; ++i) rows[i] = g.row(q, row + i);
      few_scores_(g.head(k, begin * k.strides[2]), k.strides[2], end - begin, k.dims[3], rows,
                  count, g.scores + row * p.pitch + begin, p.pitch);
    });
  }

  // head: of those of the group.
  void weigh_head(const FewRowsGroup& g, int64_t head, std::byte* scratch) const {
    const PreparedAttention& p = g.p;
    weights_.weigh(p.scores, g.args.inputs, {g.batch, g.first_head + head, 0, p.queries}, g.keys,
                   g.scores + head * p.queries * p.pitch, g.sums + head * p.queries, scratch);
  }

  // Elements of rows of v, and the columns of the results that they make.
  void sum_values(const FewRowsGroup& g, int64_t begin, int64_t end) const {
    const PreparedAttention& p = g.p;
    const TensorView &v = g.args.inputs[2], &y = g.args.outputs[0];
    for (int part = 0; part < parts_of(v); ++part) {
      const int64_t column = part * v.dims[3] + begin;
      g.for_rows([&](int64_t row, int count) {
        few_sums_(g.head(v, g.keys.begin * v.strides[2] + begin), part, v.strides[2],
                  g.keys.end - g.keys.begin, end - begin, g.scores + row * p.pitch + g.keys.begin,
                  p.pitch, count, g.results + row * p.width + column, p.width);
      });
      for (int64_t row = 0; row < p.group_rows; ++row) {
        float* const line = g.results + row * p.width;
        float* const to = p.y_is_direct ? g.row(y, row) : line;
        loops_.map_row(Map::kAffine, line + column, end - begin, 0, g.sums[row], 0, to + column);
      }
    }
  }

  void finish_few_rows(const FewRowsGroup& g, std::byte* scratch) const {
    const PreparedAttention& p = g.p;
    for (int64_t head = 0; head < g.heads && !p.y_is_direct; ++head)
      epilogue_.run(p.output, g.args, {g.results + head * p.queries * p.width, p.width},
                    {(g.batch * p.heads + g.first_head + head) * p.queries, p.queries, 0, p.width},
                    scratch);
  }

  // A thread has whole groups.
  void run_few_rows(const PreparedAttention& p, const LaunchArgs& args) const {
    args.team.for_ranges(p.batches * p.groups, 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
      for (int64_t group = begin; group < end; ++group) {
        const FewRowsGroup g(p, args, group, part);
        score_keys(g, g.keys.begin, g.keys.end);
        for (int64_t head = 0; head < g.heads; ++head) weigh_head(g, head, part + p.tape_at);
        sum_values(g, 0, args.inputs[2].dims[3]);
        finish_few_rows(g, part + p.tape_at);
      }
    });
  }

  // Threads share groups.
  void share_few_rows(const PreparedAttention& p, const LaunchArgs& args) const {
    const int64_t groups = p.batches * p.groups;
    // step(group, number of `each`, scratch)
    const auto for_parts_of_groups = [&](int64_t each, const auto& step) {
      args.team.for_ranges(groups * each, 1, [&](int64_t begin, int64_t end) {
        std::byte* const scratch = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
        for (int64_t i = begin; i < end; ++i)
          step(FewRowsGroup(p, args, i / each, packed_of(p, args, i / each)), i % each, scratch);
      });
    };
    for_parts_of_groups(p.key_parts, [&](const FewRowsGroup& g, int64_t part, std::byte*) {
      const int64_t keys = g.keys.end - g.keys.begin;
      score_keys(g, g.keys.begin + part * keys / p.key_parts,
                 g.keys.begin + (part + 1) * keys / p.key_parts);
    });
    for_parts_of_groups(p.heads / p.groups,
                        [&](const FewRowsGroup& g, int64_t head, std::byte* scratch) {
                          weigh_head(g, head, scratch);
                        });
    const int64_t lines = args.inputs[2].dims[3] / kSharedColumns;
    for_parts_of_groups(p.column_parts, [&](const FewRowsGroup& g, int64_t part, std::byte*) {
      sum_values(g, part * lines / p.column_parts * kSharedColumns,
                 (part + 1) * lines / p.column_parts * kSharedColumns);
    });
    if (!p.y_is_direct)
      for_parts_of_groups(1, [&](const FewRowsGroup& g, int64_t, std::byte* scratch) {
        finish_few_rows(g, scratch);
      });
  }

  GemmKernels score_kernels_, value_kernels_;
  ReductionLoops loops_;
  decltype(FewRows::scores) few_scores_;
  decltype(FewRows::sums) few_sums_;
  LoadBlock load_;
  ScoreWeights weights_;
  Epilogue epilogue_;
};

KernelResult make_packed(const Attention& op, const Request& request) {
  for (size_t i = 0; i < 3; ++i)
    if (const DataType dtype = request.inputs[i].type.dtype;
        dtype != DataType::kF32 && !is_half(dtype) && !is_8bit(dtype))
      return refuse("only f32, f16, bf16, i8 and u8");
  auto weights = ScoreWeights::make(op, request);
  if (!weights) return refuse(weights.reason());
  auto epilogue = Epilogue::make(request, DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<PackedAttention>(request, *std::move(weights), std::move(*epilogue));
}

constexpr KernelEntry kAttentionEntries[] = {
    entry<Attention, make_packed>("cpu.attention.packed"),
};

}  // namespace

std::span<const KernelEntry> packed_attention_entries() { return kAttentionEntries; }

}  // namespace anneal::cpu
