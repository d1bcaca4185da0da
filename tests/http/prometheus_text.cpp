#include "tests/http/prometheus_text.h"

#include <regex>
#include <sstream>
#include <stdexcept>

namespace sluice::test {
namespace {

/// The name under which a sample's type was declared.
std::string family_of(const std::string& name, const std::map<std::string, std::string>& types) {
  for (const char* suffix : {"_bucket", "_sum", "_count"}) {
    const std::string text = suffix;
    if (!name.ends_with(text)) continue;
    std::string family = name.substr(0, name.size() - text.size());
    const auto found = types.find(family);
    if (found != types.end() && found->second == "histogram") return family;
  }
  return name;
}

}  // namespace

std::map<std::string, double> parse_prometheus(const std::string& text) {
  static const std::regex type_line(R"(# TYPE ([a-zA-Z_:][\w:]*) (counter|gauge|histogram))");
  static const std::regex sample_line(R"(([a-zA-Z_:][\w:]*)(\{([a-zA-Z_]\w*="[^"]*",?)*\})? (\S+))");
  std::map<std::string, std::string> types;
  std::map<std::string, double> values;
  std::map<std::string, double> last_bucket;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::smatch match;
    if (line.starts_with("# HELP ")) continue;
    if (std::regex_match(line, match, type_line)) {
      if (!types.emplace(match[1], match[2]).second) throw std::runtime_error("two types: " + line);
      continue;
    }
    if (!std::regex_match(line, match, sample_line)) throw std::runtime_error("no sample: " + line);
    const std::string name = match[1];
    const std::string family = family_of(name, types);
    if (!types.contains(family)) throw std::runtime_error("no type: " + line);
    const double value = std::stod(match[4]);
    if (!values.emplace(name + match[2].str(), value).second) throw std::runtime_error("twice: " + line);
    if (name == family + "_bucket") {
      if (value < last_bucket[family]) throw std::runtime_error("buckets fall: " + line);
      last_bucket[family] = value;
    }
    if (name == family + "_count" && last_bucket[family] != value) throw std::runtime_error("no bucket of all: " + line);
  }
  return values;
}

}  // namespace sluice::test
