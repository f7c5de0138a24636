// Which values of a plan tell whether another plan of the same model computes the same, and how
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
// difference may turn it, and everything behind it then differs; so what it reads is judged, and
// what follows it only as long as all selections of a run were the same. A comparison may be fused
// with what it compares, so what it gives is judged as well.
class JudgedValues {
 public:
  explicit JudgedValues(const Plan& plan);

  // Floats: outputs of the model, and what selections read.
  bool is_judged(const std::string& value) const { return judged_.contains(value); }
  // Of these the elements that differ are counted: outputs of the model that are no floats, but for
  // choices, and integers and booleans that a step makes of floats, but not quantized ones: whoever
  // indexes with them needs them exact.
  bool is_counted(const std::string& value) const { return counted_.contains(value); }
  bool is_output(const std::string& value) const { return outputs_.contains(value); }
  bool is_selection(const std::string& value) const { return selections_.contains(value); }
  bool follows_selection(const std::string& value) const { return later_.contains(value); }
  // The most steps of floats that stand one after the other before it, itself included; at least 1.
  int depth(const std::string& value) const;
  // Whether anything looks at it beyond the layers' own errors.
  bool is_looked_at(const std::string& value) const {
    return is_judged(value) || is_counted(value) || is_selection(value);
  }

 private:
  // What holds after a plan: of any of its values.
  struct Reach {
    int depth = 0;
    bool is_later = false;
  };
  Reach add(const Plan& plan, Reach outside);

  std::set<std::string> judged_, counted_, outputs_, choices_, selections_, later_;
  std::map<std::string, int> depths_;
};

}  // namespace anneal
