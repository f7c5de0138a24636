// Formatting of numbers and tables for people.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/run/engine.h"

namespace anneal {

std::string bytes_text(uint64_t bytes);                        // "26.5 kB"
std::string milliseconds_text(double value);                   // "0.123 ms", "12.3 ms", "1.23 s"
std::string count_text(uint64_t count, std::string_view one);  // "1 step", "2 axes"
// At most `digits` significant ones; NaN has no sign.
std::string number_text(double value, int digits = 6);
std::string one_line(std::string_view text);  // line ends become "; "
std::string rate_text(double per_second);     // "12,780", "45.3"

// Rows of cells, columns as wide as their widest cell, two blanks between; right: columns that are
// aligned to the right. Cells are made printable.
using Rows = std::vector<std::vector<std::string>>;
std::string table_text(Rows rows, const std::vector<bool>& right);

double median(std::vector<double> values);  // REQUIRES: not empty
// The value that a share of them does not exceed. REQUIRES: not empty
double percentile(std::vector<double> values, double share);

}  // namespace anneal
