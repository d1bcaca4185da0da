// Reads lines of {"template": TEXT, "variables": {...}} and answers each with {"text": TEXT} or {"error": MESSAGE}, for judges in
// other languages.

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "host/text/jinja/jinja_template.h"
#include "scripting/base/error.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::ordered_json answer;
    try {
      const auto given = nlohmann::ordered_json::parse(line);
      const sluice::JinjaTemplate parsed(given.at("template").get<std::string>(), "template");
      answer["text"] = parsed.render(given.at("variables"));
    } catch (const sluice::InputError& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
