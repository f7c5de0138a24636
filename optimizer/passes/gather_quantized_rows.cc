// gather_quantized_rows: rows of a quantized table are gathered before they are dequantized.
//
//   y = Gather(Dequantize(t, s, z), i)   =>   q = Gather(t, i); p = Gather(s, i); r = Gather(z, i)
//                                             y = Pointwise(q, p, r)
//                                             program=mul(f32(sub($0,$2)),$1)
//
// Where t is a constant matrix of 8 bits, as the embeddings of a language model are, with a scale
// for each row or for each block of a row, and a run gathers fewer rows than it has. So neither the
// engine file nor the memory holds the table as floats, and a run reads only the rows it needs.
// Where no two of the integers differ by more than 15 or 3, the table has two or four of them in
// each byte, as MatMul::b_encoding has them: a product by the same weights reads the same constant.
//
// Equal to the bit: the difference is exact, and its product with the scale is rounded once, to the
// type of the scale.
#include <fmt/format.h>

#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/packed_weights.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// A constant table [rows, depth], quantized by blocks of a row.
struct Table {
  Tensor integers;              // of 8 bits, or codes: [rows, bytes]
  Tensor scales;                // [rows, blocks]
  std::optional<Tensor> zeros;  // of the scales' shape; none: `middle`
  int middle = 0;
  WeightEncoding encoding = WeightEncoding::kIntegers;
  bool is_packed() const { return encoding != WeightEncoding::kIntegers; }
  int64_t depth() const { return integers.dims()[1] * codes_in_byte(encoding); }
};

// nullopt: its parameters are no constants, or not those of rows.
std::optional<Table> table_of(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  const auto& op = *op_as<Dequantize>(graph, id);
  const Tensor* integers = graph.constant(layer.inputs[0]);
  const Tensor* scales = graph.constant(layer.inputs[1]);
  if (!integers || !scales || !layer.epilogues.empty() || !has_integers(op.encoding))
    return std::nullopt;
  const Dims dims = integers->dims();
  if (!is_8bit(integers->dtype()) || dims.rank() != 2 || integers->count() == 0)
    return std::nullopt;
  const bool has_blocks = op.block_size > 0;
  if (has_blocks ? op.axis != 1 || dims[1] % op.block_size != 0
                 : op.axis != 0 || scales->count() != dims[0])
    return std::nullopt;
  Table table{.integers = *integers,
              .scales = reshaped(*scales, {dims[0], scales->count() / dims[0]}),
              .zeros = {}};
  if (layer.inputs.size() < 3 || layer.inputs[2] == ValueId::kNone) return table;
  const Tensor* zeros = graph.constant(layer.inputs[2]);
  if (!zeros || zeros->count() != scales->count()) return std::nullopt;
  table.zeros = reshaped(*zeros, table.scales.dims());
  return table;
}

Table packed_where_possible(Table table, int threads) {
  const int64_t block = table.integers.dims()[1] / table.scales.dims()[1];
  auto fewer = in_fewer_bits(table.integers, table.scales, table.zeros ? &*table.zeros : nullptr,
                             true, block, threads);
  if (!fewer) return table;
  return {.integers = std::move(fewer->codes),
          .scales = std::move(fewer->scales),
          .zeros = std::move(fewer->zeros),
          .middle = 1 << (bits_of(fewer->encoding) - 1),
          .encoding = fewer->encoding};
}

// (integer - zero point) * scale. inputs: integers, scales, [zero points], and of packed ones the
// number of bits before each of the integers of a byte.
Program program_of_rows(const Table& table) {
  ProgramBuilder builder;
  const auto integer = [&](int input, const Tensor& of) {
    return builder.cast(builder.input(input, of.dtype()), RegisterType::kI32);
  };
  const DataType real = table.scales.dtype();
  Reg code = integer(0, table.integers);
  if (table.is_packed()) {
    const Reg shift = builder.input(table.zeros ? 3 : 2, DataType::kI32);
    const int64_t all = (1 << bits_of(table.encoding)) - 1;
    code = builder.apply(Opcode::kBitAnd, builder.apply(Opcode::kShiftRight, code, shift),
                         builder.constant(RegisterType::kI32, all));
  }
  if (table.zeros)
    code = builder.apply(Opcode::kSub, code, integer(2, *table.zeros));
  else if (table.middle != 0)
    code = builder.apply(Opcode::kSub, code,
                         builder.constant(RegisterType::kI32, int64_t{table.middle}));
  const Reg scale = builder.input(1, real);
  return builder.finish(builder.apply(Opcode::kMul, builder.cast(code, scale.type), scale), real);
}

