#include "host/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "host/text/added_tokens.h"
#include "host/text/bpe.h"
#include "host/text/byte_alphabet.h"
#include "host/text/gguf_tokenizer.h"
#include "host/text/pre_tokenizer.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/mapped_file.h"
#include "scripting/base/unicode.h"

namespace sluice {
namespace {

/// True if the normaliser composes (NFC); there is no other.
bool reads_composed(const JsonObject& document) {
  const std::optional<JsonObject> normalizer = document.find_object("normalizer");
  if (!normalizer) return false;
  const std::string& type = normalizer->text("type");
  if (type == "NFC") return true;
  if (type != "Sequence") normalizer->refuse("type", "supported are NFC and none");
  bool composed = false;
  const nlohmann::json& parts = normalizer->array("normalizers");
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonObject part(parts[i], fmt::format("{}, normalizers[{}]", normalizer->where(), i));
    if (part.text("type") != "NFC") part.refuse("type", "supported are NFC and none");
    composed = true;
  }
  return composed;
}

TokenIds read_vocabulary(const JsonObject& model) {
  const JsonObject vocabulary = model.object("vocab");
  TokenIds ids;
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxTokenId) {
      throw InputError(fmt::format("{}: the id of {} is {}, not an integer from 0 to {}", vocabulary.where(), excerpt(token),
                                   excerpt(id), kMaxTokenId));
    }
    ids.emplace(token, id.get<int32_t>());
  }
  return ids;
}

/// Special tokens that a template puts around a single text.
struct Template {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

void read_template_part(const JsonObject& processor, const JsonObject& part, bool& text_seen, Template& result) {
  if (part.find_object("Sequence")) {
    text_seen = true;
    return;
  }
  const std::string& name = part.object("SpecialToken").text("id");
  const JsonObject token = processor.object("special_tokens").object(name.c_str());
  for (const nlohmann::json& id : token.array("ids")) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxTokenId)
      token.refuse("ids", "they must be token ids");
    (text_seen ? result.after : result.before).push_back(id.get<int32_t>());
  }
}

void read_post_processor(const JsonObject& processor, Template& result) {
  const std::string& type = processor.text("type");
  if (type == "ByteLevel") return;  // moves offsets only
  if (type == "Sequence") {
    const nlohmann::json& parts = processor.array("processors");
    for (size_t i = 0; i < parts.size(); ++i) {
      read_post_processor(JsonObject(parts[i], fmt::format("{}, processors[{}]", processor.where(), i)), result);
    }
    return;
  }
  if (type != "TemplateProcessing") processor.refuse("type", "supported are ByteLevel, TemplateProcessing and Sequence");
  bool text_seen = false;
  const nlohmann::json& parts = processor.array("single");
  for (size_t i = 0; i < parts.size(); ++i) {
    read_template_part(processor, JsonObject(parts[i], fmt::format("{}, single[{}]", processor.where(), i)), text_seen, result);
  }
}

class FileTokenizer final : public Tokenizer {
 public:
  explicit FileTokenizer(const JsonObject& document)
      : added_(read_tokens(document)),
        as_written_(added_, false),
        as_normalized_(added_, true),
        composed_(reads_composed(document)) {
    if (const auto pre_tokenizer = document.find_object("pre_tokenizer")) pre_tokenizer_ = PreTokenizer(*pre_tokenizer);
    if (const auto processor = document.find_object("post_processor")) read_post_processor(*processor, template_);
    const JsonObject model = document.object("model");
    ids_ = read_vocabulary(model);
    read_model(model);
    for (const AddedToken& token : added_) add_token(token, document);
    index_tokens(document);
    read_decoder(document);
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids = template_.before;
    append(text, ids);
    ids.insert(ids.end(), template_.after.begin(), template_.after.end());
    return ids;
  }

