// Evaluation of programs at single points, to test what a program computes and not how it is
// written.
#pragma once
#include <span>
#include <vector>

#include "anneal/graph/program/program.h"

namespace anneal {

// The results for one element of each input, converted to and from the programs' types.
// REQUIRES: no index().
std::vector<double> run_at(const Program& program, std::span<const double> inputs);

// Whether the program compares one of these inputs, or what it computes from them, takes its sign
// or makes a bool of it. Probes are equal to nothing, and meet no narrow range, so they do not show
// what the program computes there. by_input: which inputs.
bool compares_inputs(const Program& program, const std::vector<bool>& by_input);

// Numbers in [low, high), the same on every machine; no two sequences are alike.
class Probes {
 public:
  double next(double low, double high);

 private:
  uint64_t state_ = 1;
};

// Whether two numbers are the same within |want| * relative + absolute; NaN is as NaN, and an
// infinity as itself alone.
bool is_near(double want, double got, double relative, double absolute);

}  // namespace anneal
