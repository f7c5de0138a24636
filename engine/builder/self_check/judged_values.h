// The values of a plan that show whether another plan of the same model computes the same, and how
// exact they may be.
#pragma once
#include <map>
#include <set>
#include <string>

#include "anneal/engine/plan.h"

namespace anneal {

// By the values' names, those of bodies included.
//
// A selection is a step that makes a choice of numbers: TopK, ArgMax, a comparison, NonZero. A tiny
// difference may change it, and all later values then differ; so its inputs are judged, and later
// values only as long as all selections of a run were the same. A comparison may be fused with its
// inputs, so its result is judged as well.
class JudgedValues {
 public:
  explicit JudgedValues(const Plan& plan);

  // Floats: outputs of the model, and inputs of selections.
  bool is_judged(const std::string& value) const { return judged_.contains(value); }
  // Values whose differing elements are counted: outputs of the model that are neither floats nor
  // choices, and integers and booleans that a step makes of floats, but not quantized ones: readers
  // that index with them need them exact.
  bool is_counted(const std::string& value) const { return counted_.contains(value); }
  bool is_output(const std::string& value) const { return outputs_.contains(value); }
  bool is_selection(const std::string& value) const { return selections_.contains(value); }
  bool follows_selection(const std::string& value) const { return later_.contains(value); }
  // The most steps of floats that stand one after the other before it, itself included; at least 1.
  int depth(const std::string& value) const;
  // Whether the value is compared beyond the layers' own errors.
  bool is_looked_at(const std::string& value) const {
    return is_judged(value) || is_counted(value) || is_selection(value);
  }

 private:
  // The facts that hold after a plan for any of its values.
  struct Reach {
    int depth = 0;
    bool is_later = false;
  };
  Reach add(const Plan& plan, Reach outside);

  std::set<std::string> judged_, counted_, outputs_, choices_, selections_, later_;
  std::map<std::string, int> depths_;
};

}  // namespace anneal