class RowGather {
 public:
  RowGather(Graph& graph, LayerId id, const Table& table)
      : graph_(graph),
        rewrite_(graph, id),
        name_(graph.layer(id).name),
        indices_(graph.layer(id).inputs[1]),
        blocks_(table.scales.dims()[1]),
        table_(table) {}

  // False, and the graph computes as before, if the sizes of the result cannot be written.
  bool replace() { return rewrite_.finish(dequantized_rows()); }

 private:
  // [indices..., depth]; kNone if its sizes cannot be written.
  ValueId dequantized_rows() {
    const int64_t inner = table_.integers.dims()[1] / blocks_;
    std::vector<ValueId> inputs;
    const auto add_input = [&](std::string_view what, const Tensor& tensor, int64_t of_block) {
      const ValueId rows = rows_of(what, tensor);
      inputs.push_back(in_blocks(rows, of_block));
      return inputs.back() != ValueId::kNone;
    };
    if (!add_input("codes", table_.integers, inner) || !add_input("scales", table_.scales, 1))
      return ValueId::kNone;
    if (table_.zeros && !add_input("zero_points", *table_.zeros, 1)) return ValueId::kNone;
    if (table_.is_packed()) {
      std::vector<int32_t> shifts;
      for (int32_t shift = 0; shift < 8; shift += bits_of(table_.encoding)) shifts.push_back(shift);
      inputs.push_back(graph_.add_constant(
          name_ + "/shifts",
          Tensor::of<int32_t>(DataType::kI32, {static_cast<int64_t>(shifts.size())},
                              std::span<const int32_t>(shifts))));
    }
    const ValueId reals =
        rewrite_.add("dequantize", Pointwise{program_of_rows(table_)}, std::move(inputs));
    Shape whole = rewrite_.shape(indices_);
    whole.push_back(table_.depth());
    return rewrite_.reshape(reals, whole);
  }

  ValueId rows_of(std::string_view what, const Tensor& tensor) {
    const ValueId constant = graph_.add_constant(fmt::format("{}/{}", name_, what), tensor);
    return rewrite_.add(fmt::format("rows_of_{}", what), Gather{.axis = 0}, {constant, indices_});
  }

  // [indices..., blocks, of_block], and of packed integers an axis for those of a byte.
  ValueId in_blocks(ValueId rows, int64_t of_block) {
    Shape shape = rewrite_.shape(indices_);
    shape.push_back(blocks_);
    shape.push_back(of_block);
    if (table_.is_packed()) shape.push_back(1);
    return rewrite_.reshape(rows, shape);
  }

  Graph& graph_;
  Rewrite rewrite_;
  std::string name_;
  ValueId indices_;
  int64_t blocks_;
  const Table& table_;
};

bool gather_rows(Graph& graph, LayerId id, PassRun& run) {
  const auto* gather = op_as<Gather>(graph, id);
  if (!gather || gather->axis != 0) return false;
  const LayerId dequantize = producer(graph, graph.layer(id).inputs[0]);
  if (!op_as<Dequantize>(graph, dequantize)) return false;
  const std::string name = graph.layer(id).name;
  auto found = table_of(graph, dequantize);
  if (!found) {
    run.refused(name, "gathers floats: the table has no constant scales for its rows");
    return false;
  }
  const int64_t rows = element_count(graph, graph.layer(id).inputs[1]);
  if (rows >= found->integers.dims()[0]) {
    run.refused(name, fmt::format("gathers floats: {} rows of a table of {}", rows,
                                  found->integers.dims()[0]));
    return false;
  }
  const Table table = packed_where_possible(*std::move(found), run.options.threads);
  const Saving saved{.bytes = element_count(graph, graph.layer(id).outputs[0]) * 3};
  if (!RowGather(graph, id, table).replace()) return false;
  run.did(name,
          fmt::format("gathers rows of {}", table.is_packed()
                                                ? fmt::format("{} bits", bits_of(table.encoding))
                                                : std::string(to_string(table.integers.dtype()))),
          saved);
  return true;
}

}  // namespace

bool gather_quantized_rows(Graph& graph, PassRun& run) { return sweep(graph, run, gather_rows); }

}  // namespace anneal
