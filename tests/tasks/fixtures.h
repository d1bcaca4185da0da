#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agents/tasks/task.h"
#include "host/text/tokenizer.h"

namespace sluice::test {

/// Counts words of letters and digits, signs and line breaks as one token each; long words as several, as BPE would.
class CountingTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_as_written(std::string_view text) const override { return encode(text); }
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const override;
  int vocabulary() const override { return 1 << 20; }
  int32_t id_of(std::string_view token) const override;

 private:
  mutable std::map<std::string, int32_t, std::less<>> ids_;
  mutable std::vector<std::string> texts_;
};

/// The vocabulary of the mini model.
const MiniVocabulary& mini_vocabulary();

std::vector<std::string> words_of(const std::string& text);
std::vector<std::string> lines_of(const std::string& text);

}  // namespace sluice::test
