#include "anneal/kernels/cuda/text/store_vector_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

constexpr int64_t kVectorBytes = 16;

// Of the inputs of a program: what a thread reads of it for its lanes.
enum class Reads : uint8_t {
  kOne,      // the same element for all rows and columns
  kColumns,  // an element of each column, the same in all rows
  kRow,      // one element of each row
  kVector,   // an element of each lane, all at once
  kEach,     // an element of each lane, one by one
};

class Writer {
 public:
  Writer(const Request& request, Extents& extents, const StoreLanes& lanes,
         RegisterType accumulator)
      : request_(request), extents_(extents), lanes_(lanes), accumulator_(accumulator) {}

  StoreVectorText write(const std::vector<StorePart>& parts);

 private:
  const Operand& operand(OperandAt at) const {
    return (at.output ? request_.outputs : request_.inputs)[static_cast<size_t>(at.index)];
  }
  // The operand's axis that broadcasts along this one of its op output; -1: none does.
  int own_axis(const Operand& operand, int axis) const;
  bool varies(const Operand& operand, int axis) const;
  bool is_linear_in_rows(const Operand& operand);
  VectorAccess access(OperandAt at) const;
  int64_t most_lanes(OperandAt at, int64_t most) const;
  Reads reads(int input) const;
  std::string place(OperandAt at, const std::string& column);
  void add_input(int input, int ordinal);
  void add_part(const StorePart& part);

  const Request& request_;
  Extents& extents_;
  const StoreLanes& lanes_;
  RegisterType accumulator_;
  std::optional<SizeTable> sizes_;  // to multiply symbols
  int64_t count_ = 1;
  const Shape* space_ = nullptr;  // of the part's op output
  std::vector<VectorAccess> vectors_;
  std::set<std::string> column_fields_, input_fields_;
  std::string columns_, inputs_, stores_;  // statements of a part
  std::vector<std::string> values_;        // of its inputs, in the loop over lanes
};

int Writer::own_axis(const Operand& operand, int axis) const {
  return axis - (space_->rank() - operand.type.shape.rank());
}

bool Writer::varies(const Operand& operand, int axis) const {
  const int own = own_axis(operand, axis);
  return own >= 0 && !(operand.type.shape[own] == Size(1)) && !(operand.strides[own] == Size(0));
}

// Whether the axes of rows are contiguous, so that one stride leads from row to row.
bool Writer::is_linear_in_rows(const Operand& operand) {
  std::optional<Size> next;  // the stride of the next axis outwards
  for (size_t i = lanes_.rows.size(); i-- > 0;) {
    const int axis = lanes_.rows[i], own = own_axis(operand, axis);
    const Size size = (*space_)[axis];
    if (size == Size(1)) continue;
    if (own < 0 || !(operand.type.shape[own] == size)) return false;
    const Size stride = operand.strides[own];
    if (stride.is_unknown() || size.is_unknown() || (next && !(stride == *next))) return false;
    if (stride.known() && size.known()) {
      next = Size(stride.value() * size.value());
    } else {
      if (!sizes_) sizes_ = request_.sizes;
      next = sizes_->mul(stride, size);
    }
  }
  return true;
}

VectorAccess Writer::access(OperandAt at) const {
  return {.operand = static_cast<size_t>(at.index),
          .axis = own_axis(operand(at), lanes_.axis),
          .elements = count_,
          .is_output = at.output};
}

// The most lanes of an operand that could be taken at once.
int64_t Writer::most_lanes(OperandAt at, int64_t most) const {
  const Operand& of = operand(at);
  const int own = own_axis(of, lanes_.axis);
  if (own < 0 || of.type.shape[own] == Size(1)) return 1;
  int64_t count = vector_elements(of, own, of.type.shape[own], most);
  while (lanes_.multiple % count != 0) count /= 2;
  return count;
}

Reads Writer::reads(int input) const {
  const OperandAt at{false, input};
  const Operand& of = operand(at);
  bool rows = false;
  for (int axis = 0; axis < space_->rank(); ++axis)
    rows = rows || (axis != lanes_.axis && varies(of, axis));
  if (!varies(of, lanes_.axis)) return rows ? Reads::kRow : Reads::kOne;
  if (!rows) return Reads::kColumns;
  return count_ > 1 && most_lanes(at, count_) == count_ ? Reads::kVector : Reads::kEach;
}

