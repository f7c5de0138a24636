#include "anneal/cli/flags/precision_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/text_file.h"
#include "anneal/engine/tune/frontier/frontier.h"

namespace anneal {
namespace {

LayerPrecision layer_precision(const std::string& text) {
  const size_t at = text.rfind('=');
  for (const Precision precision :
       {Precision::kF32, Precision::kF16, Precision::kBF16, Precision::kI8})
    if (at != std::string::npos && text.substr(at + 1) == to_string(precision))
      return {text.substr(0, at), precision};
  fail(ErrorCode::kInvalidArgument,
       fmt::format("--layer-precision \"{}\": REGEX=f32, f16, bf16 or int8 is expected", text));
}

}  // namespace

void add_precision_flags(CLI::App& command, PrecisionFlags& flags, HelpGroup group) {
  command
      .add_flag("--fp16", flags.f16,
                "Allow f16 for operands and weights of convolutions and products")
      ->group(often(help::kPrecision));
  command.add_flag("--bf16", flags.bf16, "Allow bf16; with --fp16 each layer gets the better one")
      ->group(often(help::kPrecision));
  command
      .add_flag("--int8", flags.int8, "Allow int8 for layers whose tensors have calibrated ranges")
      ->group(often(help::kPrecision));
  command
      .add_flag("--best", flags.best,
                "Allow all precisions that the targets compute faster than f32")
      ->group(often(help::kPrecision));
  command
      .add_option("--layer-precision", flags.layers,
                  "Precision of layers: f32, f16, bf16 or int8; the first match counts")
      ->allow_extra_args(false)
      ->type_name("REGEX=P")
      ->group(group(help::kPrecision));
  command
      .add_option("--weight-format", flags.weight_format,
                  "Store weights of products and embeddings as int8 or int4")
      ->type_name("TYPE[:BLOCK]")
      ->group(group(help::kPrecision));
  command
      .add_option("--max-layer-error", flags.max_layer_error,
                  "With --int8: largest relative error of an int8 layer")
      ->capture_default_str()
      ->check(at_least(0))
      ->type_name("SHARE")
      ->group(rarely(help::kPrecision));
  command.add_flag("--symmetric", flags.symmetric, "With --int8: all zero points are 0")
      ->group(rarely(help::kPrecision));
  command
      .add_flag("!--no-self-check", flags.self_check,
                "Skip the comparison with f32, which gives layers back to f32 that\n"
                "overflow or lose too much")
      ->group(rarely(help::kPrecision));
  command
      .add_option("--self-check-work", flags.self_check_work,
                  "Limit of this comparison, in billions of multiply-adds")
      ->capture_default_str()
      ->check(at_least(0))
      ->type_name("NUMBER")
      ->group(rarely(help::kPrecision));
  command.add_option("--calibration", flags.calibration, "Calibration table of anneal calibrate")
      ->type_name("FILE")
      ->group(group(help::kCalibration));
  command
      .add_option("--mix", flags.mix,
                  "Mix of anneal tune: its .tuned.json; POINT: if not the chosen one")
      ->type_name("FILE[:POINT]")
      ->group(group(help::kBudget));
}

namespace {

// The options of a frontier's point in a file.
PrecisionOptions read_mix(const std::string& text) {
  size_t at = text.rfind(':');
  if (at == std::string::npos || text.ends_with(".json")) at = text.size();
  const std::string path = text.substr(0, at);
  const std::string name = at < text.size() ? text.substr(at + 1) : "";
  const std::string json = read_text(path);
  const Frontier frontier = with_context([&] { return fmt::format("while reading {}", path); },
                                         [&] { return parse_frontier(json); });
  auto point = frontier.points.begin() + static_cast<ptrdiff_t>(frontier.chosen);
  if (!name.empty()) point = std::ranges::find(frontier.points, name, &FrontierPoint::name);
  if (point == frontier.points.end()) {
    std::string names;
    for (const FrontierPoint& each : frontier.points)
      names += (names.empty() ? "" : ", ") + each.name;
    fail(ErrorCode::kInvalidArgument,
         fmt::format("--mix: {} has no point \"{}\"; there are {}", path, name, names));
  }
  return with_context([&] { return fmt::format("while reading the table in {}", path); },
                      [&] { return precision_of(frontier, *point); });
}

}  // namespace

CalibrationTable read_calibration_table(const std::string& path) {
  const std::string text = read_text(path);
  return with_context([&] { return fmt::format("while reading {}", path); },
                      [&] { return parse_calibration_table(text); });
}

PrecisionOptions precision_options(const PrecisionFlags& flags, bool will_calibrate) {
  if (!flags.mix.empty()) {
    if (flags.f16 || flags.bf16 || flags.int8 || flags.best || flags.symmetric ||
        !flags.layers.empty() || !flags.weight_format.empty() || !flags.calibration.empty() ||
        will_calibrate)
      fail(ErrorCode::kInvalidArgument,
           "--mix sets all precisions: leave out the other flags for them");
    return read_mix(flags.mix);
  }
  PrecisionOptions options;
  const bool has_ranges = will_calibrate || !flags.calibration.empty();
  if (flags.f16) options.types.insert(Precision::kF16);
  if (flags.bf16) options.types.insert(Precision::kBF16);
  if (flags.int8) options.types.insert(Precision::kI8);
  options.best = flags.best;
  options.symmetric = flags.symmetric;
  options.max_layer_error = flags.max_layer_error;
  options.weight_format = flags.weight_format;
  if (!(flags.max_layer_error >= 0))
    fail(ErrorCode::kInvalidArgument, "--max-layer-error: a number of at least 0 is expected");
  for (const std::string& layer : flags.layers) options.layers.push_back(layer_precision(layer));
  const bool wants_int8 =
      flags.int8 || std::ranges::any_of(options.layers, [](const LayerPrecision& layer) {
        return layer.precision == Precision::kI8;
      });
  if (wants_int8 && !has_ranges)
    fail(ErrorCode::kInvalidArgument,
         "int8 needs the ranges of tensors: anneal calibrate MODEL --data SAMPLES -o model.ranges, "
         "then --calibration model.ranges; or anneal build --calibrate SAMPLES");
  if (has_ranges && !options.reduces() && !flags.best && flags.weight_format.empty())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is for lower precisions, but none is requested: give --int8, --fp16, "
                     "--bf16 or --best as well",
                     will_calibrate ? "--calibrate" : "--calibration"));
  if (flags.symmetric && !wants_int8 && !(flags.best && has_ranges))
    fail(ErrorCode::kInvalidArgument, "--symmetric is for int8: give --int8 as well");
  if (!flags.calibration.empty()) options.ranges = read_calibration_table(flags.calibration);
  return options;
}

void set_self_check(const PrecisionFlags& flags, BuildOptions& build) {
  build.self_check.run = flags.self_check && flags.mix.empty();
  build.self_check.most_work = flags.self_check_work * 1e9;
}

}  // namespace anneal
