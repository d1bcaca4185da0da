#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::test {

/// What the chunks of a stream say of one choice: {text, finish_reason, logprobs}, whose lists are those of all chunks.
inline nlohmann::json joined(const std::vector<nlohmann::json>& chunks, int choice) {
  nlohmann::json whole = {{"text", ""}, {"logprobs", nullptr}};
  for (const nlohmann::json& chunk : chunks) {
    for (const nlohmann::json& part : chunk.at("choices")) {
      if (part.at("index") != choice) continue;
      const std::string text = part.contains("text") ? part.at("text").get<std::string>() : part.at("delta").value("content", "");
      whole["text"] = whole["text"].get<std::string>() + text;
      whole["finish_reason"] = part.at("finish_reason");
      if (part.at("logprobs").is_null()) continue;
      if (whole["logprobs"].is_null()) {
        whole["logprobs"] = part.at("logprobs");
        continue;
      }
      for (const auto& [name, list] : part.at("logprobs").items()) {
        if (list.is_array()) whole["logprobs"][name].insert(whole["logprobs"][name].end(), list.begin(), list.end());
      }
    }
  }
  return whole;
}

}  // namespace sluice::test
