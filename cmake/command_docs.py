#!/usr/bin/env python3
"""Writes the man page and the bash completion of the command `anneal` from its own help.

    command_docs.py ANNEAL FOLDER      writes FOLDER/anneal.1 and FOLDER/anneal.bash
"""
import re
import subprocess
import sys
from pathlib import Path


def help_of(anneal, *command):
    return subprocess.run([anneal, *command, "--help-all" if command else "--help"], check=True, capture_output=True, text=True).stdout


def commands_of(text):
    """{name: what it does} of the list of subcommands in the general help."""
    listed = text.split("Subcommands:\n", 1)[1].split("\n\n", 1)[0]
    return dict(re.findall(r"^  (\w+) +(\S.*)$", listed, re.M))


def flags_of(text):
    return sorted(set(re.findall(r"(?<![\w-])--[a-z0-9][a-z0-9-]*", text.split("Examples:")[0])))


def roff(text):
    """Plain text, as it is, for the inside of a page."""
    lines = [re.sub(r"^([.'])", r"\\&\1", line.replace("\\", r"\e").replace("-", r"\-")) for line in text.rstrip().split("\n")]
    return ".nf\n" + "\n".join(lines) + "\n.fi\n"


def man_page(version, general, commands, helps):
    pages = [f'.TH ANNEAL 1 "" "anneal {version}" "User Commands"\n',
             ".SH NAME\nanneal \\- build, run and measure inference engines made from ONNX models\n",
             ".SH SYNOPSIS\n.B anneal\n.I COMMAND\n[\\fIOPTIONS\\fR]\n",
             ".SH DESCRIPTION\n" + roff(general)]
    for name in commands:
        pages.append(f".SH ANNEAL {name.upper()}\n{roff(helps[name])}")
    pages.append(".SH SEE ALSO\nThe pages below \\fIdocs/\\fR of the source tree: cli.md has every command in detail.\n")
    return "".join(pages)


def completion(commands, helps):
    cases = "\n".join(f'    {name}) words="{" ".join(flags_of(helps[name]))}" ;;' for name in commands)
    return f"""# bash completion for anneal
_anneal() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{' '.join(commands)} --help --version" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}}
complete -o filenames -F _anneal anneal
"""


def main(anneal, folder):
    general = help_of(anneal)
    commands = commands_of(general)
    helps = {name: help_of(anneal, name) for name in commands}
    version = subprocess.run([anneal, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "anneal.1").write_text(man_page(version, general, commands, helps))
    Path(folder, "anneal.bash").write_text(completion(commands, helps))


if __name__ == "__main__":
    main(*sys.argv[1:])
