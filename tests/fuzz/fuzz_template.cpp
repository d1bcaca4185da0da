// The input is a template, or numbers by which one is put together of what templates are made of; its first byte says which. A
// rendering that goes on for long, takes much or ends otherwise than by an InputError is a fault.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "host/text/jinja/jinja_template.h"
#include "scripting/base/error.h"
#include "scripting/base/unicode.h"

namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // of a text

const nlohmann::ordered_json& variables() {
  static const auto parsed = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": " Aé🙂 <b> \n"}, {"role": "assistant", "content": ""}], "n": 3, "f": 1.5,
          "d": {"b": [1, {"c": null}], "a": true}, "s": "a b,c", "bos_token": "<s>", "add_generation_prompt": true})");
  return parsed;
}

constexpr std::string_view kParts[] = {"{{ ",
                                       " }}",
                                       "{%- ",
                                       "{% ",
                                       " %}",
                                       " -%}",
                                       "{# c #}",
                                       "\n",
                                       "  text ",
                                       "for x in ",
                                       "endfor",
                                       "if ",
                                       "elif ",
                                       "else",
                                       "endif",
                                       "set x = ",
                                       "set ns.a = ",
                                       "set x",
                                       "endset",
                                       "macro m(a, b=2)",
                                       "endmacro",
                                       "call m(1)",
                                       "endcall",
                                       "caller()",
                                       "break",
                                       "continue",
                                       "with y = ",
                                       "endwith",
                                       "filter upper",
                                       "endfilter",
                                       "generation",
                                       "endgeneration",
                                       "raw",
                                       "endraw",
                                       "messages",
                                       "x",
                                       "n",
                                       "f",
                                       "d",
                                       "s",
                                       "loop",
                                       "loop.index",
                                       "loop.last",
                                       "ns",
                                       "namespace(a=1)",
                                       "m(x)",
                                       "m",
                                       "none",
                                       "true",
                                       "missing",
                                       "1",
                                       "-7",
                                       "2.5",
                                       "'text'",
                                       "\"é\\n\"",
                                       "[1, 'a', none]",
                                       "{'a': 1}",
                                       "(1, 2)",
                                       " + ",
                                       " - ",
                                       " * ",
                                       " / ",
                                       " // ",
                                       " % ",
                                       " ** ",
                                       " ~ ",
                                       " == ",
                                       " < ",
                                       " in ",
                                       " not in ",
                                       " and ",
                                       " or ",
                                       "not ",
                                       " if ",
                                       " else ",
                                       "[0]",
                                       "[-1]",
                                       "[1:]",
                                       "[::-1]",
                                       ".content",
                                       ".role",
                                       ".items()",
                                       ".split()",
                                       ".strip('a')",
                                       ".replace('a', 'bb')",
                                       ".get('a')",
                                       ".format(x)",
                                       "|trim",
                                       "|upper",
                                       "|length",
                                       "|join(',')",
                                       "|list",
                                       "|first",
                                       "|last",
                                       "|sort",
                                       "|unique",
                                       "|reverse",
                                       "|tojson",
                                       "|tojson(indent=2)",
                                       "|map(attribute='role')",
                                       "|map('upper')",
                                       "|selectattr('role', 'eq', 'user')",
                                       "|select",
                                       "|default('d')",
                                       "|indent",
                                       "|int",
                                       "|float",
                                       "|round",
                                       "|abs",
                                       "|string",
                                       "|dictsort",
                                       "|items",
                                       "|sum",
                                       "|min",
                                       "|batch(2)",
                                       "|format(1)",
                                       "|title",
                                       " is defined",
                                       " is none",
                                       " is string",
                                       " is mapping",
                                       " is odd",
                                       " is in [1]",
                                       "range(9)",
                                       "range(99999)",
                                       "dict(a=x)",
                                       "joiner()",
                                       "cycler(1, 2)",
                                       "raise_exception('no')",
                                       "strftime_now('%d')",
                                       ", ",
                                       "(",
                                       ")",
                                       "[",
                                       "]",
                                       "{",
                                       "}",
                                       ":",
                                       "=",
                                       "|"};

std::string composed(std::string_view numbers) {
  constexpr size_t kCount = std::size(kParts);
  std::string text = "{% set ns = namespace(a='ab') %}{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}";
  for (const char number : numbers) text += kParts[static_cast<uint8_t>(number) % kCount];
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const sluice::JinjaTemplate parsed(data[0] % 2 == 0 ? std::string(input) : composed(input), "fuzz");
    const std::string text = parsed.render(variables());
    if (text.size() > kMostBytes || sluice::valid_utf8(text) != text) __builtin_trap();
  } catch (const sluice::InputError& error) {
    if (std::string_view(error.what()).substr(0, 5) != "fuzz:") __builtin_trap();
  }
  return 0;
}
