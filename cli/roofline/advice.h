// Advice: changes of the model, or of the batch, that the roofline of a run suggests.
#pragma once
#include <string>
#include <vector>

#include "anneal/cli/roofline/roofline.h"

namespace anneal {

struct Advice {
  std::string kind;  // "pad", "fuse", "batch", "start"
  std::string text;  // one sentence
  Json figures;      // an object: "step" or "steps", and the numbers of the text
};

// pad: channels that do not fill the registers or the tensor cores, so that a tenth of the products
// or more is padding. fuse: a step bound by traffic, which reads what nothing else reads. batch: at
// which batch the steps that wait for their weights turn compute-bound. start: steps that do less
// than it takes to start them, if they take a quarter of the time. A step with less than a
// hundredth of the time gives no advice.
std::vector<Advice> advice_of(const Roofline& roofline);

}  // namespace anneal
