#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "host/text/tokenizer.h"
#include "scripting/base/unicode.h"

namespace sluice::test {

/// Every token is a byte, but for the special ones.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids = encode_as_written(text);
    if (!begin.empty()) ids.insert(ids.begin(), id_of(begin));
    return ids;
  }
  std::vector<int32_t> encode_as_written(std::string_view text) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      const auto token = std::find_if(special.begin(), special.end(), [&](const auto& one) { return text.starts_with(one); });
      ids.push_back(token == special.end() ? static_cast<unsigned char>(text.front()) : id_of(*token));
      text.remove_prefix(token == special.end() ? 1 : token->size());
    }
    return ids;
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 256) text += static_cast<char>(id);
      if (id >= 256 && !skip_special) text += special.at(static_cast<size_t>(id - 256));
    }
    return valid_utf8(text);
  }
  int vocabulary() const override { return 256 + static_cast<int>(special.size()); }
  int32_t id_of(std::string_view token) const override {
    const auto found = std::find(special.begin(), special.end(), token);
    return found == special.end() ? -1 : static_cast<int32_t>(256 + (found - special.begin()));
  }

  std::vector<std::string> special;
  std::string begin;  // of any text; empty: nothing is added
};

}  // namespace sluice::test
