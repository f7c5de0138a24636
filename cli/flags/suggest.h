// What to say about a command line with words that Anneal does not have: the nearest word that it
// has, or its own spelling of a flag of trtexec.
#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anneal {

// The candidate that differs least from the word, by at most a third of its letters: added, left
// out, changed, or two neighbours exchanged. Empty if there is none.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "there is no command \"buld\": did you mean build?", or what is wrong with a flag. Empty if
// nothing here explains the error.
std::string explain_words(const CLI::App& application, std::span<const std::string> words);

}  // namespace anneal
