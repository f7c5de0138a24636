#include "anneal/importer/graph/graph_importer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "anneal/graph/text/text.h"
#include "anneal/importer/graph/best_sizes.h"
#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/graph_inputs.h"
#include "anneal/importer/graph/least_nodes.h"
#include "anneal/importer/graph/node_importer.h"
#include "anneal/importer/graph/required_sizes.h"
#include "anneal/importer/node/attempt.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/onnx/tensor_proto.h"

namespace anneal {

using anneal_onnx::GraphProto;
using anneal_onnx::ModelProto;
using anneal_onnx::NodeProto;

namespace {

std::string container_text(const Type& type, const SizeTable& sizes) {
  return type.dtype == DataType::kString ? "a tensor of strings" : to_string(type, sizes);
}

// Sequences and optionals are resolved while importing, where their length and places are known.
// The remaining ones have no layers and no memory.
void refuse_containers(const Graph& graph) {
  const auto is_tensor = [&](ValueId id) {
    const Type& type = graph.value(id).type();
    return type.container == Container::kTensor && type.dtype != DataType::kString;
  };
  for (const ValueId id : graph.inputs())
    if (!is_tensor(id))
      fail(
          ErrorCode::kUnsupported,
          fmt::format("graph input \"{}\" is {}, which engines do not take: remove it, or export "
                      "the model with tensors in its place",
                      graph.value(id).name, container_text(graph.value(id).type(), graph.sizes())));
  for (const LayerId id : graph.layers())
    for (const ValueId output : graph.layer(id).outputs)
      if (!is_tensor(output))
        fail(
            ErrorCode::kUnsupported,
            fmt::format("node \"{}\" ({}) gives \"{}\", {}: sequences and optionals are supported "
                        "only where their length and their places are known while building; export "
                        "the model with tensors in its place",
                        fmt::join(graph.layer(id).origins, ", "), to_string(graph.layer(id).op),
                        graph.value(output).name,
                        container_text(graph.value(output).type(), graph.sizes())));
  for (const Graph::Output& output : graph.outputs())
    if (!is_tensor(output.value))
      fail(ErrorCode::kUnsupported,
           fmt::format("graph output \"{}\" is {}: export the model with tensors in its place",
                       output.name,
                       container_text(graph.value(output.value).type(), graph.sizes())));
  for (const Graph& body : graph.bodies()) refuse_containers(body);
}

}  // namespace

GraphImporter::GraphImporter(std::shared_ptr<const ModelProto> model, std::string folder,
                             const ImportOptions& options, RankChoices& choices)
    : file_(std::move(model)),
      model_(*file_),
      options_(options),
      main_model_{.graph = graph_,
                  .folder = std::move(folder),
                  .reserved_names = {},
                  .choices = &choices,
                  .file = file_,
                  .is_of_pytorch = model_.producer_name() == "pytorch"},
      main_{.opsets = opsets_of(model_), .model = &main_model_},
      context_{.main_graph = graph_,
               .functions = functions_of(model_),
               .choices = choices,
               .operators = options.operators} {}

Graph GraphImporter::import() {
  const GraphProto& proto = model_.graph();
  graph_.name = proto.name();
  auto& reserved = main_model_.reserved_names;
  for (const auto& input : proto.input()) reserved.insert(input.name());
  for (const auto& tensor : proto.initializer()) reserved.insert(tensor.name());
  for (const NodeProto& node : proto.node())
    reserved.insert(node.output().begin(), node.output().end());

  refuse_too_many_nodes(proto);
  NodeImporter nodes(context_);
  nodes.import_initializers(proto, main_, default_inputs(proto));
  import_inputs(proto);
  nodes.import_nodes(proto.node(), names_of_outputs(proto), main_);
  if (proto.output().empty()) fail(ErrorCode::kInvalidModel, "the graph has no outputs");
  const bool complete = nodes.import_outputs(proto, main_);
  context_.unsupported.throw_if_any();
  check(complete, "outputs are incomplete only where something is not supported");
  check_declared_types(proto);
  fits_declared_ranks_ = has_declared_ranks(proto);
  graph_.erase_unused();
  refuse_containers(graph_);
  if (context_.choices.any()) graph_.refine();  // an assumption may have fixed a size
  settle_sizes(graph_, batch() ? std::optional(batch()->rows) : std::nullopt);
  choose_best_sizes(graph_);
  return std::move(graph_);
}

// Names of the initializers that are inputs.
std::set<std::string> GraphImporter::default_inputs(const GraphProto& graph) {
  constexpr const char* kAll = "*";
  std::set<std::string> both, chosen;
  std::map<std::string_view, const anneal_onnx::TensorProto*> constants;
  for (const auto& tensor : graph.initializer()) constants.emplace(tensor.name(), &tensor);
  for (int i = 0; i < graph.input_size(); ++i) {
    const std::string& name = graph.input(i).name();
    const auto constant = constants.find(name);
    if (constant == constants.end() || !both.insert(name).second) continue;
    if (i < options_.fed_inputs || options_.default_inputs.contains(kAll) ||
        options_.default_inputs.contains(name)) {
      chosen.insert(name);
      default_values_.emplace(name, constant->second);
    } else {
      constant_inputs_.push_back(name);
    }
  }
  for (const std::string& name : options_.default_inputs)
    if (name != kAll && !both.contains(name))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" is no input with a default value (an initializer that is listed "
                       "among the inputs); such inputs are: {}",
                       name, both.empty() ? "none" : fmt::format("{}", fmt::join(both, ", "))));
  return chosen;
}

