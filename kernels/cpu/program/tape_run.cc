// run_tape(): loads a block into tiles, runs the steps over them and stores the results.
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/program/tape_run.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/base/byte_lookup.h"
#include "anneal/kernels/cpu/base/transpose_square.h"
#include "anneal/kernels/cpu/program/tape.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/bf16_approximations-inl.h"
//
#include "anneal/kernels/cpu/program/tape_lanes-inl.h"
//
#include "anneal/kernels/cpu/program/tape_transfer-inl.h"
//
#include "anneal/kernels/cpu/program/tape_convert-inl.h"
//
#include "anneal/kernels/cpu/program/tape_ops-inl.h"

#ifndef ANNEAL_TAPE_SHAPE
#define ANNEAL_TAPE_SHAPE
namespace anneal::cpu {
namespace {

constexpr int64_t kPad = 16;  // lanes of the widest vector of 32 bits

int64_t padded(int64_t lanes) { return align_up(lanes, kPad); }

// Rows of many columns each begin at a vector; short ones lie dense, so that lanes are not wasted.
bool has_long_rows(int64_t columns) { return columns >= 64 || columns % kPad == 0; }

bool is_wide(RegisterType type) {
  return type == RegisterType::kF64 || type == RegisterType::kI64 || type == RegisterType::kU64;
}

}  // namespace
}  // namespace anneal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

class Block {
 public:
  Block(const Tape& tape, int64_t rows, int64_t columns, std::span<const TapePort> ports,
        std::span<const TapePort> sinks, std::byte* scratch)
      : tape_(tape),
        rows_(rows),
        columns_(columns),
        ports_(ports),
        sinks_(sinks),
        scratch_(scratch) {
    const bool long_rows = rows == 1 || has_long_rows(columns);
    pitch_ = long_rows ? padded(columns) : columns;
    extent_ = long_rows ? Extent{rows, pitch_} : Extent{1, padded(rows * columns)};
    valid_ = long_rows ? Extent{rows, columns} : Extent{1, rows * columns};
    exact_ = extent_.width == valid_.width;
  }

  void run() {
    const auto steps = tape_.steps();
    for (size_t at = 0; at < steps.size(); ++at) {
      const TapeStep& step = steps[at];
      if (step.instruction.opcode == Opcode::kInput) {
        load(step);
      } else if (step.instruction.opcode == Opcode::kIndex) {
        load_index(step);
      } else {
        compute(step, at + 1 == steps.size());
      }
    }
    for (size_t i = 0; i < tape_.results().size(); ++i) store(i);
  }

 private:
  std::byte* memory(int16_t slot) const {
    return scratch_ + tape_.slot_offsets()[static_cast<size_t>(slot)];
  }
  Lanes lanes_of(int16_t operand) const {
    if (operand >= 0) return slots_[static_cast<size_t>(operand)];
    const auto& constant = tape_.constants()[static_cast<size_t>(-1 - operand)];
    return {const_cast<std::byte*>(constant.bytes.data()), 0, 0};
  }
  static bool is_uniform(const Lanes& lanes) {
    return lanes.column_step == 0 && lanes.row_step == 0;
  }
  // Lanes of a whole tile in the slot.
  Lanes full(int16_t slot) const { return {memory(slot), extent_.rows == 1 ? 0 : pitch_, 1}; }

  // Whether vectors can be read from, or written to, the memory of the port itself.
  bool is_direct(DataType storage, const TapePort& port) const {
    if (!is_stored_as_register(storage) || port.column_stride != 1 || !exact_) return false;
    return extent_.rows > 1 || rows_ == 1 || port.row_stride == columns_;
  }

  void load(const TapeStep& step) {
    const TapePort& port = ports_[step.port];
    Lanes& lanes = slots_[static_cast<size_t>(step.slot)];
    std::byte* const to = memory(step.slot);
    const bool many_rows = rows_ > 1 && port.row_stride != 0;
    const bool many_columns = columns_ > 1 && port.column_stride != 0;
    if (!many_rows && !many_columns) {
      const TapePort repeated{port.data, 0, 0, 0};
      load_block(step.storage, repeated, to, kPad, 1, kPad);
      lanes = {to, 0, 0};
    } else if (is_direct(step.storage, port)) {
      lanes = {port.data, extent_.rows == 1 ? 0 : port.row_stride, 1};
    } else if (extent_.rows > 1 && !many_columns) {
      const TapePort repeated{port.data, 0, port.row_stride, 0};
      load_block(step.storage, repeated, to, kPad, rows_, kPad);
      lanes = {to, kPad, 0};
    } else if (extent_.rows > 1 && !many_rows) {
      load_block(step.storage, port, to, pitch_, 1, columns_);
      lanes = {to, 0, 1};
    } else {
      load_block(step.storage, port, to, pitch_, rows_, columns_);
      lanes = full(step.slot);
    }
  }

