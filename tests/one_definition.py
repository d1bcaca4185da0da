#!/usr/bin/env python3
"""Names each type that one program has twice: two definitions of one name are undefined, and no linker tells.

All code outside tests/ is one program; a folder of tests is one with it (tests/CMakeLists.txt), and so is each fuzzer. Types of
anonymous namespaces and of functions belong to their file. A type within another is covered by that one.
"""

import re
import subprocess
import sys
from collections import defaultdict

NOISE = re.compile(
    r'R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # but the marks between digits
    r'|//[^\n]*|/\*.*?\*/'
    r'|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*',  # the preprocessor's lines
    re.DOTALL | re.MULTILINE,
)
NAMESPACE = re.compile(r'\bnamespace\s*([\w:]*)\s*$')
TYPE = re.compile(
    r'\b(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+'
    r'(?:\[\[[^\]]*\]\]\s*|alignas\s*\([^)]*\)\s*)*'
    r'([A-Za-z_][\w:]*(?:<[^{}]*>)?)\s*(?:final\s*)?(?::(?!:)[^{}()]*)?$'
)


def types_of(text):
    """Full names of the types that a file defines at the scope of namespaces."""
    text = NOISE.sub(' ', text)
    scopes = []  # the name of each namespace that is open; None: of what is no namespace, or has no name
    head = ''
    for piece in re.split(r'([{};])', text):
        if piece not in ('{', '}', ';'):
            head += piece
            continue
        if piece == '}' and scopes:
            scopes.pop()
        if piece == '{':
            namespace = NAMESPACE.search(head)
            found = TYPE.search(head)
            if found and None not in scopes:
                yield '::'.join([*filter(None, scopes), found[1]])
            is_linkage = re.search(r'\bextern\s*$', head)
            scopes.append(namespace[1] or None if namespace else '' if is_linkage else None)
        head = ''


def main():
    files = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '*.h', '*.cpp', '*.cu', '*.cuh'], check=True,
                           capture_output=True, text=True).stdout.split()
    programs = defaultdict(list)
    for file in files:
        parts = file.split('/')
        if parts[0] != 'tests':
            programs['sluice'].append(file)
        elif len(parts) > 3 or parts[1] == 'fuzz':
            programs[file if parts[1] == 'fuzz' else '/'.join(parts[:3])].append(file)
        else:
            programs[parts[1]].append(file)
    found = {file: set(types_of(open(file, encoding='utf-8').read())) for file in files}
    told = set()
    for program, own in programs.items():
        places = defaultdict(list)
        for file in dict.fromkeys([*own, *programs['sluice'], *([] if program == 'sluice' else programs['support'])]):
            for name in found[file]:
                places[name].append(file)
        told |= {f'{name} is defined in {" and in ".join(sorted(where))}' for name, where in places.items() if len(where) > 1}
    print('\n'.join(sorted(told)), end='\n' if told else '')
    return 1 if told else 0


sys.exit(main())
