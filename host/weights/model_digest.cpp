#include "host/weights/model_digest.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <filesystem>
#include <numeric>
#include <span>

#include "host/weights/checkpoint.h"
#include "scripting/base/mapped_file.h"

namespace sluice {
namespace {

constexpr size_t kBytes = 16;
constexpr size_t kSample = 1024;
constexpr size_t kSamples = 16;               // of a tensor
constexpr size_t kWhole = size_t{256} << 20;  // weights that are read to the last byte, which takes a few tenths of a second

class Digest {
 public:
  Digest() { crypto_generichash_init(&state_, nullptr, 0, kBytes); }

  void add(std::span<const std::byte> bytes) {
    const uint64_t size = bytes.size();
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(&size), sizeof size);
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  std::string hex() {
    std::array<unsigned char, kBytes> hash{};
    crypto_generichash_final(&state_, hash.data(), hash.size());
    std::string text;
    for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
    return text;
  }

 private:
  crypto_generichash_state state_{};
};

/// A file that need not be there.
void add_file(Digest& digest, const std::string& path) {
  std::error_code error;
  const bool is_missing = std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found;
  digest.add(is_missing ? std::string() : read_text_file(path));
}

/// All of a small tensor; of a large one stretches at equal distances, the first and the last bytes among them.
void add_samples(Digest& digest, std::span<const std::byte> bytes) {
  if (bytes.size() <= kSample * kSamples) return digest.add(bytes);
  for (size_t i = 0; i < kSamples; ++i) digest.add(bytes.subspan((bytes.size() - kSample) / (kSamples - 1) * i, kSample));
  digest.add(bytes.last(kSample));
}

}  // namespace

std::string model_digest(const std::string& model) {
  Digest digest;
  const Checkpoint checkpoint = Checkpoint::open(model);
  if (const Gguf* gguf = checkpoint.gguf()) {
    digest.add(gguf->header);
  } else {
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                             "chat_template.jinja", "vocabulary.json"}) {
      add_file(digest, model + "/" + name);
    }
  }
  const auto& tensors = checkpoint.gguf() != nullptr ? checkpoint.gguf()->tensors : checkpoint.tensors();
  const size_t bytes = std::accumulate(tensors.begin(), tensors.end(), size_t{0},
                                       [](size_t sum, const auto& entry) { return sum + entry.second.bytes.size(); });
  for (const auto& [name, tensor] : tensors) {
    digest.add(name);
    digest.add(format_of(tensor.type).name);
    digest.add(tensor.shape_text());
    bytes <= kWhole ? digest.add(tensor.bytes) : add_samples(digest, tensor.bytes);
  }
  return digest.hex();
}

}  // namespace sluice
