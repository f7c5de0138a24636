// An SVG as a PNG.
#pragma once
#include <string>

// Throws std::runtime_error with the reason if the picture cannot be drawn or written.
void write_png(const std::string& svg, const std::string& path);
