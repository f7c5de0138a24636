// A roofline as a picture: operations per second over operations per byte, both logarithmic.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/engine/onnx/roofline/ceilings.h"

namespace anneal {

enum class DotKind : uint8_t { kMemory, kCache, kArithmetic, kOverhead };

// A step. Its area is its share of the time.
struct PictureDot {
  std::string name, about;  // about: shown where the pointer rests on it
  double intensity = 0;     // operations per byte
  double rate = 0;          // operations per second
  double share = 0;
  DotKind kind = DotKind::kArithmetic;
};
struct RooflinePicture {
  std::string title;
  double milliseconds = 0;         // of all steps
  std::vector<ProductType> types;  // whose rates are drawn
  std::vector<PictureDot> dots;    // intensity and rate above 0
  double hidden_share = 0;         // the time of steps that have no place in it
};
std::string roofline_svg(const RooflineCeilings& ceilings, const RooflinePicture& picture);

}  // namespace anneal
