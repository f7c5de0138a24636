// The forms of a frontier, and what they are made of.
#pragma once
#include <string>
#include <string_view>

#include "anneal/engine/tune/frontier/frontier.h"

namespace anneal {

// Whether every point has a confirmed score: then those are compared, else those searched with.
bool is_all_confirmed(const Frontier& frontier);
// Sets what is claimed of the score of each point on the frontier: the least of its own and of
// those of slower points on it, so that from point to point no claim falls, and none is above what
// was measured. NaN does not count.
void claim_scores(Frontier& frontier);
// What the samples that confirm were: "held out from the search", or "which turned 2 faster mixes
// down".
std::string what_confirms(const Frontier& frontier);
// The point with every group in f32; null: there is none.
const FrontierPoint* f32_point(const Frontier& frontier);
// "points" of scores in percent, else the unit itself.
std::string_view drop_unit(const Frontier& frontier);
// As FrontierForm says.
std::string frontier_table(const Frontier& frontier);
std::string frontier_csv(const Frontier& frontier);
std::string frontier_json(const Frontier& frontier);
// An SVG of latency (across) against score (up): points with their intervals and names, the
// frontier as a line, the budget as a shade, the chosen point marked. Scores are the confirmed ones
// where all points have one. Points without a score are named below; those far below the others, or
// with infinite scores, are at the edge.
std::string frontier_svg(const Frontier& frontier);

}  // namespace anneal
