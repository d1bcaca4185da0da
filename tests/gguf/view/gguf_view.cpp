// What our reader sees in a GGUF file, as JSON, for a judge in JavaScript.
//   gguf_view --small FILE    writes a small file
//   gguf_view FILE < REQUEST  answers {"keys": [[KEY, KIND]...], "texts": [TEXT...]}

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "host/text/gguf_tokenizer.h"
#include "host/text/tokenizer.h"
#include "host/weights/gguf.h"
#include "tests/support/small_gguf.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

Json value_of(const GgufMetadata& metadata, const std::string& key, const std::string& kind) {
  if (kind == "integer") return metadata.integer(key, INT64_MIN, INT64_MAX);
  if (kind == "number") return metadata.number(key, -1e300, 1e300);
  if (kind == "boolean") return *metadata.find_boolean(key);
  if (kind == "text") return metadata.text(key);
  if (kind == "texts") return metadata.texts(key, UINT64_MAX);
  return metadata.integers(key, UINT64_MAX);
}

Json view(const GgufFile& file, const Json& request) {
  const Gguf& gguf = file.contents();
  Json answer = {{"values", Json::array()}, {"tensors", Json::object()}, {"ids", Json::array()}, {"decoded", Json::array()}};
  for (const Json& entry : request.at("keys")) answer["values"].push_back(value_of(gguf.metadata, entry.at(0), entry.at(1)));
  for (const auto& [name, tensor] : gguf.tensors) {
    answer["tensors"][name] = {{"shape", tensor.shape},
                               {"type", format_of(tensor.type).name},
                               {"begin", tensor.bytes.data() - gguf.header.data()},
                               {"bytes", tensor.bytes.size()}};
  }
  const auto tokenizer = parse_tokenizer(gguf);
  for (const Json& text : request.at("texts")) {
    const std::vector<int32_t> ids = tokenizer->encode(text.get<std::string>());
    answer["decoded"].push_back(tokenizer->decode(ids, false));
    answer["ids"].push_back(ids);
  }
  answer["tokenizer"] = gguf_tokenizer(gguf);
  return answer;
}

}  // namespace
}  // namespace sluice

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  try {
    if (given.size() == 2 && given[0] == "--small") {
      sluice::testing::small_gguf().write(given[1]);
    } else {
      std::cout << sluice::view(sluice::GgufFile(given.at(0)), nlohmann::json::parse(std::cin)).dump();
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