  void load_index(const TapeStep& step) {
    const TapePort& port = ports_[step.port];
    auto* const to = reinterpret_cast<int64_t*>(memory(step.slot));
    Lanes& lanes = slots_[static_cast<size_t>(step.slot)];
    if (port.row_stride == 0 && port.column_stride == 0) {
      for (int64_t i = 0; i < kPad; ++i) to[i] = port.first;
      lanes = {memory(step.slot), 0, 0};
      return;
    }
    const auto count_up = [](int64_t* at, int64_t n, int64_t first, int64_t by) {
      for (int64_t i = 0; i < n; ++i) at[i] = first + i * by;
    };
    if (extent_.rows > 1 && port.column_stride == 0) {
      for (int64_t row = 0; row < rows_; ++row)
        count_up(to + row * kPad, kPad, port.first + row * port.row_stride, 0);
      lanes = {memory(step.slot), kPad, 0};
    } else if (extent_.rows > 1 && port.row_stride == 0) {
      count_up(to, columns_, port.first, port.column_stride);
      lanes = {memory(step.slot), 0, 1};
    } else {
      for (int64_t row = 0; row < rows_; ++row)
        count_up(to + row * pitch_, columns_, port.first + row * port.row_stride,
                 port.column_stride);
      lanes = full(step.slot);
    }
  }

  void compute(const TapeStep& step, bool last) {
    Work work{step, extent_, valid_, {}, {}};
    bool uniform = true;
    for (int i = 0; i < step.operand_count; ++i) {
      work.in[i] = lanes_of(step.operands[i]);
      uniform = uniform && is_uniform(work.in[i]);
    }
    if (uniform) {
      work.extent = work.valid = {1, kPad};
      work.out = {memory(step.slot), 0, 1};
      run_step(work);
      slots_[static_cast<size_t>(step.slot)] = {memory(step.slot), 0, 0};
      return;
    }
    // The only result may be written where it belongs; with several, a sink could be the memory of
    // an input that is still to be stored.
    const auto results = tape_.results();
    if (last && results.size() == 1 && results[0].operand == step.slot &&
        results[0].storage != DataType::kBool && is_direct(results[0].storage, sinks_[0])) {
      work.out = {sinks_[0].data, extent_.rows == 1 ? 0 : sinks_[0].row_stride, 1};
      stored_ = true;
    } else {
      work.out = full(step.slot);
    }
    run_step(work);
    slots_[static_cast<size_t>(step.slot)] = work.out;
  }

  void store(size_t i) {
    if (stored_) return;
    const TapeResult& result = tape_.results()[i];
    const TapePort& sink = sinks_[i];
    const Lanes lanes = lanes_of(result.operand);
    const size_t size = is_wide(result.type) ? 8 : 4;
    if (lanes.column_step == 1 && lanes.row_step != 0) {
      store_block(result.storage, lanes.data, lanes.row_step, sink, rows_, columns_);
    } else if (lanes.column_step == 1 && (extent_.rows == 1)) {
      store_block(result.storage, lanes.data, pitch_, sink, rows_, columns_);
    } else {
      store_repeated(result, lanes, sink, size);
    }
  }

  // Lanes that stand for more than one element: spread over one row, then stored row by row.
  void store_repeated(const TapeResult& result, const Lanes& lanes, const TapePort& sink,
                      size_t size) {
    HWY_ALIGN std::byte spread[kTileLanes * 8];
    const size_t size_stored = size_of(result.storage);
    TapePort to = sink;
    for (int64_t row = 0; row < rows_; ++row) {
      const std::byte* from = lanes.data + row * lanes.row_step * static_cast<int64_t>(size);
      if (row == 0 || lanes.row_step != 0)
        for (int64_t i = 0; i < columns_; ++i)
          std::memcpy(spread + i * static_cast<int64_t>(size),
                      from + i * lanes.column_step * static_cast<int64_t>(size), size);
      to.data = sink.data + row * sink.row_stride * static_cast<int64_t>(size_stored);
      store_block(result.storage, spread, columns_, to, 1, columns_);
    }
  }

