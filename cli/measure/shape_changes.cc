#include "anneal/cli/measure/shape_changes.h"

#include "anneal/cli/output/print.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

struct Samples {
  std::vector<double> steady, returning, fresh, prepare, prepared;
};

class Changes {
 public:
  Changes(const std::shared_ptr<const Engine>& engine, const std::vector<std::vector<Tensor>>& sets,
          const ContextOptions& options)
      : engine_(engine), sets_(sets), samples_(sets.size()) {
    options_ = options;
    options_.shape_cache_size = static_cast<int>(sets.size());
    options_.prewarm_profiles = false;
    known_ = std::make_unique<ExecutionContext>(engine_, options_);
    for (const auto& inputs : sets_) timed_run(*known_, inputs);
  }

  void take_round() {
    for (size_t k = 0; k < sets_.size(); ++k) {
      const auto& other = sets_[(k + 1) % sets_.size()];
      Samples& samples = samples_[k];
      timed_run(*known_, other);
      timed_run(*known_, other);  // the first brought this context's memory back into the caches
      samples.returning.push_back(timed_run(*known_, sets_[k]));
      samples.steady.push_back(timed_run(*known_, sets_[k]));

      ExecutionContext unprepared(engine_, options_);
      timed_run(unprepared, other);
      samples.fresh.push_back(timed_run(unprepared, sets_[k]));

      ExecutionContext context(engine_, options_);
      timed_run(context, other);
      const std::vector<InputShape> shapes = shapes_of(sets_[k]);
      const Stopwatch watch;
      context.prepare(shapes);
      samples.prepare.push_back(watch.milliseconds());
      samples.prepared.push_back(timed_run(context, sets_[k]));
    }
  }

  std::vector<ShapeTimes> times() const {
    std::vector<ShapeTimes> times;
    for (const Samples& of : samples_)
      times.push_back({.steady = median(of.steady),
                       .returning = median(of.returning),
                       .fresh = median(of.fresh),
                       .prepare = median(of.prepare),
                       .prepared = median(of.prepared)});
    return times;
  }

 private:
  double timed_run(ExecutionContext& context, const std::vector<Tensor>& inputs) const {
    const Stopwatch watch;
    for (size_t i = 0; i < inputs.size(); ++i)
      context.set_input(engine_->inputs()[i].name, inputs[i].view());
    context.run();
    return watch.milliseconds();
  }

  std::vector<InputShape> shapes_of(const std::vector<Tensor>& inputs) const {
    std::vector<InputShape> shapes;
    for (size_t i = 0; i < inputs.size(); ++i)
      shapes.push_back({engine_->inputs()[i].name, inputs[i].dims()});
    return shapes;
  }

  std::shared_ptr<const Engine> engine_;
  const std::vector<std::vector<Tensor>>& sets_;
  ContextOptions options_;
  std::unique_ptr<ExecutionContext> known_;
  std::vector<Samples> samples_;
};

}  // namespace

std::vector<ShapeTimes> measure_changes(const std::shared_ptr<const Engine>& engine,
                                        const std::vector<std::vector<Tensor>>& sets,
                                        const ContextOptions& options, const Amount& rounds) {
  Changes changes(engine, sets, options);
  const Stopwatch watch;
  const auto goes_on = [&](int taken) {
    if (taken < kFewestRuns) return true;
    return rounds.runs ? taken < *rounds.runs : watch.seconds() < rounds.seconds;
  };
  for (int taken = 0; goes_on(taken); ++taken) changes.take_round();
  return changes.times();
}

}  // namespace anneal
