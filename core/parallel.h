// The only way to run on several threads. A Team is a lease of workers from the process-wide budget
// (one worker per core beyond the first, by default); when the budget is spent a team is smaller,
// at worst its caller alone. Work is claimed in chunks, so a slow core does not hold up the rest.
#pragma once
#include <cstdint>
#include <memory>

namespace anneal {

// A reference to a callable; no ownership, no allocation. The callable must outlive the call.
template <class Signature>
class FunctionRef;
template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
  FunctionRef(const F& f)  // NOLINT(google-explicit-constructor)
      : object_(&f), call_([](const void* object, A... args) -> R {
          return (*static_cast<const F*>(object))(args...);
        }) {}
  R operator()(A... args) const { return call_(object_, args...); }

 private:
  const void* object_;
  R (*call_)(const void*, A...);
};

int hardware_threads();  // cores this process may use, at least 1

// One caller at a time. The destructor gives the workers back.
class Team {
 public:
  explicit Team(int threads);  // wanted, the caller included; size() says what it got
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  int size() const;
  // Calls body(begin, end) for disjoint ranges that cover [0, items), each at least `grain` long
  // but the last. The first exception thrown by a body is rethrown here once all have returned.
  // Results must not depend on how the ranges are cut: every kernel gives the same bits for any
  // team.
  void for_ranges(int64_t items, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  struct Lease;
  std::unique_ptr<Lease> lease_;  // null: the caller alone
};

}  // namespace anneal
