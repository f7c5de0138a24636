// Compilation with a cache: images are kept in a folder, named by everything they depend on.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/code/compiler.h"

namespace anneal::cuda {

// From the folder, if it has the image of this program for this compiler; else compiled and kept
// there. A damaged entry is compiled again; without a usable folder, nothing is kept. Any number of
// threads and processes may share a folder, and its files may be deleted at any time. An entry gets
// the time of its last use, so that old entries can be identified.
std::vector<std::byte> compile_once(const Compiler& compiler, const std::string& program,
                                    int architecture);

// ANNEAL_CACHE_DIR, else anneal in XDG_CACHE_HOME, else ~/.cache/anneal. "" if ANNEAL_CACHE_DIR is
// empty or nothing says where: nothing is kept.
std::string cache_folder();

}  // namespace anneal::cuda
