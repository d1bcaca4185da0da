#!/usr/bin/env python3
"""Runs clang-tidy over the program's sources, several in one translation unit: most of its time goes into their headers.

    tidy.py [--build FOLDER] [--jobs N] [FILE...]      without files: all of the program that FOLDER compiles

Files that define the same name in an anonymous namespace stand in different units. A unit that does not compile, or that
clang-tidy dies of, is split.
Findings are printed, and are errors.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ['scripting', 'kernels', 'host', 'sandbox', 'store', 'agents']
MOST_FILES = 30
# What stands alone in its file at the left, but for what a namespace or a class begins with, and members of classes.
DEFINITION = re.compile(r'^(?!namespace|using|#|//)[A-Za-z_][\w:<>,&*\s\[\]]*?(?<!::)\b(\w+)\s*(?:\(|=|\{|;)', re.MULTILINE)


def own_names(path):
    """Names that a file defines outside of classes and functions, about."""
    return set(DEFINITION.findall(path.read_text()))


def sources(build, only):
    """By the arguments of the compiler: files of the program that a build compiles."""
    listed = subprocess.run(['git', 'ls-files', *(f'{folder}/*.cpp' for folder in FOLDERS)], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    wanted = {str(ROOT / file) for file in only or listed}
    groups = {}
    for entry in json.loads((build / 'compile_commands.json').read_text()):
        if entry['file'] in wanted:
            # Without headers that another compiler has precompiled, so that a file which leaves some out is found as well.
            arguments = re.sub(r' -o \S+ -c \S+$| -Winvalid-pch| -include \S*cmake_pch\.hxx', '', entry['command'])
            groups.setdefault((entry['directory'], arguments), []).append(Path(entry['file']))
    return groups


def units(files):
    """Lists of files, none with the name of another in its list."""
    found = []
    for file in files:
        names = own_names(file)
        for unit in found:
            if len(unit['files']) < MOST_FILES and not names & unit['names']:
                break
        else:
            unit = {'files': [], 'names': set()}
            found.append(unit)
        unit['files'].append(file)
        unit['names'] |= names
    return [unit['files'] for unit in found]


def tidy(directory, arguments, files):
    """What clang-tidy finds in files that share a unit; empty if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / 'unit.cpp'
        unit.write_text(''.join(f'#include "{file}"\n' for file in files))
        database = [{'directory': directory, 'command': f'{arguments} -c {unit}', 'file': str(unit)}]
        (Path(folder) / 'compile_commands.json').write_text(json.dumps(database))
        run = subprocess.run(['clang-tidy', '-p', folder, '--quiet', '--warnings-as-errors=*', f'--config-file={ROOT}/.clang-tidy',
                              '--checks=-bugprone-suspicious-include',
                              f'--header-filter={ROOT}/({"|".join(FOLDERS)})/.*\\.(h|cpp)$', str(unit)],
                             cwd=ROOT, capture_output=True, text=True)
    if len(files) > 1 and (run.returncode < 0 or 'clang-diagnostic-error' in run.stdout):
        half = len(files) // 2
        return tidy(directory, arguments, files[:half]) + tidy(directory, arguments, files[half:])
    return run.stdout + run.stderr if run.returncode else ''


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=Path, default=ROOT / 'build')
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('files', nargs='*')
    options = parser.parse_args()
    work = [(directory, arguments, unit) for (directory, arguments), files in sources(options.build, options.files).items()
            for unit in units(files)]
    if not work:
        sys.exit('tidy: the build compiles none of these files')
    with ThreadPoolExecutor(options.jobs) as pool:
        findings = ''.join(pool.map(lambda unit: tidy(*unit), work))
    print(findings, end='')
    sys.exit(1 if findings else 0)


if __name__ == '__main__':
    main()
