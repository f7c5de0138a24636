#include "anneal/engine/onnx/import_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/engine/onnx/open_batch.h"

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
    fail_port(ErrorCode::kInvalidArgument, name,
              fmt::format("shapes of {}: min {}, opt {}, max {} must have the same number of axes "
                          "and no size may shrink from one to the next",
                          name.empty() ? "the input" : "\"" + name + "\"", to_string(bounds.min),
                          to_string(bounds.opt), to_string(bounds.max)),
              bounds.opt);
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
    fail_port(ErrorCode::kInvalidArgument, name,
              fmt::format("two shapes are given for \"{}\"", name));
  return import_from(model, options);
}

}  // namespace

namespace {

InputBoundsByName bounds_in(const Profile& profile) {
  InputBoundsByName bounds;
  for (const auto* shapes : {&profile.min, &profile.opt, &profile.max})
    for (const auto& [name, dims] : *shapes)
      if (!bounds.contains(name)) bounds[name] = bounds_in(profile, name);
  return bounds;
}

void widen(InputBounds& bounds, const InputBounds& other, const std::string& name) {
  if (bounds.opt.rank() != other.opt.rank())
    fail_port(ErrorCode::kInvalidArgument, name,
              fmt::format("shapes of {}: one profile has {}, another {}: give the same number of "
                          "axes",
                          name.empty() ? "the input" : "\"" + name + "\"", to_string(bounds.opt),
                          to_string(other.opt)),
              other.opt);
  for (int axis = 0; axis < bounds.opt.rank(); ++axis) {
    bounds.min[axis] = std::min(bounds.min[axis], other.min[axis]);
    bounds.max[axis] = std::max(bounds.max[axis], other.max[axis]);
  }
}

}  // namespace

InputBoundsByName bounds_of(const std::vector<Profile>& profiles) {
  InputBoundsByName all;
  for (size_t i = 0; i < profiles.size(); ++i) {
    const InputBoundsByName bounds = bounds_in(profiles[i]);
    if (i == 0) all = bounds;
    std::erase_if(all, [&](const auto& each) { return !bounds.contains(each.first); });
    for (auto& [name, of_input] : all) widen(of_input, bounds.at(name), name);
  }
  return all;
}

namespace {

ImportResult import_within(const OnnxModel& model, const ImportOptions& import) {
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

}  // namespace

ImportResult import_model(const OnnxModel& model, const BuildOptions& options) {
  const ImportOptions import{.bounds = bounds_of(options.profiles),
                             .default_inputs = options.default_inputs,
                             .operators = load_kernel_libraries(options.libraries)};
  ImportResult result = import_within(model, import);
  with_context([&] { return name_of(model); }, [&] { settle_batch(result); });
  result.warnings = operators_given_twice(import.operators, Versions::kAny);
  return result;
}

BuildOptions options_of_profile(const BuildOptions& options, size_t profile) {
  BuildOptions result = options;
  if (options.profiles.size() < 2) return result;
  result.profiles = {options.profiles[profile]};
  const std::string name = fmt::format("profile-{}", profile);
  if (!options.dump_passes.empty()) result.dump_passes += "/" + name;
  if (!options.dump_graph.empty()) result.dump_graph += "." + name;
  return result;
}

std::string name_of(const OnnxModel& model) {
  return model.path().empty() ? "the model in memory" : model.path();
}

}  // namespace anneal
