// A STREAM-like copy and an FMA loop with nothing of Anneal, beside which the ceilings of
// `anneal bench --roofline` are held (docs/roofline.md). Compiled for the machine that compiles it.
//
//   roofline_check [THREADS]
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Vector = float __attribute__((vector_size(64)));

// An array of 128 MiB is copied piece by piece, since short pieces are seldom interrupted.
constexpr size_t kPiece = size_t{4} << 20, kPieces = 8;  // floats
constexpr int kCopies = 500, kLoops = 2000, kRounds = 20000;
constexpr size_t kSums = 10, kLanes = sizeof(Vector) / sizeof(float);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

__attribute__((noinline)) void copy(float* __restrict__ to, const float* __restrict__ from) {
  for (size_t i = 0; i < kPiece; ++i) to[i] = from[i];
}

// A number that depends on all sums. They begin differently, and the factor is not known where this
// is compiled, so that the compiler computes each.
__attribute__((noipa)) float multiply_and_add(float factor, float addend) {
  Vector sums[kSums], a = Vector{} + factor, b = Vector{} + addend;
  for (size_t k = 0; k < kSums; ++k) sums[k] = Vector{} + static_cast<float>(k);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 10
    for (size_t k = 0; k < kSums; ++k) sums[k] = sums[k] * a + b;
  }
  for (size_t k = 1; k < kSums; ++k) sums[0] += sums[k];
  return sums[0][0];
}

struct Best {
  // From the start of the first thread to the end of the last.
  double copy_seconds = 1e30;
  double loop_seconds = 1e30;
  float result = 0;
  Clock::time_point begin;  // of the last copy
};

void measure(std::barrier<>& together, std::vector<Best>& all, Best& best) {
  std::vector<float> from(kPiece * kPieces, 1.0F), to(kPiece * kPieces, 2.0F);
  for (int i = 0; i < kCopies; ++i) {
    const size_t at = static_cast<size_t>(i) % kPieces * kPiece;
    together.arrive_and_wait();
    best.begin = Clock::now();
    copy(to.data() + at, from.data() + at);
    together.arrive_and_wait();
    if (&best == all.data()) {
      const Best& first = *std::ranges::min_element(all, {}, &Best::begin);
      best.copy_seconds = std::min(best.copy_seconds, seconds_since(first.begin));
    }
  }
  best.result = to[kPiece];
  for (int i = 0; i < kLoops; ++i) {
    const auto begin = Clock::now();
    best.result += multiply_and_add(0.999F, 0.001F);
    best.loop_seconds = std::min(best.loop_seconds, seconds_since(begin));
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  if (threads < 1 || count > 2) {
    std::fprintf(stderr, "usage: roofline_check [THREADS]\n");
    return 2;
  }
  std::vector<Best> best(static_cast<size_t>(threads));
  std::barrier<> together(threads);
  {
    std::vector<std::jthread> running;
    for (Best& each : best) running.emplace_back([&] { measure(together, best, each); });
  }
  double rate = 0;
  float result = 0;
  for (const Best& each : best) {
    rate += 2.0 * kRounds * kSums * kLanes / each.loop_seconds;
    result += each.result;
  }
  const double bytes = 2.0 * kPiece * sizeof(float) * threads;
  std::printf("%d thread(s): copy %.1f GB/s, f32 %.1f Gop/s (result %g)\n", threads,
              bytes / best[0].copy_seconds / 1e9, rate / 1e9, static_cast<double>(result));
  return 0;
}
