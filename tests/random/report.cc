#include "anneal/tests/random/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "anneal/tests/random/model_text.h"

namespace anneal::random_graphs {
namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

int onnx_type(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return onnx::FLOAT;
    case DataType::kF64:
      return onnx::DOUBLE;
    case DataType::kF16:
      return onnx::FLOAT16;
    case DataType::kBF16:
      return onnx::BFLOAT16;
    case DataType::kI8:
      return onnx::INT8;
    case DataType::kU8:
      return onnx::UINT8;
    case DataType::kI32:
      return onnx::INT32;
    case DataType::kBool:
      return onnx::BOOL;
    default:
      return onnx::INT64;
  }
}

}  // namespace

anneal_onnx::TensorProto tensor_proto(const std::string& name, const Tensor& tensor) {
  anneal_onnx::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(onnx_type(tensor.dtype()));
  for (const int64_t dim : tensor.dims()) proto.add_dims(dim);
  proto.set_raw_data(tensor.bytes().data(), tensor.bytes().size());
  return proto;
}

std::string report(const Recipe& recipe, const Failure& failure, const RandomModel& reduced) {
  std::string sizes;
  for (const Value& input : reduced.inputs) {
    sizes += "  " + input.name + ":";
    for (size_t b = 0; b < kBindings; ++b) {
      sizes += b == 0 ? " " : ", ";
      for (size_t axis = 0; axis < input.dims.size(); ++axis)
        sizes += fmt::format("{}{}", axis == 0 ? "" : "x", input.dims[axis].in[b]);
    }
    sizes += "\n";
  }
  return fmt::format(
      "random graph {} of kind {}, built as \"{}\": {}: {}\nrepeat: "
      "build/release/tests/bin/random_graphs --first {} --count 1 --kind {}\n"
      "reduced:\n{}sizes of the inputs in each run:\n{}",
      recipe.seed, to_string(recipe.kind), failure.way, failure.sort, failure.text, recipe.seed,
      to_string(recipe.kind), model_text(reduced.proto), sizes);
}

void save_case(const std::string& folder, const RandomModel& model, const std::string& note) {
  const std::filesystem::path root(folder);
  write_file(root / "model.onnx", model.proto.SerializeAsString());
  write_file(root / "note.txt", note);
  Results results;
  try {
    results = reference_results(model);
  } catch (const std::exception&) {
  }
  for (size_t b = 0; b < model.data.size(); ++b) {
    const auto set = root / fmt::format("test_data_set_{}", b);
    for (size_t i = 0; i < model.inputs.size(); ++i)
      write_file(set / fmt::format("input_{}.pb", i),
                 tensor_proto(model.inputs[i].name, model.data[b][i]).SerializeAsString());
    if (results.empty()) continue;
    for (size_t o = 0; o < results[b].size(); ++o)
      write_file(set / fmt::format("output_{}.pb", o),
                 tensor_proto(model.proto.graph().output(static_cast<int>(o)).name(), results[b][o])
                     .SerializeAsString());
  }
}

}  // namespace anneal::random_graphs
