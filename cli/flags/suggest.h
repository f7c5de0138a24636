// Explains unknown words of a command line: by the nearest known word, or by Anneal's spelling of a
// flag of trtexec.
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

// "there is no command \"buld\"; did you mean build?", or an explanation of a wrong flag. Empty if
// unknown words are not the error.
std::string explain_words(const CLI::App& application, std::span<const std::string> words);

}  // namespace anneal
