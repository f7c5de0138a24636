// f32 and a plan of lower precision side by side: the difference, and the layers that it comes
// from.
#pragma once
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/builder/self_check/judged_values.h"
#include "anneal/engine/builder/self_check/value_error.h"
#include "anneal/engine/builder/self_check/watched_engine.h"
#include "anneal/engine/run/debug.h"

namespace anneal {

// Layers that dominate a difference are looked for where it is more than the precision explains.
// A warning starts at this factor: differences of deep networks vary with the inputs.
inline constexpr double kToldFrom = 4;
// Of a magnitude: a result that is further off gets a warning, however deep the network is.
inline constexpr double kUseless = 0.5;

// How far a judged value is from f32, over what the precision explains.
struct Finding {
  double excess = 0;  // 1: as far as rounding may take it
  std::string value;
  double difference = 0;  // the share behind `excess`: of a magnitude, or of differing integers
  double explained = 0;   // the share that the precision explains
  bool is_lost = false;   // not finite, but f32 is
  bool is_count = false;  // integers and booleans
  bool is_bad() const { return is_lost || excess > 1; }
  bool is_told() const { return is_lost || excess > kToldFrom; }
  // Whether rounding alone could make the result useless.
  bool is_capped() const { return !is_count && kToldFrom * explained > kUseless; }
  // The largest difference without a warning.
  double most() const { return is_capped() ? kUseless : kToldFrom * explained; }
};

// Where a difference arises.
struct Fault {
  std::string value, step;
  bool is_lost = false;
  double largest = 0;     // magnitude in f32
  double difference = 0;  // of this step alone, relative
};

class PlanComparison {
 public:
  // unit: half a last place of the lowest precision, relative. most_explained: a limit for what it
  // explains of deep values. All arguments must outlive it.
  PlanComparison(WatchedEngine& exact, WatchedEngine& reduced, const JudgedValues& judged,
                 double unit, double most_explained = std::numeric_limits<double>::infinity())
      : exact_(exact),
        reduced_(reduced),
        judged_(judged),
        unit_(unit),
        most_explained_(most_explained) {}

  // Runs both on the same inputs. Where they differ, f32 runs again with each value moved by a few
  // last places: what moves a result as far is no difference, as in a sum that cancels. Fails as
  // running does.
  Finding compare(const std::vector<Tensor>& inputs);
  // For f32 in the last comparison: the share of a judged value that is not finite, at most.
  double blind_share() const;
  // Of the last comparison: elements that were judged, and of these the numbers in f32.
  struct Judged {
    size_t elements = 0, numbers = 0;
    bool is_blind() const { return elements > 0 && numbers == 0; }
  };
  const Judged& judged() const { return judged_in_last_; }
  // Outputs that follow a selection that differed are not judged. Of those in the last comparison,
  // this one is furthest off, and further than rounding explains.
  struct BehindSelection {
    std::string value;  // empty: none
    double difference = 0;
  };
  const BehindSelection& behind_selection() const { return behind_selection_; }
  // After a comparison that was bad: keeps all values of f32, which what follows needs.
  void keep_all();
  // Of the last comparison. Values are made exact up to one after the other, until half of the
  // difference goes: that one's step is the fault, and so are others that are as bad by themselves;
  // empty if no step dominates. As many runs as the number of values has bits. REQUIRES: keep_all()
  std::vector<Fault> faults();
  // After faults(): whether the value is stored in 16 bits, or may be.
  bool is_rounded(const std::string& value) const;

  // A value of f32 in the last comparison. REQUIRES: keep_all()
  std::vector<float> exact_value(const std::string& value) const;
  // The finding of a disturbed run in f32: the callback may write into values, before they are
  // compared with those of the last comparison.
  Finding disturbed(const WatchedEngine::Told& told);

 private:
  struct Value {
    ValueKey key;
    std::string step;
    DataType stored = DataType::kF32;  // 16 bits, if every element was of that type
    ValueError alone = {};             // given exact operands
    bool is_float = true;
  };
  enum class Pass { kJudge, kExactBefore, kAlone };

  void keep(bool all);
  void measure_noise();
  float noise_of(const ValueKey& key) const;
  Finding run(WatchedEngine& engine, Pass pass, size_t exact_before,
              const WatchedEngine::Told* told = nullptr);
  void judge_in_order(const ValueKey& key, const KeptValue& kept, const Observation& observed,
                      const ValueError& error, Finding& worst);
  void judge(const ValueKey& key, DataType dtype, const ValueError& error, Finding& worst) const;
  // A value that cannot be compared element by element must be finite where f32 is.
  void judge_numbers(const ValueKey& key, const KeptValue& kept, const TensorView& got,
                     Finding& worst) const;
  void note_behind_selection(const std::string& value, const ValueError& error);
  double explained(const ValueKey& key) const;
  void write_exact(const Value& value, const Observation& observed) const;
  static Fault fault_of(const Value& value);

  WatchedEngine& exact_;
  WatchedEngine& reduced_;
  const JudgedValues& judged_;
  double unit_, most_explained_;
  std::map<ValueKey, KeptValue> kept_;  // of f32
  std::map<ValueKey, float> noise_;     // what rounding in f32 does to its judged values
  std::vector<Value> values_;           // of both, in the reduced plan's order
  std::map<ValueKey, size_t> places_;
  Judged count_, judged_in_last_;
  BehindSelection behind_selection_;
};

}  // namespace anneal
