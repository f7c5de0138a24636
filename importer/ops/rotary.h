// Rotary position embedding, for operators that contain it.
#pragma once
#include <string>

#include "anneal/importer/node/node.h"

namespace anneal {

// Pairs of numbers of each head turn by an angle that belongs to their position. Without positions
// the tables have a row for each element: [batch, positions, angles]; else [positions, angles].
struct Rotation {
  ValueId cosines = ValueId::kNone, sines = ValueId::kNone;
  ValueId positions = ValueId::kNone;  // i64[batch, positions]
  Size width = 0;                      // how many numbers of a head turn: the first ones
  bool interleaved = false;            // pairs are neighbours, not from either half
};

// x: [batch, positions, heads, width of a head], and so is the result. Layers are named
// "NODE/PREFIX...".
ValueId rotated(Node& node, ValueId x, const Rotation& rotation, const std::string& prefix = "");

}  // namespace anneal
