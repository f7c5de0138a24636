#include "anneal/cli/flags/precision_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/builder/target_support.h"
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

void add_precision_flags(CLI::App& command, PrecisionFlags& flags) {
  const std::string group = "Precision (docs/quantization.md)";
  command
      .add_flag("--fp16", flags.f16,
                "Store what convolutions and products read, and their weights, in f16 where its "
                "range suffices")
      ->group(group);
  command
      .add_flag("--bf16", flags.bf16,
                "The same in bf16; with --fp16 each layer takes the better of the two")
      ->group(group);
  command
      .add_flag("--best", flags.best,
                "The precisions in which every target computes faster than in f32: 16 bits, and "
                "--int8 if there are samples or a table for it")
      ->group(group);
  command
      .add_flag(
          "--int8", flags.int8,
          "Compute convolutions and products in 8 bits where the calibration table has ranges")
      ->group(group);
  command.add_option("--calibration", flags.calibration, "The table that anneal calibrate wrote")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--layer-precision", flags.layers,
                  "What the layers that match compute in: f32, f16, bf16 or int8; the first "
                  "that matches counts")
      ->allow_extra_args(false)
      ->type_name("REGEX=TYPE")
      ->group(group);
  command
      .add_option("--max-layer-error", flags.max_layer_error,
                  "Of --int8: a layer whose error in the table is more, as a share of its results' "
                  "mean square, stays f32")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("SHARE")
      ->group(group);
  command
      .add_option("--mix", flags.mix,
                  "What anneal tune found: its .tuned.json, and which point (default: the chosen)")
      ->type_name("FILE[:POINT]")
      ->group(group);
  command.add_flag("--symmetric", flags.symmetric, "With zero points of 0 only")->group(group);
  command
      .add_flag("!--no-self-check", flags.self_check,
                "Do not compare the result with f32, and leave layers as they are that overflow or "
                "lose too much")
      ->group(group);
  command
      .add_option("--self-check-work", flags.self_check_work,
                  "The most that comparing may take, in thousand millions of multiply-adds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("NUMBER")
      ->group(group);
}

namespace {

// What a point of a frontier that was written to a file is built with.
PrecisionOptions read_mix(const std::string& text) {
  size_t at = text.rfind(':');
  if (at == std::string::npos || text.ends_with(".json")) at = text.size();
  const std::string path = text.substr(0, at);
  const std::string name = at < text.size() ? text.substr(at + 1) : "";
  const FileBytes file = read_file(path);
  const Frontier frontier =
      with_context([&] { return fmt::format("while reading {}", path); },
                   [&] {
                     return parse_frontier(
                         {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
                   });
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

// What --best stands for. A table that nobody reads is no mistake there.
void add_fast_precisions(std::span<const std::string> targets, bool has_ranges,
                         PrecisionOptions& options) {
  const auto is_fast = [&](Precision precision) {
    return std::ranges::all_of(targets, [&](const std::string& target) {
      return std::ranges::count(fast_precisions(target), precision) != 0;
    });
  };
  if (has_ranges && is_fast(Precision::kI8)) options.types.insert(Precision::kI8);
  if (options.allows_half()) return;
  for (const Precision half : {Precision::kF16, Precision::kBF16})
    if (is_fast(half)) {
      options.types.insert(half);
      return;
    }
}

}  // namespace

CalibrationTable read_calibration_table(const std::string& path) {
  const FileBytes file = read_file(path);
  return with_context([&] { return fmt::format("while reading {}", path); },
                      [&] {
                        return parse_calibration_table(
                            {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
                      });
}

PrecisionOptions precision_options(const PrecisionFlags& flags,
                                   std::span<const std::string> targets, bool will_calibrate) {
  if (!flags.mix.empty()) {
    if (flags.f16 || flags.bf16 || flags.int8 || flags.best || flags.symmetric ||
        !flags.layers.empty() || !flags.calibration.empty() || will_calibrate)
      fail(ErrorCode::kInvalidArgument,
           "--mix says all about precisions: leave out the other flags for them");
    return read_mix(flags.mix);
  }
  PrecisionOptions options;
  const bool has_ranges = will_calibrate || !flags.calibration.empty();
  if (flags.f16) options.types.insert(Precision::kF16);
  if (flags.bf16) options.types.insert(Precision::kBF16);
  if (flags.int8) options.types.insert(Precision::kI8);
  if (flags.best) add_fast_precisions(targets, has_ranges, options);
  options.symmetric = flags.symmetric;
  options.max_layer_error = flags.max_layer_error;
  if (!(flags.max_layer_error >= 0))
    fail(ErrorCode::kInvalidArgument, "--max-layer-error: a number of at least 0 is expected");
  for (const std::string& layer : flags.layers) options.layers.push_back(layer_precision(layer));
  const bool wants_int8 =
      flags.int8 || std::ranges::any_of(options.layers, [](const LayerPrecision& layer) {
        return layer.precision == Precision::kI8;
      });
  if (wants_int8 && !has_ranges)
    fail(ErrorCode::kInvalidArgument,
         "int8 wants the ranges of tensors: anneal calibrate MODEL --data SAMPLES -o model.ranges, "
         "then --calibration model.ranges; or anneal build --calibrate SAMPLES");
  if (has_ranges && !options.reduces() && !flags.best)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is for lower precisions, but none was asked for: give --int8, --fp16, "
                     "--bf16 or --best as well",
                     will_calibrate ? "--calibrate" : "--calibration"));
  if (flags.symmetric && !options.allows(Precision::kI8) && !wants_int8)
    fail(ErrorCode::kInvalidArgument, "--symmetric is about 8 bits: give --int8 as well");
  if (!flags.calibration.empty()) options.ranges = read_calibration_table(flags.calibration);
  return options;
}

void set_self_check(const PrecisionFlags& flags, BuildOptions& build) {
  build.self_check.run = flags.self_check && flags.mix.empty();
  build.self_check.most_work = flags.self_check_work * 1e9;
}

std::vector<std::string> precision_notes(const PrecisionFlags& flags,
                                         const PrecisionOptions& options,
                                         std::span<const std::string> targets) {
  std::vector<std::string> notes;
  if (flags.best && options.types.empty())
    notes.push_back(fmt::format(
        "--best is f32 for {}: no lower precision is always faster there; anneal tune measures "
        "whether some layers gain from 8 bits",
        fmt::join(targets, ", ")));
  if (!flags.int8) return notes;
  for (const std::string& target : targets)
    if (std::ranges::count(fast_precisions(target), Precision::kI8) == 0)
      notes.push_back(
          fmt::format("{} has no VNNI here, so 8 bits may be as slow as f32; anneal tune measures "
                      "which layers gain",
                      target));
  return notes;
}

}  // namespace anneal
