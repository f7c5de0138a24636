#include "anneal/engine/run/context/batch_split.h"

#include <algorithm>
#include <vector>

#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

constexpr double kNearBytes = 1 << 20;     // of a core's own cache
constexpr double kSharedBytes = 16 << 20;  // shared cache for the tensors of one layer
constexpr int64_t kRowsInFlight = 4;       // of all threads, however large they are

Size rows_of_outputs(const Plan& plan) { return plan.slots[plan.outputs[0]].type.shape[0]; }

// The bytes that a run of the plan reads and writes.
class Traffic {
 public:
  Traffic(const Plan& plan, const SymbolValues& symbols, int64_t rows) {
    const auto bytes_of = [&](uint32_t index) {
      if (index == kNoSlot) return 0.0;
      // Sizes that no run could have are refused by binding them, in better words.
      const Type& type = plan.slots[index].type;
      auto bytes = static_cast<double>(size_of(type.dtype));
      for (const int64_t size : plan.sizes->evaluate(type.shape, symbols))
        bytes *= static_cast<double>(std::max<int64_t>(size, 0));
      return bytes;
    };
    for (const Step& step : plan.steps) {
      double moved = 0;
      for (const uint32_t output : step.outputs) moved += bytes_of(output);
      for (const uint32_t input : step.inputs)
        (input != kNoSlot && plan.slots[input].storage == Storage::kWeight ? weights_ : moved) +=
            bytes_of(input);
      steps_.push_back(moved / static_cast<double>(rows));
      row_ += steps_.back();
      most_ = std::max(most_, steps_.back());
    }
  }

  // The bytes of one row: all, and those that the shared cache does not keep while `rows` rows are
  // run.
  double row() const { return row_; }
  double spilled(int64_t rows) const {
    double bytes = 0;
    for (const double step : steps_)
      if (step * static_cast<double>(rows) > kSharedBytes) bytes += step;
    return bytes;
  }
  // How many of `rows` rows the caches of `cores` cores hold for any step.
  int64_t near(int cores, int64_t rows) const {
    return static_cast<int64_t>(std::min(kNearBytes * cores / most_, static_cast<double>(rows)));
  }
  // The fewest rows of a slice for which saving `saved` bytes per row outweighs reading the weights
  // for each slice again.
  int64_t paying(double saved, int64_t rows) const {
    const auto all = static_cast<double>(rows);
    return saved == 0 ? rows : static_cast<int64_t>(weights_ / (saved + weights_ / all)) + 1;
  }

 private:
  double weights_ = 0, row_ = 0, most_ = 0;
  std::vector<double> steps_;  // of one row
};

}  // namespace

bool input_has_rows(const Plan& plan, size_t input) {
  const Shape& shape = plan.slots[plan.inputs[input]].type.shape;
  return shape.rank() > 0 && shape[0] == rows_of_outputs(plan);
}

RowCut cut_rows(const Plan& plan, std::span<const Dims> input_dims, int threads, int64_t at_once) {
  const SymbolValues symbols = solve_symbols(plan, input_dims);
  const int64_t rows = plan.sizes->evaluate(rows_of_outputs(plan), symbols);
  RowCut cut{.rows = rows, .together = rows};
  const auto cut_alone = [&](int64_t slice) {
    cut.alone = slice;
    cut.rows_alone = rows - rows % (slice * threads);
    cut.together = std::min(cut.together, rows - cut.rows_alone);
  };
  if (rows < 2 || at_once >= rows) return cut;
  if (at_once > 0) {
    cut.together = at_once;
    if (threads > 1 && at_once <= rows / threads) cut_alone(at_once);
    return cut;
  }
  const Traffic traffic(plan, symbols, rows);
  const int64_t least = threads == 1 ? 1 : std::clamp<int64_t>(threads, 2, kRowsInFlight);
  const int64_t paying = traffic.paying(traffic.spilled(rows), rows);
  const int64_t together = std::max({traffic.near(threads, rows), paying, least});
  if (paying <= rows / 2 && together < rows) cut.together = together;
  // A single thread reads the rows that it has just written, which saves half of a row's traffic.
  const int64_t each = rows / threads, alone_paying = traffic.paying(traffic.row() / 2, rows);
  if (threads == 1 || each < alone_paying) return cut;
  // Slices of one length.
  const int64_t near = std::max<int64_t>(traffic.near(1, rows), 1);
  const int64_t alone = each / std::min((each - 1) / near + 1, each / alone_paying);
  const int64_t in_flight = alone * threads;
  if (in_flight <= kRowsInFlight || traffic.spilled(in_flight) <= traffic.spilled(cut.together))
    cut_alone(alone);
  return cut;
}

}  // namespace anneal
