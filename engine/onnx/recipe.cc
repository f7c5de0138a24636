#include "anneal/engine/onnx/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/files/json_keys.h"
#include "anneal/engine/onnx/import_model.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/precision/fingerprint.h"

namespace anneal {
namespace {

using RecipeJson = nlohmann::ordered_json;

constexpr int kRecipeVersion = 1;

// JSON's true and 1e300 are numbers for the library, too.
template <class T>
T whole(const RecipeJson& json) {
  if (!json.is_number_integer() || (std::is_unsigned_v<T> && !json.is_number_unsigned()))
    fail(ErrorCode::kIncompatiblePlan, fmt::format("{} is no whole number", json.dump()));
  return json.get<T>();
}

RecipeJson shapes_json(const std::map<std::string, Dims>& shapes) {
  RecipeJson json = RecipeJson::object();
  for (const auto& [name, dims] : shapes)
    json[name] = std::vector<int64_t>(dims.begin(), dims.end());
  return json;
}

std::map<std::string, Dims> shapes_of(const RecipeJson& json) {
  std::map<std::string, Dims> shapes;
  for (const auto& [name, sizes] : json.get<std::map<std::string, std::vector<RecipeJson>>>()) {
    if (sizes.size() > kMaxRank)
      fail(ErrorCode::kIncompatiblePlan, fmt::format("\"{}\" has {} axes", name, sizes.size()));
    for (const RecipeJson& size : sizes) shapes[name].push_back(whole<int64_t>(size));
    if (sizes.empty()) shapes[name] = {};
  }
  return shapes;
}

Precision precision_named(const std::string& name) {
  for (const Precision precision : kAllPrecisions)
    if (to_string(precision) == name) return precision;
  fail(ErrorCode::kIncompatiblePlan, fmt::format("\"{}\" is no precision", name));
}

RecipeJson precision_json(const PrecisionOptions& precision) {
  RecipeJson types = RecipeJson::array(), layers = RecipeJson::array();
  for (const Precision type : precision.types) types.push_back(to_string(type));
  for (const LayerPrecision& layer : precision.layers)
    layers.push_back({{"pattern", layer.pattern}, {"precision", to_string(layer.precision)}});
  RecipeJson json = {{"types", std::move(types)},
                     {"layers", std::move(layers)},
                     {"symmetric", precision.symmetric}};
  // JSON has no infinity.
  if (std::isfinite(precision.max_layer_error)) json["max_layer_error"] = precision.max_layer_error;
  if (!precision.weight_format.empty()) json["weight_format"] = precision.weight_format;
  if (precision.ranges) json["ranges"] = to_string(*precision.ranges);
  return json;
}

PrecisionOptions precision_of(const RecipeJson& json) {
  PrecisionOptions precision;
  for (const RecipeJson& type : json.at("types"))
    precision.types.insert(precision_named(type.get<std::string>()));
  for (const RecipeJson& layer : json.at("layers"))
    precision.layers.push_back({layer.at("pattern").get<std::string>(),
                                precision_named(layer.at("precision").get<std::string>())});
  precision.symmetric = json.at("symmetric").get<bool>();
  precision.max_layer_error = json.value("max_layer_error", std::numeric_limits<float>::infinity());
  precision.weight_format = json.value("weight_format", "");
  if (json.contains("ranges"))
    precision.ranges = parse_calibration_table(json.at("ranges").get<std::string>());
  return precision;
}

Recipe recipe_of(const RecipeJson& json) {
  if (whole<int>(json.at("version")) != kRecipeVersion)
    fail(ErrorCode::kIncompatiblePlan, "it is of another version");
  Recipe recipe;
  BuildOptions& options = recipe.options;
  const auto texts = [&](const char* key) { return json.at(key).get<std::vector<std::string>>(); };
  options.targets = texts("targets");
  for (const RecipeJson& profile : json.at("profiles"))
    options.profiles.push_back(
        {shapes_of(profile.at("min")), shapes_of(profile.at("opt")), shapes_of(profile.at("max"))});
  options.default_inputs = json.at("default_inputs").get<std::set<std::string>>();
  const RecipeJson states = json.value("states", RecipeJson::object());
  for (const auto& [input, output] : states.items())
    options.states[input] = output.get<std::string>();
  options.precision = precision_of(json.at("precision"));
  options.exact = json.at("exact").get<bool>();
  options.tf32 = json.value("tf32", false);
  options.skip_passes = texts("skip_passes");
  options.only_passes = texts("only_passes");
  options.skip_kernels = texts("skip_kernels");
  options.allow_fallback = json.at("allow_fallback").get<bool>();
  options.max_memory = whole<uint64_t>(json.at("max_memory"));
  options.pack_weights = json.at("pack_weights").get<bool>();
  recipe.weights_apart = json.at("weights_apart").get<bool>();
  for (const RecipeJson& layer : json.at("back_to_f32"))
    recipe.back_to_f32.push_back(
        {layer.at("layer").get<std::string>(), layer.at("why").get<std::string>()});
  recipe.fingerprint = whole<uint64_t>(json.at("fingerprint"));
  return recipe;
}

// All sizes of a profile, however they were given.
Profile whole(const Profile& profile, const ImportResult& imported) {
  const Graph& graph = imported.graph;
  Profile result;
  for (const auto& [given, bounds] : bounds_of({profile})) {
    const bool is_only = given.empty() && !graph.inputs().empty();
    const std::string name = is_only ? graph.value(graph.inputs()[0]).name : given;
    if (imported.info.fixed_inputs.contains(name)) continue;
    result.min[name] = bounds.min;
    result.opt[name] = bounds.opt;
    result.max[name] = bounds.max;
  }
  return result;
}

}  // namespace

Recipe recipe_for(const BuildOptions& options, const ImportResult& imported) {
  Recipe recipe{.options = options,
                .weights_apart = !options.weights_path.empty(),
                .fingerprint = fingerprint(imported.graph, options.threads)};
  for (Profile& profile : recipe.options.profiles) profile = whole(profile, imported);
  if (recipe.options.profiles.size() == 1 && recipe.options.profiles[0].min.empty())
    recipe.options.profiles.clear();
  return recipe;
}

std::string to_string(const Recipe& recipe) {
  const BuildOptions& options = recipe.options;
  RecipeJson profiles = RecipeJson::array(), back = RecipeJson::array();
  for (const Profile& profile : options.profiles)
    profiles.push_back({{"min", shapes_json(profile.min)},
                        {"opt", shapes_json(profile.opt)},
                        {"max", shapes_json(profile.max)}});
  for (const auto& [layer, why] : recipe.back_to_f32)
    back.push_back({{"layer", layer}, {"why", why}});
  RecipeJson json = {{"version", kRecipeVersion},
                     {"targets", options.targets},
                     {"profiles", std::move(profiles)},
                     {"default_inputs", options.default_inputs},
                     {"precision", precision_json(options.precision)},
                     {"exact", options.exact},
                     {"tf32", options.tf32},
                     {"skip_passes", options.skip_passes},
                     {"only_passes", options.only_passes},
                     {"skip_kernels", options.skip_kernels},
                     {"allow_fallback", options.allow_fallback},
                     {"max_memory", options.max_memory},
                     {"pack_weights", options.pack_weights},
                     {"weights_apart", recipe.weights_apart},
                     {"back_to_f32", std::move(back)},
                     {"fingerprint", recipe.fingerprint}};
  for (const auto& [input, output] : options.states) json["states"][input] = output;
  return json.dump(-1, ' ', false, RecipeJson::error_handler_t::replace);
}

Recipe parse_recipe(std::string_view text) {
  if (text.empty())
    fail(ErrorCode::kIncompatiblePlan,
         "the engine file has no recipe, so it cannot be refitted: build it anew");
  std::string why;
  try {
    require_few_keys(text);
    return recipe_of(RecipeJson::parse(text));
  } catch (const RecipeJson::exception& error) {
    why = error.what();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kOutOfMemory) throw;
    why = error.what();
  }
  fail(ErrorCode::kIncompatiblePlan, fmt::format("the engine's recipe is damaged: {}", why));
}

CalibrationTable table_for_other_weights(CalibrationTable table) {
  table.fingerprint = 0;
  for (auto& [layer, bias] : table.biases) std::ranges::fill(bias, 0.0F);
  return table;
}

}  // namespace anneal
