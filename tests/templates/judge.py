#!/usr/bin/env python3
"""What transformers renders: Jinja2 set as in its apply_chat_template. Lines in and out as `render.cpp` has them; only "error"
tells what went wrong, in Jinja2's words. Ends with 77 where there is no Jinja2."""

import datetime
import json
import sys

try:
    import jinja2
    from jinja2 import ext, nodes, sandbox
except ImportError:
    sys.exit(77)


class Generation(ext.Extension):
    """{% generation %} marks what the assistant says, and changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

    def written(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)


def render(template, variables):
    try:
        return {"text": environment.from_string(template).render(**variables)}
    except Exception as error:  # whatever Python raises, transformers raises
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    for line in sys.stdin:
        given = json.loads(line)
        print(json.dumps(render(given["template"], given["variables"])), flush=True)
