#include "store/store.h"

#include <fmt/format.h>

#include <chrono>

#include "store/error.h"
#include "store/migrations.h"
#include "store/sodium.h"
#include "store/sqlite.h"

namespace sluice::store {

Time now() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count();
}

Store::Store(const std::string& path, StoreOptions options)
    : options_(std::move(options)),
      database_(std::make_unique<Database>(path, Database::Mode::kReadWrite, options_.busy_timeout_ms)) {
  start_sodium();
  require_current(*database_);
}

Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

}  // namespace sluice::store
