// The memory of batches as stacked bars.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "anneal/engine/onnx/memory_by_batch.h"
#include "anneal/engine/tune/frontier/svg.h"

namespace anneal {
namespace {

constexpr const char *kText = "#24292f", *kSoft = "#656d76", *kMark = "#c4402f";
constexpr double kPictureWide = 960, kBarLeft = 92, kBarRight = 760, kFirstBar = 132, kBarStep = 44,
                 kBarTall = 26, kBelow = 62, kKeyStep = 150;
constexpr size_t kLongestName = 60;

struct MemoryPart {
  const char *name, *colour;
  double bytes;
};
std::array<MemoryPart, 5> parts_of(const BatchMemory& each) {
  const HeldMemory& held = each.predicted;
  const auto of = [](auto bytes) { return static_cast<double>(bytes); };
  return {{{"arenas", "#2f6db5", of(held.arenas)},
           {"workspaces", "#2f9e7a", of(held.workspaces)},
           {"staging", "#e08a1e", of(held.ports)},
           {"other", "#8f4fb8", of(held.late + held.shapes)},
           {"inputs of the caller", "#8c959f", of(each.inputs)}}};
}

std::string megabytes(double bytes) {
  return bytes < 1e6   ? fmt::format("{:.3g} kB", bytes / 1e3)
         : bytes < 1e9 ? fmt::format("{:.3g} MB", bytes / 1e6)
                       : fmt::format("{:.3g} GB", bytes / 1e9);
}

std::string box(double x, double y, double width, double height, const char* colour) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y,
      width, height, colour);
}

}  // namespace

std::string memory_svg(const std::string& model, const std::string& size,
                       std::span<const BatchMemory> batches) {
  double largest = 1;
  for (const BatchMemory& each : batches)
    largest =
        std::max(largest, static_cast<double>(std::max(each.predicted.sum(), each.measured.sum())) +
                              static_cast<double>(each.inputs));
  const double per_byte = (kBarRight - kBarLeft) / largest;
  const double height = kFirstBar + kBarStep * static_cast<double>(batches.size()) + kBelow - 20;
  const std::string title =
      fmt::format("{}: memory of a context by {}", svg_shortened(model, kLongestName),
                  svg_shortened(size, kLongestName));
  std::string svg = svg_start(kPictureWide, height, title);
  svg += svg_text(24, 36, title, {.size = 18, .weight = "bold"});
  svg += svg_text(24, 58, "Bars: predicted. Line: what a context holds after a run, with inputs.",
                  {.colour = kSoft});
  double key = 24;
  for (const MemoryPart& part : parts_of({})) {
    svg += box(key, 78, 12, 12, part.colour);
    svg += svg_text(key + 18, 89, part.name, {.colour = kText});
    key += kKeyStep;
  }
  double y = kFirstBar;
  for (const BatchMemory& each : batches) {
    svg += svg_text(kBarLeft - 12, y + 18, fmt::format("{}", each.batch), {.anchor = "end"});
    double x = kBarLeft;
    for (const MemoryPart& part : parts_of(each)) {
      svg += box(x, y, part.bytes * per_byte, kBarTall, part.colour);
      x += part.bytes * per_byte;
    }
    const double measured =
        static_cast<double>(each.measured.sum()) + static_cast<double>(each.inputs);
    const double line = kBarLeft + measured * per_byte;
    svg += svg_line({line, y - 4, line, y + kBarTall + 4}, kMark, 2);
    svg += svg_text(std::max(x, line) + 10, y + 18, megabytes(measured));
    y += kBarStep;
  }
  svg += svg_text(24, height - 18, "Weights are not part of a context.",
                  {.size = 11, .colour = kSoft});
  return svg + "</svg>\n";
}

}  // namespace anneal
