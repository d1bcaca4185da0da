#include "host/text/jinja/jinja_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "scripting/base/error.h"
#include "tests/support/source_path.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

const Json& golden() {
  static const Json document = Json::parse(std::ifstream(testing::source_path("tests/goldens/jinja.json")));
  return document;
}

std::vector<std::string> features() {
  std::vector<std::string> names;
  for (const auto& [name, cases] : golden().at("features").items()) names.push_back(name);
  return names;
}

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return JinjaTemplate(source, "t").render(variables);
}

/// What the refusal says; empty if there is none.
std::string refusal(const std::string& source, const Json& variables = Json::object()) {
  try {
    render(source, variables);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}

/// Expectations made by Jinja2 (`tests/templates/goldens.py`): a text, or null where it raises.
class JinjaFeature : public ::testing::TestWithParam<std::string> {};

TEST_P(JinjaFeature, IsAsInJinja2) {
  const Json& cases = golden().at("features").at(GetParam());
  ASSERT_FALSE(cases.empty());
  for (const Json& one : cases) {
    const auto source = one.at("template").get<std::string>();
    const std::string refused = refusal(source, golden().at("variables"));
    EXPECT_EQ(!refused.empty(), one.at("text").is_null()) << source << "\n" << refused;
    if (refused.empty() && one.at("text").is_string()) {
      EXPECT_EQ(render(source, golden().at("variables")), one.at("text").get<std::string>()) << source;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jinja, JinjaFeature, ::testing::ValuesIn(features()), [](const auto& feature) { return feature.param; });

TEST(Jinja, RefusalsTellTheLine) {
  EXPECT_EQ(refusal("a\n\n{{ 1 / 0 }}"), "t:3: division by zero");
  EXPECT_EQ(refusal("a\n{% if x %}\n{{ y.z }}\n{% endif %}", {{"x", 1}}), "t:3: 'y' is undefined");
  EXPECT_EQ(refusal("\n{{ raise_exception('Roles must alternate') }}"), "t:2: Roles must alternate");
  EXPECT_EQ(refusal("\n\n\n{% include 'a' %}"), "t:4: the tag {% include %} is not supported here");
  EXPECT_EQ(refusal("\n{{ x | shout }}"), "t:2: there is no filter \"shout\" here");
  EXPECT_EQ(refusal("\n{{ x is loud }}"), "t:2: there is no test \"loud\" here");
  EXPECT_EQ(refusal("{#\n\n#}{{ shout(1) }}"), "t:3: 'shout' is undefined, and cannot be called");
  EXPECT_EQ(refusal("{{ 'a\nb\n"), "t:1: a text has no end: a quotation mark is missing");
  EXPECT_EQ(refusal("{% for x in y %}\n"), "t:1: {% endfor %} is missing");
  EXPECT_NE(refusal("{{ x }}\xff"), "");
}

TEST(Jinja, ObjectsKeepTheOrderOfTheirMembers) {
  EXPECT_EQ(render("{{ x|tojson }}{{ x }}", {{"x", {{"b", 1}, {"a", 2}}}}), R"({"b": 1, "a": 2}{'b': 1, 'a': 2})");
}

TEST(Jinja, TheTimeMayBeGiven) {
  EXPECT_EQ(JinjaTemplate("{{ strftime_now('%d %b %Y') }}", "t").render(Json::object(), 1721952000), "26 Jul 2024");
  EXPECT_EQ(render("{{ strftime_now('%Y')|length }}"), "4");
}

TEST(Jinja, KnowsItsVariables) {
  const JinjaTemplate parsed("{% if enable_thinking is defined %}{{ messages[0].role }}{% endif %}", "t");
  EXPECT_TRUE(parsed.has_variable("enable_thinking"));
  EXPECT_FALSE(parsed.has_variable("role"));
}

/// Templates without an end, or of no depth or size that could be held.
class HostileJinja : public ::testing::TestWithParam<std::string> {};

TEST_P(HostileJinja, IsRefusedSoonWithItsLine) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string refused = refusal("\n" + GetParam(), {{"messages", Json::array()}});
  EXPECT_EQ(refused.rfind("t:2: ", 0), 0U) << refused << GetParam().substr(0, 100);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // 2 s on a machine of its own
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

INSTANTIATE_TEST_SUITE_P(
    Jinja, HostileJinja,
    ::testing::Values(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set l = range(99999)|list %}{% for i in l %}{{ i in l }}{% endfor %}", "{% for i in range(999999999) %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% call m() %}{% endcall %}{{ caller() }}{% endmacro %}{% call m() %}{% endcall %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{{ 'x' * 1000000000 }}", "{{ [1] * 1000000000 }}", "{{ 'x'|indent(1000000000) }}", "{{ [1]|tojson(indent=1000000000) }}",
        "{{ '%999999999d' % 3 }}", "{{ 9999999999 ** 9999999999 }}", "{{ strftime_now('%999999999d') }}",
        "{% set a = 'a' * 20000000 %}{% set b = 'a' * 9000000 + 'b' %}{% for i in range(99999) %}{{ b in a }}{% endfor %}",
        "{% set a = 'a ' * 1000000 %}{% for i in range(99999) %}{% set b = a.split() %}{% endfor %}",
        "{% set a = 'ab' * 100000 %}{% for i in range(9999) %}{{ a.strip(a) }}{% endfor %}", "{{ " + repeated("(", 50000),
        "{{ " + repeated("[", 50000) + repeated("]", 50000) + " }}", "{{ " + repeated("not ", 50000) + "1 }}",
        "{{ " + repeated("-", 50000) + "1 }}", "{{ 1" + repeated(" + 1", 50000) + " }}",
        "{{ messages" + repeated(".b", 50000) + " }}", "{{ 'a'" + repeated("|upper", 30000) + " }}",
        repeated("{% if a %}", 20000), repeated("{% for a in b %}", 10000), "{{ " + repeated("1 if ", 40000) + "1 }}"));

TEST(Jinja, LargeConversationsRender) {
  Json messages = Json::array();
  for (int i = 0; i < 4096; ++i)
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(900, 'x')}});
  std::ifstream file(testing::source_path("tests/templates/qwen3.jinja"));
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  EXPECT_GT(render(source, {{"messages", messages}}).size(), size_t{3600000});
  const Json one = Json::array({{{"role", "user"}, {"content", std::string(3900000, 'x')}},
                                {{"role", "assistant"}, {"content", std::string(100000, 'y')}}});
  EXPECT_GT(render(source, {{"messages", one}}).size(), size_t{4000000});
}

}  // namespace
}  // namespace sluice
