// The demands of a value's readers: the error that they accept. Propagated backwards from functions
// that magnify errors, through arithmetic, movement and products.
#pragma once
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/optimizer/pass.h"
#include "anneal/optimizer/precision/value_flow.h"
#include "anneal/optimizer/precision/value_range.h"

namespace anneal {

// How numbers are rounded: to a number of binary digits, or, of integers of 8 bits, to
// steps of 2^-8 of the largest one.
struct NumberRounding {
  int digits = 0;
  bool keeps_integers = false;  // whole numbers of this many digits
};
NumberRounding rounding_of(DataType half);
inline constexpr NumberRounding kEightBits = {8, false};

// A need, and where it comes from.
struct Limit {
  double most = std::numeric_limits<double>::infinity();  // absolute error
  int seed = -1;                                          // index of NeedAnalysis's seeds
};

// The needs of one number. Four kinds, which end in different places (docs/quantization.md):
struct Needs {
  Limit direct;      // by readers without a product in between
  Limit by_product;  // by way of one or more products; features do without it
  int decides = -1;  // exact, as it is compared or selected: a seed. Ends at the product before
  int cancels = -1;  // exact, because the result of a difference counts. Ends behind the product
};

// The surroundings of a body: the facts of its inputs, and the needs of its outputs.
struct BodyContext {
  std::vector<NodeFacts> inputs;
  std::vector<Needs> outputs;
  std::shared_ptr<const std::vector<std::string>> seeds;  // that the needs count
};

class NeedAnalysis {
 public:
  // `around`: of a body; null of a graph that nothing surrounds. threads: as of facts_of().
  NeedAnalysis(const Graph& graph, const PrecisionOptions& options,
               const BodyContext* around = nullptr, int threads = 1);
  // For each body that a layer of the graph runs, by its index.
  using Bodies = std::map<int64_t, std::shared_ptr<const BodyContext>>;
  const Bodies& bodies() const { return bodies_; }
  // Why the value must not be stored so, for people; empty if it may be. `what` names the type.
  std::string why_not_stored(ValueId value, NumberRounding rounding, std::string_view what) const;
  // Why the product must not have operands that are rounded so.
  std::string why_not_multiplied(LayerId product, NumberRounding rounding,
                                 std::string_view what) const;
  // See NodeFacts. 0: no such value.
  double expected(ValueId value) const;
  // Of the operand of a product that is its only constant; null: there is none, or the layer is no
  // product.
  const ProductNorms* norms_of(LayerId product) const;

 private:
  // The largest error of the op's result; infinite if nothing is known.
  double error_of(LayerId product, NumberRounding rounding) const;
  std::string text(int seed, double error, std::string_view subject) const;

  std::unordered_map<ValueId, std::pair<NumberRange, Needs>> values_;
  std::unordered_map<ValueId, double> expected_;
  struct Product {
    Needs needs;
    NumberRange data, weights;
    double weights_factor = 0, data_factor = 0;  // of the other's error
    std::optional<ProductNorms> norms = {};
  };
  std::unordered_map<LayerId, Product> products_;
  std::vector<std::string> seeds_;
  Bodies bodies_;
};

// Uses the notes of passes on the graph, if it is a body; notes the findings for its own bodies.
NeedAnalysis find_needs(const Graph& graph, PassRun& run);

}  // namespace anneal
