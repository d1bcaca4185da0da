#include "host/serving/segment_index.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

/// BLAKE2b under a key, of parts one behind the other.
class KeyedHash {
 public:
  explicit KeyedHash(std::span<const unsigned char> key) {
    crypto_generichash_init(&state_, key.data(), key.size(), sizeof(SegmentIndex::Digest));
  }
  void add(const void* bytes, size_t count) {
    crypto_generichash_update(&state_, static_cast<const unsigned char*>(bytes), count);
  }
  SegmentIndex::Digest digest() {
    SegmentIndex::Digest digest;
    crypto_generichash_final(&state_, digest.data(), digest.size());
    return digest;
  }

 private:
  crypto_generichash_state state_;
};

}  // namespace

SegmentIndex::SegmentIndex(int block, size_t most) : block_(block), most_(most) {
  if (block < 1 || most < 1) throw InternalError(fmt::format("segments of {} tokens, {} at a time", block, most));
  if (sodium_init() < 0) throw InternalError("libsodium cannot be initialised");
  randombytes_buf(secret_.data(), secret_.size());
}

SegmentIndex::~SegmentIndex() { sodium_memzero(secret_.data(), secret_.size()); }

size_t SegmentIndex::Hash::operator()(const Digest& digest) const {
  size_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

SegmentIndex::Digest SegmentIndex::digest_of(std::string_view text) const {
  KeyedHash hash(secret_);
  hash.add(text.data(), text.size());
  return hash.digest();
}

SegmentIndex::Digest SegmentIndex::space(std::string_view tenant, std::string_view extra_key, std::string_view flow) const {
  KeyedHash hash(secret_);
  for (const std::string_view part : {tenant, extra_key, flow}) {
    const uint64_t length = part.size();  // which says where it ends
    hash.add(&length, sizeof length);
    hash.add(part.data(), part.size());
  }
  return hash.digest();
}

SegmentIndex::Digest SegmentIndex::digest_of(const Digest& space, std::span<const int32_t> tokens) const {
  if (static_cast<int>(tokens.size()) != block_)
    throw InternalError(fmt::format("a run of {} tokens in an index of runs of {}", tokens.size(), block_));
  KeyedHash hash(secret_);
  hash.add(space.data(), space.size());
  hash.add(tokens.data(), tokens.size_bytes());
  return hash.digest();
}

SegmentIndex::Known* SegmentIndex::locate(const Digest& space, std::span<const int32_t> tokens) {
  const auto is_it = [&](const Known& known) {
    const Entry& entry = *known.entry;
    return entry.space == space && std::equal(tokens.begin(), tokens.end(), entry.tokens.begin(), entry.tokens.end());
  };
  for (Known* likely : {last_, last_ == nullptr ? nullptr : last_->next}) {
    if (likely != nullptr && is_it(*likely)) return likely;
  }
  const auto found = by_digest_.find(digest_of(space, tokens));
  return found != by_digest_.end() && is_it(found->second) ? &found->second : nullptr;
}

const SegmentIndex::View* SegmentIndex::find(const Digest& space, std::span<const int32_t> tokens) {
  Known* const known = locate(space, tokens);
  if (known == nullptr) return nullptr;
  renew(*known);
  return &known->entry->view;
}

void SegmentIndex::renew(Known& known) {
  if (known.entry->text == 0) entries_.splice(entries_.begin(), entries_, known.entry);
  Known* const before = std::exchange(last_, &known);
  if (before == nullptr || before == &known || before->next == &known) return;
  if (before->next != nullptr) before->next->before = nullptr;
  if (known.before != nullptr) known.before->next = nullptr;
  before->next = &known;
  known.before = before;
}

void SegmentIndex::unlink(Known& known) {
  // What was around it is together now, unless that is one run.
  const bool is_one = known.next == known.before;
  if (known.next != nullptr) known.next->before = is_one ? nullptr : known.before;
  if (known.before != nullptr) known.before->next = is_one ? nullptr : known.next;
  if (last_ == &known) last_ = known.before;
  by_digest_.erase(Digest(known.entry->digest));
}

void SegmentIndex::offer(const Digest& space, std::span<const int32_t> tokens, const View& view) {
  if (Known* const known = locate(space, tokens); known != nullptr) {
    known->entry->view = view;
    return renew(*known);
  }
  const Digest digest = digest_of(space, tokens);
  if (by_digest_.contains(digest)) return;  // another run with this hash is there first
  if (entries_.size() >= most_) {
    unlink(by_digest_.at(entries_.back().digest));
    entries_.pop_back();
  }
  entries_.push_front({.digest = digest, .space = space, .tokens = {tokens.begin(), tokens.end()}, .view = view});
  renew(by_digest_.emplace(digest, Known{entries_.begin()}).first->second);
}

void SegmentIndex::forget(const Digest& space, std::span<const int32_t> tokens) {
  Known* const known = locate(space, tokens);
  if (known == nullptr) return;
  const Entries::iterator entry = known->entry;
  unlink(*known);
  (entry->text == 0 ? entries_ : frozen_).erase(entry);
}

void SegmentIndex::freeze(const Digest& space, std::span<const int32_t> tokens, uint64_t text) {
  const Known* const known = locate(space, tokens);
  if (known == nullptr || known->entry->text != 0) return;
  known->entry->text = text;
  frozen_.splice(frozen_.begin(), entries_, known->entry);
}

uint64_t SegmentIndex::frozen_text(const Digest& space, std::span<const int32_t> tokens) {
  const Known* const known = locate(space, tokens);
  return known == nullptr ? 0 : known->entry->text;
}

}  // namespace sluice
