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

SegmentIndex::Digest SegmentIndex::space(std::string_view tenant, std::string_view extra_key) const {
  KeyedHash hash(secret_);
  const uint64_t length = tenant.size();  // which says where the tenant ends
  hash.add(&length, sizeof length);
  hash.add(tenant.data(), tenant.size());
  hash.add(extra_key.data(), extra_key.size());
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

SegmentIndex::Entries::iterator SegmentIndex::locate(const Digest& space, std::span<const int32_t> tokens) {
  const auto is_it = [&](const Entry& entry) {
    return entry.space == space && std::equal(tokens.begin(), tokens.end(), entry.tokens.begin(), entry.tokens.end());
  };
  for (const Entry* likely : {last_, last_ == nullptr ? nullptr : last_->next}) {
    if (likely != nullptr && is_it(*likely)) return by_digest_.at(likely->digest);
  }
  const auto found = by_digest_.find(digest_of(space, tokens));
  return found != by_digest_.end() && is_it(*found->second) ? found->second : entries_.end();
}

const SegmentIndex::View* SegmentIndex::find(const Digest& space, std::span<const int32_t> tokens) {
  const auto entry = locate(space, tokens);
  if (entry == entries_.end()) return nullptr;
  renew(entry);
  return &entry->view;
}

void SegmentIndex::renew(Entries::iterator entry) {
  if (entry->text == 0) entries_.splice(entries_.begin(), entries_, entry);
  Entry* const next = &*entry;
  Entry* const before = std::exchange(last_, next);
  if (before == nullptr || before == next || before->next == next) return;
  if (before->next != nullptr) before->next->before = nullptr;
  if (next->before != nullptr) next->before->next = nullptr;
  before->next = next;
  next->before = before;
}

void SegmentIndex::unlink(Entry& entry) {
  by_digest_.erase(entry.digest);
  // What was around it is together now, unless that is one entry.
  const bool is_one = entry.next == entry.before;
  if (entry.next != nullptr) entry.next->before = is_one ? nullptr : entry.before;
  if (entry.before != nullptr) entry.before->next = is_one ? nullptr : entry.next;
  if (last_ == &entry) last_ = entry.before;
}

void SegmentIndex::offer(const Digest& space, std::span<const int32_t> tokens, const View& view) {
  if (const auto known = locate(space, tokens); known != entries_.end()) {
    known->view = view;
    return renew(known);
  }
  const Digest digest = digest_of(space, tokens);
  if (by_digest_.contains(digest)) return;  // another run with this hash is there first
  if (entries_.size() >= most_) {
    unlink(entries_.back());
    entries_.pop_back();
  }
  entries_.push_front({.digest = digest, .space = space, .tokens = {tokens.begin(), tokens.end()}, .view = view});
  by_digest_.emplace(digest, entries_.begin());
  renew(entries_.begin());
}

void SegmentIndex::forget(const Digest& space, std::span<const int32_t> tokens) {
  const auto known = locate(space, tokens);
  if (known == entries_.end()) return;
  unlink(*known);
  (known->text == 0 ? entries_ : frozen_).erase(known);
}

void SegmentIndex::freeze(const Digest& space, std::span<const int32_t> tokens, uint64_t text) {
  const auto known = locate(space, tokens);
  if (known == entries_.end() || known->text != 0) return;
  known->text = text;
  frozen_.splice(frozen_.begin(), entries_, known);
}

uint64_t SegmentIndex::frozen_text(const Digest& space, std::span<const int32_t> tokens) {
  const auto known = locate(space, tokens);
  return known == entries_.end() ? 0 : known->text;
}

}  // namespace sluice
