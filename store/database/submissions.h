#pragma once

#include "store/records.h"

namespace sluice::store {

constexpr Time kKeyAge = Time{7} * 24 * 3600 * 1'000'000;  // after which an idempotency key is forgotten

/// The draft in the form in which it is kept. Throws StoreError (kInvalid).
Draft checked_draft(const Draft& draft);
/// Whether `who` may have judged after all what its `owner`, given by its row, handed in and cancelled.
bool may_revive(const Agent& who, int64_t owner);
/// Of all that a request to hand it in says, but its key.
std::string hash_of_request(const Draft& draft);

}  // namespace sluice::store
