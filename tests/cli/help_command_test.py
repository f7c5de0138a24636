#!/usr/bin/env python3
"""The form of `anneal COMMAND --help`: two screens, headings, one line for most flags; `--help-all` has every flag.

Arguments: the command `anneal`, and optionally unittest's.
"""

import re
import unittest

import command_case

COMMANDS = ["build", "run", "bench", "inspect", "calibrate", "tune", "eval", "compare", "check", "bisect", "passes", "devices",
            "retune", "time-kernels", "monitor"]
HEADING = re.compile(r"^[A-Z][\w ()/.]+:$", re.M)


def flags_of(text):
    return set(re.findall(r"^  (?:-\w,)?(--[a-z0-9-]+)", text, re.M))


class Help(command_case.Command):
    def test_help_fits_two_screens(self):
        for command in COMMANDS:
            lines = self.anneal(command, "--help").splitlines()
            self.assertLessEqual(len(lines), 60, command)
            for line in lines + self.anneal(command, "--help-all").splitlines():
                self.assertLessEqual(len(line), 100, f"{command}: {line}")

    def test_flags_have_headings(self):
        for command, headings in {
                "build": ["Input and output:", "Target:", "Shapes:", "Precision (docs/quantization.md):", "Calibration:",
                          "Accuracy budget (docs/tuning.md):", "Passes and kernels:"],
                "run": ["Input and output:", "Measurement:", "Execution:", "Diagnosis:"]}.items():
            found = HEADING.findall(self.anneal(command, "--help"))
            self.assertEqual(found, headings + ["Examples:"])
        for command in COMMANDS:  # only help itself has no heading
            for text in (self.anneal(command, "--help"), self.anneal(command, "--help-all")):
                for part in text.split("\n\n")[1:]:
                    if not HEADING.match(part):
                        self.assertLessEqual(flags_of(part) - {"--tolerances", "--known-failures"}, {"--help", "--help-all"})

    def test_help_all_has_every_flag(self):
        for command in COMMANDS:
            short, all_flags = (flags_of(self.anneal(command, form)) for form in ("--help", "--help-all"))
            self.assertLessEqual(short - {"--help-all"}, all_flags, command)
        build = flags_of(self.anneal("build", "--help-all"))
        self.assertGreater(len(build), 60)
        self.assertIn("--dump-passes", build)
        self.assertNotIn("--dump-passes", flags_of(self.anneal("build", "--help")))
        self.assertNotIn("--help-all", flags_of(self.anneal("passes", "--help")))

    def test_no_artefacts_of_the_library(self):
        for command in COMMANDS:
            text = self.anneal(command, "--help-all")
            self.assertNotRegex(text, r"\{false\}|REQUIRED|\bINT\b|FLOAT|=\d|Needs:|Excludes:| \.\.\.$|1024b")


if __name__ == "__main__":
    unittest.main()
