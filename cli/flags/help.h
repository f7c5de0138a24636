// The form of `--help`: flags in groups, those used most first; `--help-all` adds the others.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace anneal {

// The headings of --help, in this order. Groups of other headings follow them.
namespace help {
inline constexpr std::string_view kFiles = "Input and output";
inline constexpr std::string_view kTarget = "Target";
inline constexpr std::string_view kShapes = "Shapes";
inline constexpr std::string_view kPrecision = "Precision (docs/quantization.md)";
inline constexpr std::string_view kCalibration = "Calibration";
inline constexpr std::string_view kBudget = "Accuracy budget (docs/tuning.md)";
inline constexpr std::string_view kSearch = "Search";
inline constexpr std::string_view kData = "Samples (docs/data.md)";
inline constexpr std::string_view kMeasuring = "Measurement";
inline constexpr std::string_view kRun = "Execution";
inline constexpr std::string_view kCompare = "Comparison";
inline constexpr std::string_view kKernels = "Passes and kernels";
inline constexpr std::string_view kDiagnosis = "Diagnosis";
}  // namespace help

// The group of a flag below a heading.
using HelpGroup = std::string (*)(std::string_view heading);
std::string often(std::string_view heading);   // shown by --help
std::string rarely(std::string_view heading);  // shown by --help-all only

// Gives the application, and all commands that are added to it later, this form of help.
void set_help_form(CLI::App& application);

}  // namespace anneal
