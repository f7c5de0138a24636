#include "anneal/importer/graph/body.h"

#include <fmt/format.h>

#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/node/attempt.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

constexpr int kMaxBodyDepth = 128;

}  // namespace

std::unique_ptr<Body> BodyImporter::begin(const std::string& name, Scope& outer) {
  if (outer.depth >= kMaxBodyDepth)
    fail(ErrorCode::kUnsupported, fmt::format("bodies nested more than {} deep", kMaxBodyDepth));
  auto body = std::make_unique<Body>(outer.model->graph.make_body(), outer.model->folder,
                                     *outer.model->choices);
  body->graph.name = name;
  body->scope = outer.body_scope(name + "/");
  body->scope.model = &body->model;
  body->model.file = outer.model->file;
  body->model.is_of_pytorch = outer.model->is_of_pytorch;
  return body;
}

void BodyImporter::add_input(const GraphProto& proto, int index, const Type& type, Body& body) {
  const std::string& name = proto.input(index).name();
  body.scope.define(
      name, {ScopedValue::State::kImported, body.graph.add_input(body.scope.prefix + name, type)});
}

Result<bool> BodyImporter::import(const GraphProto& proto, Body& body) {
  const Attempt<bool> imported = attempt([&] {
    for (const NodeProto& node : proto.node())
      for (const std::string& output : node.output())
        body.model.reserved_names.insert(body.scope.prefix + output);
    nodes_.import_initializers(proto, body.scope);
    nodes_.import_nodes(proto.node(), names_of_outputs(proto), body.scope);
    return nodes_.import_outputs(proto, body.scope);
  });
  if (imported) return *imported;
  if (imported.error().code() != ErrorCode::kInvalidModel) throw imported.error();
  return refuse(imported.error().what());
}

std::optional<Outputs> BodyImporter::import_inline(const GraphProto& proto, Scope& scope) {
  nodes_.import_initializers(proto, scope);
  nodes_.import_nodes(proto.node(), names_of_outputs(proto), scope);
  Outputs outputs;
  for (const auto& output : proto.output()) {
    const ValueId value = scope.use(output.name(), context().unsupported).value;
    if (value == ValueId::kNone) return std::nullopt;
    outputs.push_back(value);
  }
  return outputs;
}

}  // namespace anneal
