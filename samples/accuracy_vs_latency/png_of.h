// An SVG as a PNG, where librsvg was there when this was built.
#pragma once
#include <string>

// Why there is none; empty: it was written.
std::string png_of(const std::string& svg, const std::string& path);