  std::vector<int32_t> encode_as_written(std::string_view text) const override {
    std::vector<int32_t> ids;
    append(text, ids);
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    bool first = true;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocabulary() || !known_[id] || (skip_special && special_[id])) continue;
      if (!byte_decoder_ && !first) text += ' ';
      text += bytes_of(id);
      first = false;
    }
    return byte_decoder_ ? valid_utf8(text) : text;
  }

  std::string bytes_of(int32_t id) const override {
    if (id < 0 || id >= vocabulary() || !known_[id]) return {};
    return byte_decoder_ ? from_byte_characters(tokens_[id]) : tokens_[id];
  }

  int vocabulary() const override { return static_cast<int>(tokens_.size()); }

  int32_t id_of(std::string_view token) const override {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? -1 : found->second;
  }

 private:
  static std::vector<AddedToken> read_tokens(const JsonObject& document) {
    if (document.find("added_tokens") == nullptr) return {};
    return read_added_tokens(document.array("added_tokens"), document.where());
  }

  void append(std::string_view text, std::vector<int32_t>& ids) const {
    const std::string valid = valid_utf8(text);
    for (const TextPiece& piece : as_written_.split(valid)) {
      if (piece.token != nullptr) {
        ids.push_back(piece.token->id);
        continue;
      }
      const std::string normal = composed_ ? compose(piece.text) : std::string(piece.text);
      for (const TextPiece& inner : as_normalized_.split(normal)) {
        if (inner.token != nullptr) {
          ids.push_back(inner.token->id);
        } else {
          for (const std::string& word : pre_tokenizer_.split(std::string(inner.text))) encode_word(word, ids);
        }
      }
    }
  }

  void read_model(const JsonObject& model) {
    // Files of the first versions leave the type out; they hold BPE.
    const std::string* type = model.find_text("type");
    if (type == nullptr || *type == "BPE") {
      if (!pre_tokenizer_.byte_level()) {
        throw InputError(fmt::format("{}: a BPE model needs a ByteLevel pre-tokenizer", model.where()),
                         "byte-level BPE and word-level tokenizers are supported");
      }
      pairs_.emplace(model, ids_);
    } else if (*type == "WordLevel") {
      if (const std::string* unknown = model.find_text("unk_token")) {
        const auto found = ids_.find(*unknown);
        unknown_ = found == ids_.end() ? -1 : found->second;
      }
    } else {
      model.refuse("type", "supported are BPE (byte-level) and WordLevel");
    }
  }

  void read_decoder(const JsonObject& document) {
    const auto decoder = document.find_object("decoder");
    if (!decoder) return;
    if (decoder->text("type") != "ByteLevel") decoder->refuse("type", "supported are ByteLevel and none");
    byte_decoder_ = true;
  }

  /// A text with two ids would be encoded as one of them, and which would depend on the order of the file.
  void add_token(const AddedToken& token, const JsonObject& document) {
    const auto [known, is_new] = ids_.emplace(token.content, token.id);
    if (is_new || known->second == token.id) return;
    throw InputError(fmt::format("{}: the token {} has two ids, {} and {}", document.where(), excerpt(token.content),
                                 known->second, token.id));
  }

  void index_tokens(const JsonObject& document) {
    int32_t last = -1;
    for (const auto& [token, id] : ids_) last = std::max(last, id);
    tokens_.resize(last + 1);
    known_.resize(last + 1);
    special_.resize(last + 1);
    for (const auto& [token, id] : ids_) {
      if (known_[id]) {
        const auto [first, second] = std::minmax(tokens_[id], token);
        throw InputError(
            fmt::format("{}: the id {} has two tokens, {} and {}", document.where(), id, excerpt(first), excerpt(second)));
      }
      tokens_[id] = token;
      known_[id] = true;
    }
    for (const AddedToken& token : added_) special_[token.id] = token.special;
  }

  void encode_word(const std::string& word, std::vector<int32_t>& ids) const {
    if (pairs_) {
      pairs_->encode(word, ids_, ids);
      return;
    }
    const auto found = ids_.find(word);
    const int32_t id = found == ids_.end() ? unknown_ : found->second;
    if (id < 0)
      throw InputError(
          fmt::format("the word {} is not in the vocabulary, and the tokenizer has no unknown token", excerpt(word)));
    ids.push_back(id);
  }

  std::vector<AddedToken> added_;
  AddedTokenFinder as_written_;
  AddedTokenFinder as_normalized_;
  bool composed_ = false;
  PreTokenizer pre_tokenizer_;
  Template template_;
  TokenIds ids_;
  std::optional<BytePairEncoder> pairs_;  // none: word-level
  int32_t unknown_ = -1;
  bool byte_decoder_ = false;
  std::vector<std::string> tokens_;  // by id
  std::vector<bool> known_;          // ids need not be dense
  std::vector<bool> special_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  return std::make_unique<FileTokenizer>(JsonObject(document, name));
}

std::unique_ptr<Tokenizer> parse_tokenizer(const Gguf& gguf) {
  const nlohmann::json document = gguf_tokenizer(gguf);
  return std::make_unique<FileTokenizer>(JsonObject(document, gguf.name));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model) {
  if (is_gguf(model)) return parse_tokenizer(GgufFile(model).contents());
  const std::string path = (std::filesystem::path(model) / "tokenizer.json").string();
  return parse_tokenizer(read_text_file(path), path);
}

}  // namespace sluice
