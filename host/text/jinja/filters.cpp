#include "host/text/jinja/filters.h"

namespace sluice::jinja {

Filter find_filter(std::string_view name) {
  if (name == "tojson") return to_json;
  for (const auto find : {find_text_filter, find_list_filter, find_choosing_filter, find_number_filter}) {
    if (const Filter found = find(name)) return found;
  }
  return nullptr;
}

}  // namespace sluice::jinja
