#include "anneal/engine/onnx/import_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"

namespace anneal {
namespace {

const Dims* shape_in(const std::map<std::string, Dims>& shapes, const std::string& name) {
  const auto found = shapes.find(name);
  return found == shapes.end() ? nullptr : &found->second;
}

InputBounds bounds_in(const Profile& profile, const std::string& name) {
  const Dims* const least = shape_in(profile.min, name);
  const Dims* const best = shape_in(profile.opt, name);
  const Dims* const most = shape_in(profile.max, name);
  InputBounds bounds;
  bounds.opt = best ? *best : most ? *most : *least;
  bounds.min = least ? *least : bounds.opt;
  bounds.max = most ? *most : bounds.opt;
  const int rank = bounds.opt.rank();
  bool ordered = bounds.min.rank() == rank && bounds.max.rank() == rank;
  for (int axis = 0; ordered && axis < rank; ++axis)
    ordered = bounds.min[axis] <= bounds.opt[axis] && bounds.opt[axis] <= bounds.max[axis];
  if (!ordered)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("shapes of {}: min {}, opt {}, max {} must have the same number of axes and "
                     "no size may shrink from one to the next",
                     name.empty() ? "the input" : "\"" + name + "\"", to_string(bounds.min),
                     to_string(bounds.opt), to_string(bounds.max)));
  return bounds;
}

ImportResult import_from(const OnnxModel& model, const ImportOptions& options) {
  return model.path().empty() ? import_bytes(model.bytes(), model.folder(), options)
                              : import_file(model.path(), options);
}

// The name of the only input. dims: those that were given without a name.
std::string only_input(const Graph& graph, const Dims& dims) {
  std::vector<std::string> names;
  for (const ValueId input : graph.inputs()) names.push_back(graph.value(input).name);
  if (names.size() != 1)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("shape {0}: the model has {1} inputs, so say which: NAME:{0} (it has {2})",
                     fmt::join(dims.span(), "x"), names.size(), fmt::join(names, ", ")));
  return names[0];
}

ImportResult import_with_only_input(const OnnxModel& model, ImportOptions options) {
  auto unnamed = options.bounds.extract("");
  ImportOptions first = options;
  first.bounds.clear();
  unnamed.key() = only_input(import_from(model, first).graph, unnamed.mapped().opt);
  const std::string name = unnamed.key();
  if (!options.bounds.insert(std::move(unnamed)).inserted)
    fail(ErrorCode::kInvalidArgument, fmt::format("two shapes are given for \"{}\"", name));
  return import_from(model, options);
}

}  // namespace

InputBoundsByName bounds_of(const std::vector<Profile>& profiles) {
  InputBoundsByName bounds;
  if (profiles.empty()) return bounds;
  if (profiles.size() > 1)
    fail(ErrorCode::kUnsupported,
         fmt::format("{} profiles: an engine has one. Give the ranges of all inputs in one profile "
                     "that covers them, or build an engine for each",
                     profiles.size()));
  const Profile& profile = profiles[0];
  for (const auto* shapes : {&profile.min, &profile.opt, &profile.max})
    for (const auto& [name, dims] : *shapes)
      if (!bounds.contains(name)) bounds[name] = bounds_in(profile, name);
  return bounds;
}

ImportResult import_model(const OnnxModel& model, const BuildOptions& options) {
  const ImportOptions import{.bounds = bounds_of(options.profiles),
                             .default_inputs = options.default_inputs};
  if (!import.bounds.contains("")) return import_from(model, import);
  if (model.path().empty()) return import_with_only_input(model, import);
  // A pipe gives the model once.
  const FileBytes file = read_file(model.path());
  const std::string folder = std::filesystem::path(model.path()).parent_path().string();
  return with_context([&] { return model.path(); },
                      [&] {
                        return import_with_only_input(
                            OnnxModel(file.bytes, folder.empty() ? "." : folder), import);
                      });
}

std::string name_of(const OnnxModel& model) {
  return model.path().empty() ? "the model in memory" : model.path();
}

}  // namespace anneal
