// Elapsed time.
#pragma once
#include <chrono>

namespace anneal {

inline double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return milliseconds_since(start) / 1000;
}

}  // namespace anneal