// Checked before the import, which would take long. The import of a node reports other faults of
// it.
void GraphImporter::refuse_too_many_nodes(const GraphProto& graph) const {
  if (context_.functions.empty()) return;
  const auto nodes = attempt([&] { return least_nodes(graph, context_.functions, kMaxCallDepth); });
  if (nodes && *nodes > kMaxNodes)
    fail(ErrorCode::kUnsupported,
         fmt::format("more than {} nodes: its local functions stand for {}{}", kMaxNodes,
                     *nodes == kManyNodes ? "more than " : "", *nodes));
}

void GraphImporter::import_inputs(const GraphProto& graph) {
  // Up to IR version 3 initializers are listed as inputs too; later such an input has a default
  // value. In both cases the value is constant unless the caller asks for an input.
  std::vector<const anneal_onnx::ValueInfoProto*> fed;
  for (const auto& input : graph.input())
    if (!main_.values.contains(input.name())) fed.push_back(&input);
  GraphInputs inputs(graph_.sizes(), fed, options_);
  main_model_.batch = inputs.batch();
  for (const auto* input : fed) {
    if (input->name().empty()) fail(ErrorCode::kInvalidModel, "a graph input without a name");
    const auto value = attempt([&] { return import_input(*input, inputs); });
    if (value) {
      main_.define(input->name(), {ScopedValue::State::kImported, *value});
      continue;
    }
    if (value.error().code() != ErrorCode::kUnsupported) {
      Error error = value.error();
      add_context(error, fmt::format("input \"{}\"", input->name()));
      throw error;
    }
    context_.unsupported.add("graph input", input->name(), value.error().what());
    main_.define(input->name(), {});
  }
}

Tensor GraphImporter::default_value(const anneal_onnx::TensorProto& initializer) const {
  return with_context([] { return "its default value, an initializer"; },
                      [&] { return to_tensor(initializer, main_model_.folder); });
}

ValueId GraphImporter::import_input(const anneal_onnx::ValueInfoProto& input, GraphInputs& inputs) {
  const auto initializer = default_values_.find(input.name());
  if (initializer == default_values_.end())
    return graph_.add_input(input.name(), inputs.type_of(input));
  const Tensor value = default_value(*initializer->second);
  const Type type = inputs.type_of(input, &value);
  return graph_.add_input(input.name(), type, value);
}

bool GraphImporter::has_declared_ranks(const GraphProto& graph) const {
  const auto fits = [&](const anneal_onnx::ValueInfoProto& declared) {
    const auto found = main_.values.find(declared.name());
    if (found == main_.values.end() || found->second.value == ValueId::kNone) return true;
    const auto& type = declared.type().tensor_type();
    return !declared.type().has_tensor_type() || !type.has_shape() ||
           type.shape().dim_size() == graph_.value(found->second.value).type().shape.rank();
  };
  return std::ranges::all_of(graph.value_info(), fits) && std::ranges::all_of(graph.output(), fits);
}

// Integers of 4 or 2 bits have the declared type of the file, and so have layers that move them;
// they are i8 or u8 here. An output is given to the caller: it has the declared type.
void GraphImporter::check_declared_types(const GraphProto& graph) {
  std::unordered_map<std::string_view, int32_t> types_in_file;
  for (const auto& tensor : graph.initializer())
    types_in_file.emplace(tensor.name(), tensor.data_type());
  const auto check_type = [&](const anneal_onnx::ValueInfoProto& declared, bool is_output) {
    const auto found = main_.values.find(declared.name());
    if (found == main_.values.end() || found->second.value == ValueId::kNone) return;
    if (!declared.type().has_tensor_type()) return;
    const int32_t element_type = declared.type().tensor_type().elem_type();
    if (element_type == anneal_onnx::TensorProto::UNDEFINED) return;
    const DataType dtype = graph_.value(found->second.value).type().dtype;
    const auto in_file = types_in_file.find(declared.name());
    const bool is_constant = in_file != types_in_file.end();
    const auto expected =
        is_output ? dtype_from_onnx(element_type) : dtype_of_constant(element_type);
    if (expected == dtype && (!is_constant || in_file->second == element_type)) return;
    const bool differ_in_file = is_constant && in_file->second != element_type;
    fail(ErrorCode::kInvalidModel, fmt::format("value \"{}\" is declared as {} but is {}",
                                               declared.name(), onnx_type_name(element_type),
                                               differ_in_file ? onnx_type_name(in_file->second)
                                                              : std::string(to_string(dtype))));
  };
  for (const auto& value : graph.value_info()) check_type(value, false);
  for (const auto& value : graph.output()) check_type(value, true);
}

}  // namespace anneal
