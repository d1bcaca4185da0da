#include "host/text/jinja/jinja_template.h"

#include <fmt/format.h>

#include "host/text/jinja/evaluator.h"
#include "host/text/jinja/parser.h"
#include "host/text/jinja/run.h"
#include "scripting/base/error.h"
#include "scripting/base/unicode.h"

namespace sluice {
namespace {

constexpr size_t kLargest = size_t{256} << 10;

[[noreturn]] void refuse(const std::string& name, const jinja::Fault& fault, const std::string& hint = {}) {
  const std::string line = fault.line() == 0 ? "" : fmt::format("{}:", fault.line());
  throw InputError(fmt::format("{}:{} {}", name, line, fault.what()), hint);
}

}  // namespace

JinjaTemplate::JinjaTemplate(std::string_view source, std::string name) : source_(source), name_(std::move(name)) {
  if (source.size() > kLargest) {
    throw InputError(fmt::format("{}: a template of {} bytes; {} are the most", name_, source.size(), kLargest));
  }
  if (valid_utf8(source) != source) throw InputError(fmt::format("{}: the template is not UTF-8", name_));
  try {
    body_ = jinja::parse(source, variables_);
  } catch (const jinja::Fault& fault) {
    refuse(name_, fault, "templates are Jinja, as Hugging Face's chat templates use it");
  }
}

std::string JinjaTemplate::render(const nlohmann::ordered_json& variables, std::optional<std::time_t> now) const {
  jinja::Run run;
  run.now = now;
  try {
    jinja::Scope& given = run.make_scope(nullptr);
    for (const auto& [name, value] : variables.get_ref<const nlohmann::ordered_json::object_t&>()) {
      given.names.emplace_back(std::string_view(name), run.from_json(value));
    }
    return jinja::Evaluator(run, run.make_scope(&given)).text_of(body_);
  } catch (const jinja::Fault& fault) {
    refuse(name_, fault);
  }
}

}  // namespace sluice
