// The table and the picture.
#pragma once
#include <string>
#include <vector>

#include "variant.h"

// Score and drop of every variant; the first one is f32, which the others are compared with.
void compare_scores(std::vector<Variant>& variants, const anneal::Metric& metric);

// A table on standard output. samples: what they are, "held out from the search".
void print_table(const std::vector<Variant>& variants, const std::string& samples);

// The variants in place of the tuning's own points, for a picture.
anneal::Frontier as_frontier(const std::vector<Variant>& variants, const anneal::Frontier& tuned,
                             const std::string& model);

// PATH.svg and PATH.png. A file appears as a whole or not at all.
void write_pictures(const anneal::Frontier& frontier, const std::string& path);