std::string Writer::place(OperandAt at, const std::string& column) {
  const Operand& of = operand(at);
  const bool is_linear = is_linear_in_rows(of);
  const auto coordinate = [&](int axis) {
    if (axis == lanes_.axis) return column;
    if (!is_linear || std::ranges::find(lanes_.rows, axis) == lanes_.rows.end())
      return fmt::format("i{}", axis);
    // The innermost axis of rows counts all rows.
    for (size_t i = lanes_.rows.size(); i-- > 0;)
      if (!((*space_)[lanes_.rows[i]] == Size(1)))
        return std::string(lanes_.rows[i] == axis ? "row" : "i64(0)");
    return std::string("i64(0)");
  };
  return offset_text(request_, extents_, at, *space_, coordinate);
}

void Writer::add_input(int input, int ordinal) {
  const DataType dtype = operand({false, input}).type.dtype;
  const std::string type = type_text(register_type(dtype)), storage = type_text(dtype);
  const std::string from = fmt::format("e{}", input);
  const auto element = [&](const std::string& column) {
    return loaded(dtype, fmt::format("{}[{}]", from, place({false, input}, column)));
  };
  const auto field = [&](std::set<std::string>& fields, const std::string& of,
                         std::string_view letter) {
    std::string name = fmt::format("{}{}_{}", letter, ordinal, type);
    fields.insert(fmt::format("    {} {};\n", of, name));
    return name;
  };
  const std::string column = fmt::format("i{}", lanes_.axis), lane_column = column + " + lane";
  const std::string lane_loop = "UNROLL\nfor (int lane = 0; lane < kLanes; ++lane) ";
  const std::string vector = fmt::format("Vec<{}, kLanes>", type);
  switch (reads(input)) {
    case Reads::kOne: {
      const std::string name = field(column_fields_, type, "one");
      columns_ += fmt::format("read.{} = {};\n", name, element(column));
      values_.push_back("columns." + name);
      break;
    }
    case Reads::kColumns: {
      const std::string name = field(column_fields_, vector, "c");
      const OperandAt at{false, input};
      // Constants are surely aligned; others are read but once, too.
      if (operand(at).constant != nullptr && count_ > 1 && most_lanes(at, count_) == count_) {
        columns_ += fmt::format("{{\nconst Vec<{}, kLanes> all = load<kLanes>({}, {});\n", storage,
                                from, place(at, column));
        columns_ +=
            fmt::format("{}read.{}[lane] = {};\n}}\n", lane_loop, name, loaded(dtype, "all[lane]"));
      } else {
        columns_ += fmt::format("{}read.{}[lane] = {};\n", lane_loop, name,
                                element("(" + lane_column + ")"));
      }
      values_.push_back(fmt::format("columns.{}[lane]", name));
      break;
    }
    case Reads::kRow: {
      const std::string name = field(input_fields_, type, "row");
      inputs_ += fmt::format("read.{} = {};\n", name, element(column));
      values_.push_back("inputs." + name);
      break;
    }
    case Reads::kVector: {
      const std::string name =
          field(input_fields_, fmt::format("Vec<{}, kLanes>", storage), "v" + storage);
      vectors_.push_back(access({false, input}));
      inputs_ += fmt::format("read.{} = load<kLanes>({}, {});\n", name, from,
                             place({false, input}, column));
      values_.push_back(loaded(dtype, fmt::format("inputs.{}[lane]", name)));
      break;
    }
    case Reads::kEach: {
      const std::string name = field(input_fields_, vector, "each");
      inputs_ +=
          fmt::format("{}read.{}[lane] = {};\n", lane_loop, name, element("(" + lane_column + ")"));
      values_.push_back(fmt::format("inputs.{}[lane]", name));
    }
  }
}