  const Tape& tape_;
  const int64_t rows_, columns_;
  const std::span<const TapePort> ports_, sinks_;
  std::byte* const scratch_;
  int64_t pitch_ = 0;
  Extent extent_, valid_;
  bool exact_ = false, stored_ = false;
  std::array<Lanes, kMaxTapeSlots> slots_;
};

}  // namespace

void load_lanes(DataType storage, const TapePort& port, std::byte* lanes, int64_t pitch,
                int64_t rows, int64_t columns) {
  load_block(storage, port, lanes, pitch, rows, columns);
}

// In vector_program_run.cc.
bool vector_program_fits(int64_t columns, const TapePort& sink);
void run_vector_program(const VectorProgram& chain, int64_t rows, int64_t columns,
                        std::span<const TapePort> ports, const TapePort& sink);

namespace {

TapePort turned(const TapePort& port) {
  return {port.data, port.first, port.column_stride, port.row_stride};
}

bool vector_programs_fit(const Tape& tape, int64_t columns, std::span<const TapePort> ports,
                         std::span<const TapePort> sinks) {
  const size_t count = tape.vector_programs().size();
  for (size_t i = 0; i < count; ++i) {
    if (!vector_program_fits(columns, sinks[i])) return false;
    // No vector program may read a port that another one writes.
    for (const TapePort& port : ports)
      if (count > 1 && port.data == sinks[i].data) return false;
  }
  return count > 0;
}

void run_vector_programs(const Tape& tape, int64_t rows, int64_t columns,
                         std::span<const TapePort> ports, std::span<const TapePort> sinks) {
  const std::span<const VectorProgram> programs = tape.vector_programs();
  for (size_t i = 0; i < programs.size(); ++i)
    run_vector_program(programs[i], rows, columns, ports, sinks[i]);
}

using Ports = std::array<TapePort, kMaxTapePorts>;

// The ports of the elements from a row and a column on.
void move_ports(const Tape& tape, std::span<const TapePort> ports, std::span<const TapePort> sinks,
                int64_t row, int64_t column, Ports& from, Ports& to) {
  const auto move = [&](std::span<const TapePort> all, Ports& moved, auto size) {
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t offset = row * all[i].row_stride + column * all[i].column_stride;
      moved[i] = all[i];
      if (all[i].data == nullptr) {
        moved[i].first += offset;
      } else {
        moved[i].data += offset * static_cast<int64_t>(size(i));
      }
    }
  };
  move(ports, from, [&](size_t i) { return size_of(tape.input_types()[i]); });
  move(sinks, to, [&](size_t i) { return size_of(tape.results()[i].storage); });
}

// Elements of 32 bits that lie together down the rows, and apart in a row.
bool is_turned_input(DataType dtype, const TapePort& port) {
  return size_of(dtype) == 4 && port.row_stride == 1 && port.column_stride > 1;
}

constexpr int64_t kPieceRows = 16, kPieceColumns = 64;
constexpr size_t kMostPieces = 2;
using Piece = uint32_t[kPieceRows * kPieceColumns];

// Makes `port` that of a copy whose rows are dense.
void make_rows_dense(int64_t rows, int64_t columns, Piece& copy, TapePort& port) {
  const auto* const from = reinterpret_cast<const uint32_t*>(port.data);
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t column = 0; column < whole_columns; column += 4)
    for (int64_t row = 0; row < whole_rows; row += 4)
      transpose_square(from + column * port.column_stride + row, port.column_stride,
                       copy + row * kPieceColumns + column, kPieceColumns);
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = column < whole_columns ? whole_rows : 0; row < rows; ++row)
      copy[row * kPieceColumns + column] = from[column * port.column_stride + row];
  port = {reinterpret_cast<std::byte*>(copy), 0, kPieceColumns, 1};
}

