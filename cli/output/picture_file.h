// Pictures of commands as files: an SVG, or the PNG that rsvg-convert makes of it.
#pragma once
#include <string>
#include <string_view>

namespace anneal {

// Fails with kInvalidArgument, naming the flag, unless the name ends in .svg or .png; else as
// check_output_file(). Empty: no picture.
void check_picture_path(const std::string& path, std::string_view flag);
// Whole or not at all; a PNG has two pixels for each length of 1. Fails with kUnsupported if a PNG
// is asked for and rsvg-convert is not in PATH, with kCannotWrite or kIo.
// REQUIRES: check_picture_path() accepts the path
void write_picture(const std::string& path, const std::string& svg);

}  // namespace anneal