void Writer::add_part(const StorePart& part) {
  space_ = &request_.outputs[static_cast<size_t>(part.first_output)].type.shape;
  values_.clear();
  const auto lane_coordinate = [&](int axis) {
    return axis == lanes_.axis ? fmt::format("(i{} + lane)", axis) : fmt::format("i{}", axis);
  };
  std::string statements;
  std::vector<std::string> results;
  if (part.program == nullptr) {
    const Operand& output = request_.outputs[static_cast<size_t>(part.first_output)];
    results = {stored(output.type.dtype, "a")};
  } else {
    for (size_t i = 1; i < part.program->inputs().size(); ++i)
      add_input(part.first_input + static_cast<int>(i) - 1, static_cast<int>(i));
    const auto input = [&](int i) {
      return i == 0 ? std::string("a") : values_[static_cast<size_t>(i) - 1];
    };
    ProgramText text = stores_of(*part.program, input, lane_coordinate);
    statements = std::move(text.statements);
    results = std::move(text.results);
  }
  std::string before, after;
  for (int i = 0; i < part.outputs; ++i) {
    const OperandAt at{true, part.first_output + i};
    const std::string& result = results[static_cast<size_t>(i)];
    if (most_lanes(at, count_) < count_) {
      statements +=
          fmt::format("y{}[{}] = {};\n", at.index, place(at, lane_coordinate(lanes_.axis)), result);
      continue;
    }
    if (count_ > 1) vectors_.push_back(access(at));
    before += fmt::format("Vec<{}, kLanes> out{};\n", type_text(operand(at).type.dtype), at.index);
    statements += fmt::format("out{}[lane] = {};\n", at.index, result);
    after += fmt::format("store(y{}, {}, out{});\n", at.index,
                         place(at, fmt::format("i{}", lanes_.axis)), at.index);
  }
  stores_ += fmt::format(
      "{}UNROLL\nfor (int lane = 0; lane < kLanes; ++lane) {{\nconst {} a = sums[lane];\n{}}}\n{}",
      before, type_text(accumulator_), statements, after);
}

StoreVectorText Writer::write(const std::vector<StorePart>& parts) {
  // As many lanes as every output takes at once that takes more than one.
  int64_t most = lanes_.most;
  for (const Operand& output : request_.outputs)
    most = std::min(most, kVectorBytes / static_cast<int64_t>(size_of(output.type.dtype)));
  count_ = most;
  bool any = false;
  for (const StorePart& part : parts)
    for (int i = 0; i < part.outputs; ++i) {
      const OperandAt at{true, part.first_output + i};
      space_ = &operand(at).type.shape;
      const int64_t lanes = most_lanes(at, most);
      if (lanes == 1) continue;
      any = true;
      count_ = std::min(count_, lanes);
    }
  if (!any) count_ = 1;

  std::string columns, inputs, stores;
  for (size_t part = 0; part < parts.size(); ++part) {
    columns_.clear(), inputs_.clear(), stores_.clear();
    add_part(parts[part]);
    if (parts.size() == 1) {
      columns = columns_, inputs = inputs_, stores = stores_;
      break;
    }
    const std::string condition = fmt::format("if (part == {}) {{\n", part);
    columns += condition + columns_ + "}\n";
    inputs += condition + inputs_ + "}\n";
    stores += condition + stores_ + "}\n";
  }
  std::string coordinates, fields, input_fields;
  for (int axis = 0; axis < request_.outputs[0].type.shape.rank(); ++axis)
    coordinates += fmt::format(", i64 i{}", axis);
  for (const std::string& field : column_fields_) fields += field;
  for (const std::string& field : input_fields_) input_fields += field;
  StoreVectorText text;
  text.members = fmt::format(
      "enum : int {{ kLanes = store_aligned ? {count} : 1 }};\n"
      "struct Columns {{\n{fields}}};\nstruct Inputs {{\n{input_fields}}};\n"
      "__device__ Columns columns([[maybe_unused]] i64 i{axis}) const {{\nColumns read{{}};\n"
      "{columns}return read;\n}}\n"
      "__device__ Inputs inputs(i64 row{coordinates}) const {{\nInputs read{{}};\n"
      "{inputs}return read;\n}}\n"
      "__device__ void operator()(const Vec<{type}, kLanes>& sums, const Columns& columns,\n"
      "    const Inputs& inputs, i64 row{coordinates}) const {{\n{stores}}}\n",
      fmt::arg("count", count_), fmt::arg("fields", fields), fmt::arg("input_fields", input_fields),
      fmt::arg("axis", lanes_.axis), fmt::arg("columns", columns), fmt::arg("inputs", inputs),
      fmt::arg("stores", stores), fmt::arg("coordinates", coordinates),
      fmt::arg("type", type_text(accumulator_)));
  text.vectors = std::move(vectors_);
  return text;
}

}  // namespace

StoreVectorText store_vector_text(const Request& request, Extents& extents, const StoreLanes& lanes,
                                  const std::vector<StorePart>& parts, RegisterType accumulator) {
  return Writer(request, extents, lanes, accumulator).write(parts);
}

}  // namespace anneal::cuda
