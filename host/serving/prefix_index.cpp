#include "host/serving/prefix_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "host/serving/random.h"
#include "scripting/base/error.h"

namespace sluice {

PrefixIndex::PrefixIndex(int limit, int page_tokens)
    : page_tokens_(page_tokens),
      nodes_(static_cast<size_t>(limit)),
      tokens_(static_cast<size_t>(limit) * static_cast<size_t>(page_tokens)),
      buckets_(std::bit_ceil(static_cast<size_t>(limit) * 2), kNone) {}

uint64_t PrefixIndex::hash_of(int32_t parent, std::span<const int32_t> tokens) const {
  uint64_t hash = parent == kRoot ? 0 : nodes_[static_cast<size_t>(parent)].hash;
  for (const int32_t token : tokens) hash = mix(hash, static_cast<uint32_t>(token));
  return hash;
}

uint64_t PrefixIndex::serial_of(int32_t parent) const { return parent == kRoot ? 0 : nodes_[static_cast<size_t>(parent)].serial; }

std::span<const int32_t> PrefixIndex::tokens_of(int32_t page) const {
  const auto size = static_cast<size_t>(page_tokens_);
  return std::span(tokens_).subspan(static_cast<size_t>(page) * size, size);
}

int32_t PrefixIndex::find(int32_t parent, std::span<const int32_t> tokens) const {
  const uint64_t hash = hash_of(parent, tokens);
  const uint64_t parent_serial = serial_of(parent);
  for (int32_t page = buckets_[hash & (buckets_.size() - 1)]; page != kNone;
       page = nodes_[static_cast<size_t>(page)].next_in_bucket) {
    const Node& node = nodes_[static_cast<size_t>(page)];
    if (node.hash != hash || node.parent_serial != parent_serial) continue;
    const std::span<const int32_t> held = tokens_of(page);
    if (std::equal(held.begin(), held.end(), tokens.begin(), tokens.end())) return page;
  }
  return kNone;
}

void PrefixIndex::insert(int32_t parent, std::span<const int32_t> tokens, int32_t page) {
  if (static_cast<int>(tokens.size()) != page_tokens_) throw InternalError("only full pages are shared by prefix");
  add(page, hash_of(parent, tokens), serial_of(parent));
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(page) * page_tokens_);
}

void PrefixIndex::insert_apart(int32_t page) {
  const uint64_t nobody = ++last_serial_;  // no page will have it
  add(page, mix(nobody, 0), nobody);
}

void PrefixIndex::add(int32_t page, uint64_t hash, uint64_t parent_serial) {
  if (contains(page)) throw InternalError(fmt::format("page {} is in the prefix index already", page));
  Node& node = nodes_[static_cast<size_t>(page)];
  node.hash = hash;
  node.serial = ++last_serial_;
  node.parent_serial = parent_serial;
  node.next_in_bucket = bucket(node.hash);
  bucket(node.hash) = page;
}

void PrefixIndex::erase(int32_t page) {
  int32_t* link = &bucket(nodes_[static_cast<size_t>(page)].hash);
  while (*link != page) link = &nodes_[static_cast<size_t>(*link)].next_in_bucket;
  *link = nodes_[static_cast<size_t>(page)].next_in_bucket;
  nodes_[static_cast<size_t>(page)] = Node{};
}

}  // namespace sluice
