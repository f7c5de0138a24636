// Times of one product.
#pragma once
#include <chrono>
#include <string>

#include "product.h"
#include "report.h"

// The time that the program may take.
class TimeLimit {
 public:
  explicit TimeLimit(double seconds) : seconds_(seconds) {}
  double all() const { return seconds_; }
  double left() const {
    return seconds_ - std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  Clock::time_point start_ = Clock::now();
};

// Bytes per second of a copy within the CPU's memory by all its cores, each byte read and written.
double copy_speed_of_cpu(size_t bytes);

// Bytes per second, the median: of copies within the memory of GPU 0, where each byte is read and
// written, and of copies from and to page-locked host memory. Each is copied five times, or for
// `seconds`.
struct CopySpeeds {
  double memory, to_gpu, from_gpu;
};
CopySpeeds copy_speeds_of_gpu(size_t bytes, double seconds);

// Runs the engine on operands in host memory, and checks the result. Sets runs and seconds.
void measure_in_host_memory(const ProductEngine& engine, Operands& operands, const TimeLimit& limit,
                            Measurement& result);

// Runs the engine on copies of the operands in the memory of GPU 0, likewise.
void measure_in_gpu_memory(const ProductEngine& engine, Operands& operands, const TimeLimit& limit,
                           Measurement& result);
