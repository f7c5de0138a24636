#!/usr/bin/env python3
"""`anneal monitor`, and `--monitor` of other commands, with a made-up NVML and without any: lines that Python's csv reads.

Arguments: the command `anneal`, the folder of the made-up NVML, and optionally unittest's.
"""

import csv
import os
import re
import signal
import subprocess
import sys
import unittest

import command_case
from command_case import ABS, ANNEAL, STRANGE

FAKE = {"ANNEAL_CUDA_LIB_PATH": os.path.abspath(sys.argv.pop(1)), "ANNEAL_CUDA": ""}
NONE = {"ANNEAL_CUDA": "0"}
SAYS_NONE = "anneal: no GPU is monitored: there is no NVML here (libnvidia-ml.so.1: ANNEAL_CUDA=0"


def rows_of(text):
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    for row in rows:  # DictReader files what a line has too much or too little under None
        assert None not in row and None not in row.values(), row
    return rows


class Monitor(command_case.Command):
    def test_cards_of_nvml(self):
        rows = rows_of(self.anneal("monitor", env=FAKE))
        self.assertEqual([row["index"] for row in rows], ["0", "1"])
        self.assertEqual([row["name"] for row in rows], ["NVIDIA Made-up 1", "NVIDIA Made-up 2"])
        self.assertEqual([row["fan.speed [%]"] for row in rows], ["[N/A]", "35 %"])
        self.assertEqual(rows[0]["utilization.gpu [%]"], "71 %")
        self.assertRegex(rows[0]["timestamp"], r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}$")
        busy = re.fullmatch(r"(\d+\.\d) %", rows[0]["utilization.cpu [%]"])
        self.assertTrue(busy and 0 <= float(busy[1]) <= 100, rows[0])
        self.assertGreater(int(rows[0]["memory.cpu.used [MiB]"].removesuffix(" MiB")), 0)

    def test_samples_are_counted_and_go_to_a_file(self):
        printed = self.anneal("monitor", "-l", 0.02, "--count", 3, "--csv", "use.csv", "--query", "timestamp,index,memory.used",
                              "--format", "csv,nounits", env=FAKE)
        self.assertEqual(printed, "")
        rows = rows_of((self.at / "use.csv").read_text())
        self.assertEqual([(row["index"], row["memory.used [MiB]"]) for row in rows], [("0", "400"), ("1", "100")] * 3)
        times = [row["timestamp"] for row in rows[::2]]
        self.assertEqual(times, sorted(set(times)), "later samples have later times")
        bare = self.anneal("monitor", "--query", "name", "--format", "csv,noheader", env=FAKE)
        self.assertEqual(bare, "NVIDIA Made-up 1\nNVIDIA Made-up 2\n")

    def test_processes(self):
        rows = rows_of(self.anneal("monitor", "--processes", env=FAKE))
        computing = [(row["index"], row["pid"], row["used_gpu_memory [MiB]"]) for row in rows if row["held"] == "compute"]
        self.assertEqual(computing, [("0", "4001", "300 MiB"), ("0", "4002", "[N/A]")])

    def test_without_nvml_the_cpu_goes_on(self):
        rows = rows_of(self.anneal("monitor", "-l", 0.05, "--count", 2, env=NONE, says=SAYS_NONE))
        self.assertEqual([row["utilization.gpu [%]"] for row in rows], ["[N/A]"] * 2)
        self.assertTrue(all(row["memory.cpu.used [MiB]"].endswith(" MiB") for row in rows))

    def test_wrong_arguments(self):
        self.anneal("monitor", "--query", "temprature.gpu", status=2, says="did you mean temperature.gpu?; the fields are timestamp")
        self.anneal("monitor", "--count", 3, status=2, says="--count requires --loop")
        for loop in (0, 1e300, "inf"):
            self.anneal("monitor", "-l", loop, "--count", 2, status=2, says="a number from 0.01 to 1000000 is expected")
        self.anneal("monitor", "--format", "json", status=2, says='"json" is not known')
        self.anneal("monitor", "--csv", "none/use.csv", status=2, says="there is no folder none")
        self.anneal("monitor", "--csv", "/dev/full", status=2, env=FAKE, says="")
        self.assertEqual(self.files(), [])

    def test_help_names_every_field(self):
        text = " ".join(self.anneal("monitor", "--help").split())
        for flags, pattern in (((), r"the fields are (.*) \(?"), (("--processes",), r"the fields of --processes are (.*)")):
            refused = subprocess.run([ANNEAL, "monitor", *flags, "--query", "x"], capture_output=True, text=True).stderr
            names = re.search(pattern.removesuffix(r" \(?"), refused)[1]
            self.assertIn(names, text)

    def test_a_signal_ends_it_with_whole_lines(self):
        for ends in (signal.SIGINT, signal.SIGTERM):
            running = subprocess.Popen([ANNEAL, "monitor", "-l", "0.02", "--query", "index,name"], cwd=self.at, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **FAKE})
            self.assertEqual(running.stdout.readline(), "index, name\n")
            for _ in range(4):
                running.stdout.readline()
            running.send_signal(ends)
            rest, errors = running.communicate(timeout=60)
            self.assertEqual((running.returncode, errors), (0, ""))
            self.assertRegex(rest, r"\A((0, NVIDIA Made-up 1|1, NVIDIA Made-up 2)\n)*\Z")

    def test_commands_are_monitored(self):
        engine = self.build(ABS)
        for command in (["bench", engine, "--duration", 0.2], ["run", engine, "--input", "random"]):
            self.anneal(*command, "--monitor", f"{command[0]}.csv", env=FAKE)
            rows = rows_of((self.at / f"{command[0]}.csv").read_text())
            self.assertGreaterEqual(len(rows), 2, command)
            self.assertEqual([row["index"] for row in rows], ["0", "1"] * (len(rows) // 2))
        # A model is built in a process of its own, which the thread of samples is no part of.
        self.anneal("bench", "m.onnx", "--duration", 0.1, "--monitor", "m.csv", "--monitor-interval", 0.02, env=NONE, says=SAYS_NONE)
        self.assertGreater(len(rows_of((self.at / "m.csv").read_text())), 2)

    def test_a_monitored_command_that_fails(self):
        self.anneal("bench", "none.engine", "--monitor", "use.csv", env=FAKE, status=2, says="cannot open none.engine")
        self.assertGreaterEqual(len(rows_of((self.at / "use.csv").read_text())), 2)
        engine = self.build(ABS)
        self.anneal("run", engine, "--input", "random", "--monitor", "none/use.csv", env=FAKE, status=2, says="no folder none")
        self.anneal("run", engine, "--input", "random", "--monitor", "/dev/full", env=FAKE, status=2, says="/dev/full: cannot be written")
        self.anneal("run", engine, "--input", "random", "--monitor-interval", 1, status=2, says="requires --monitor")

    def test_a_build_of_bench_is_not_sampled(self):
        # The thread that samples begins after the process that builds, which is a copy of one thread.
        self.write("strange.onnx", STRANGE)
        self.anneal("bench", "strange.onnx", "--monitor", "use.csv", env=FAKE, status=3, says="NoSuchOperator")
        self.assertEqual(self.files(), ["strange.onnx"])

    def test_samples_do_not_replace_what_the_command_reads(self):
        engine = self.build(ABS)
        before = (self.at / engine).read_bytes()
        for command in (["bench", engine, "--duration", 0.1], ["run", engine, "--input", "random"]):
            self.anneal(*command, "--monitor", f"./{engine}", env=FAKE, status=2, says="is what the command reads")
        self.assertEqual((self.at / engine).read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