// Runs the vector programs on pieces of the block. Of each piece at most kMostPieces turned inputs
// are transposed first; lanes of further ones are gathered one at a time, which costs more.
bool run_on_dense_rows(const Tape& tape, int64_t rows, int64_t columns,
                       std::span<const TapePort> ports, std::span<const TapePort> sinks) {
  if (!vector_programs_fit(tape, columns, ports, sinks)) return false;
  const std::span<const DataType> types = tape.input_types();
  std::array<size_t, kMostPieces> turned_inputs{};
  size_t count = 0;
  for (size_t i = 0; i < types.size() && count < kMostPieces; ++i)
    if (is_turned_input(types[i], ports[i])) turned_inputs[count++] = i;
  if (count == 0) {
    run_vector_programs(tape, rows, columns, ports, sinks);
    return true;
  }
  HWY_ALIGN Piece copies[kMostPieces];
  Ports from, to;
  for (int64_t column = 0, width = 0; column < columns; column += width) {
    // No piece is narrower than a vector, if the block is not.
    width = std::min(columns - column, kPieceColumns);
    if (const int64_t rest = columns - column - width; rest > 0 && rest < kPad) width -= kPad;
    for (int64_t row = 0; row < rows; row += kPieceRows) {
      const int64_t height = std::min(rows - row, kPieceRows);
      move_ports(tape, ports, sinks, row, column, from, to);
      for (size_t i = 0; i < count; ++i)
        make_rows_dense(height, width, copies[i], from[turned_inputs[i]]);
      run_vector_programs(tape, height, width, std::span(from).first(ports.size()),
                          std::span(to).first(sinks.size()));
    }
  }
  return true;
}

// Rows and columns change places where results are contiguous down the rows.
bool run_as_vector_programs(const Tape& tape, int64_t rows, int64_t columns,
                            std::span<const TapePort> ports, std::span<const TapePort> sinks) {
  if (sinks[0].row_stride != 1 || sinks[0].column_stride == 1)
    return run_on_dense_rows(tape, rows, columns, ports, sinks);
  Ports from, to;
  std::transform(ports.begin(), ports.end(), from.begin(), turned);
  std::transform(sinks.begin(), sinks.end(), to.begin(), turned);
  return run_on_dense_rows(tape, columns, rows, std::span(from).first(ports.size()),
                           std::span(to).first(sinks.size()));
}

}  // namespace

void run_block(const Tape& tape, int64_t rows, int64_t columns, std::span<const TapePort> ports,
               std::span<const TapePort> sinks, std::byte* scratch) {
  if (run_as_vector_programs(tape, rows, columns, ports, sinks)) return;
  const int64_t tile_columns = std::min<int64_t>(columns, kTileLanes);
  const int64_t height = tile_rows(tile_columns);
  if (rows <= height && columns <= tile_columns)
    return Block(tape, rows, columns, ports, sinks, scratch).run();
  Ports from, to;
  for (int64_t row = 0; row < rows; row += height)
    for (int64_t column = 0; column < columns; column += tile_columns) {
      move_ports(tape, ports, sinks, row, column, from, to);
      Block(tape, std::min(height, rows - row), std::min(tile_columns, columns - column),
            std::span(from).first(ports.size()), std::span(to).first(sinks.size()), scratch)
          .run();
    }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

int64_t tile_rows(int64_t columns) {
  return has_long_rows(columns) ? kTileLanes / padded(columns) : kTileLanes / columns;
}

namespace {

void look_up_block(const std::array<uint8_t, 256>& table, LookUpBytes look_up, int64_t rows,
                   int64_t columns, const TapePort& sink) {
  auto* row = reinterpret_cast<uint8_t*>(sink.data);
  if (sink.column_stride == 1 && sink.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  for (int64_t i = 0; i < rows; ++i, row += sink.row_stride) {
    if (sink.column_stride == 1) {
      look_up(table.data(), row, row, columns);
      continue;
    }
    for (int64_t c = 0; c < columns; ++c)
      row[c * sink.column_stride] = table[row[c * sink.column_stride]];
  }
}

template <RunTape kRun, Isa kIsa>
void run_and_look_up(const Tape& tape, int64_t rows, int64_t columns,
                     std::span<const TapePort> ports, std::span<const TapePort> sinks,
                     std::byte* scratch) {
  kRun(tape, rows, columns, ports, sinks, scratch);
  if (const auto* table = tape.table())
    look_up_block(*table, look_up_bytes(kIsa), rows, columns, sinks[0]);
}

template <Isa kIsa>
constexpr RunTape kRunTape = run_and_look_up<ANNEAL_BY_ISA(kIsa, run_block), kIsa>;

}  // namespace

RunTape run_tape(Isa isa) {
  switch (isa) {
    case Isa::kFull:
      return kRunTape<Isa::kFull>;
    case Isa::kAvx512:
      return kRunTape<Isa::kAvx512>;
    case Isa::kAvx2:
      return kRunTape<Isa::kAvx2>;
    default:
      return kRunTape<Isa::kBaseline>;
  }
}
LoadBlock load_block(Isa isa) { return ANNEAL_BY_ISA(isa, load_lanes); }

}  // namespace anneal::cpu
#endif
