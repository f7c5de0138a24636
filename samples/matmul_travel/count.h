// Bytes that a product moves, counted by the emulated device.
#pragma once
#include <string>

#include "product.h"
#include "report.h"

// Runs the product once on the emulated device and checks it; then `anneal bench --profile` counts
// the accesses to memory. command: the path of `anneal`, or its name in PATH.
Count count_bytes(const Product& product, Operands& operands, const std::string& folder,
                  const std::string& command);
